-- The schema of a PostgreSQL store. Times are milliseconds since 1970, by the clock of the database; lists and objects
-- are stored as JSON. Text is compared byte by byte, whatever the locale of the database.

-- VOLATILE, so that each statement of a function that waited for a lock sees the commits until then.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- ---- The store itself ----

-- One row.
CREATE TABLE state (
    one            integer PRIMARY KEY CHECK (one = 1),
    policy_version bigint NOT NULL,
    -- 1: the default policies were created.
    defaults_made  integer NOT NULL,
    sealed_salt    bytea,
    -- Retention may have deleted older events.
    events_since   bigint NOT NULL DEFAULT 0,
    -- The settings that all instances share, at the last start, without secrets.
    settings       text COLLATE "C",
    -- The part before the colon in the id of an operation.
    node_id        text COLLATE "C" NOT NULL
);
INSERT INTO state (one, policy_version, defaults_made, node_id)
VALUES (1, 1, 0, left(replace(gen_random_uuid()::text, '-', ''), 22));

-- Updated by the readiness probe. Apart from `state`, which every verification reads.
CREATE TABLE probes (
    one    integer PRIMARY KEY CHECK (one = 1),
    at     bigint,
    -- Filled for a moment when the disk was full, to see whether the table can grow by a page.
    filler text
);
-- A value that is compressed or moved out of the row takes no page.
ALTER TABLE probes ALTER COLUMN filler SET STORAGE PLAIN;
INSERT INTO probes (one) VALUES (1);

-- Marks of committed transactions, kept for an hour. If a commit gets no answer, the mark says whether it took place.
-- The number of the transaction cannot say it: PostgreSQL may use it again after a crash.
CREATE TABLE commit_marks (
    mark text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL
);
CREATE INDEX commit_marks_at ON commit_marks (at);

-- ---- Tokens ----

CREATE TABLE tokens (
    id                 text COLLATE "C" PRIMARY KEY,
    type               text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    description        text COLLATE "C",
    actor_urn          text COLLATE "C" NOT NULL,
    owner_urn          text COLLATE "C" NOT NULL,
    created_at         bigint NOT NULL,
    expires_at         bigint,
    -- The token that created it.
    created_with       text COLLATE "C",
    last_used_at       bigint,
    revoked_at         bigint,
    -- NULL: none.
    limits             text COLLATE "C",
    -- The token it was derived from, which it is revoked and expires with.
    parent             text COLLATE "C",
    -- The oldest token of its family; NULL: itself. It never changes.
    root               text COLLATE "C",
    -- Rotation. A successor has a grace until its first use: it expires at expires_at, with the overlap. Its first use
    -- sets expires_at to full_end and grace to NULL.
    replaces           text COLLATE "C",
    replaced_by        text COLLATE "C",
    replaced_at        bigint,
    grace              bigint,
    full_end           bigint,
    use_count          bigint NOT NULL DEFAULT 0,
    last_network       text COLLATE "C",
    -- In lower case; NULL: lower() does it, which knows ASCII only.
    name_folded        text COLLATE "C",
    description_folded text COLLATE "C"
) WITH (fillfactor = 90);

-- In the order of lists: a page costs the same at any size.
CREATE INDEX tokens_all   ON tokens (expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_created_with ON tokens (created_with) WHERE created_with IS NOT NULL;
-- Unused successors: a signing key is published until the last of them may expire.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- To purge revoked tokens, the oldest first. Expired ones are read from tokens_all.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;

CREATE FUNCTION reject_undone_revocation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revoked token stays revoked';
END $$;
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL) EXECUTE FUNCTION reject_undone_revocation();

-- The number of tokens that are not revoked: of all ('all', ''), per actor, per owner; the sum over the slots. Each
-- transaction that counts locks a slot until its commit (`take_slot`). With one row for all, each would wait for the
-- commit of another.
CREATE TABLE token_totals (
    kind  text COLLATE "C" NOT NULL,
    urn   text COLLATE "C" NOT NULL,
    slot  integer NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (kind, urn, slot)
) WITH (fillfactor = 60);

CREATE FUNCTION current_slot() RETURNS integer LANGUAGE sql STABLE
AS $$ SELECT coalesce(nullif(current_setting('watchword.slot', true), ''), '0')::integer $$;

CREATE FUNCTION count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    SELECT kind, urn, current_slot(), count(*) FROM added, LATERAL (
        VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
    WHERE revoked_at IS NULL GROUP BY kind, urn
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_counted AFTER INSERT ON tokens REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_added();

CREATE FUNCTION count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    VALUES ('actor', OLD.actor_urn, current_slot(), -1), ('all', '', current_slot(), -1),
        ('owner', OLD.owner_urn, current_slot(), -1)
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_uncounted AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (
        OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL
        -- Statements that revoke many tokens count them once, themselves.
        AND current_setting('watchword.counts', true) IS DISTINCT FROM 'by_statement')
    EXECUTE FUNCTION count_removed();
CREATE TRIGGER tokens_purged AFTER DELETE ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL) EXECUTE FUNCTION count_removed();

-- Ids of tokens whose create got no answer. If the create arrives later, its token is not added.
CREATE TABLE withdrawn (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL
);

-- Requests with an Idempotency-Key. No column is secret.
CREATE TABLE retries (
    actor      text COLLATE "C" NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    kid        text COLLATE "C" NOT NULL,
    token_id   text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    PRIMARY KEY (actor, digest)
);
CREATE INDEX retries_created ON retries (created_at);

-- Tokens imported from DataHub, and when they expire there. A row is kept until then, also after its token was purged:
-- a revoked token must not be imported again.
CREATE TABLE imported_tokens (
    id         text COLLATE "C" PRIMARY KEY,
    expires_at bigint
);
CREATE INDEX imported_tokens_end ON imported_tokens (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE token_networks (
    token_id text COLLATE "C" NOT NULL,
    network  text COLLATE "C" NOT NULL,
    first_at bigint NOT NULL,
    PRIMARY KEY (token_id, network)
);

-- ---- Policies and groups ----
-- In this and later tables, set_name is the policy set that declares the row; NULL: none does.

CREATE TABLE policies (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    state       text COLLATE "C" NOT NULL,
    privileges  text COLLATE "C" NOT NULL,
    users       text COLLATE "C" NOT NULL,
    groups      text COLLATE "C" NOT NULL,
    all_users   integer NOT NULL,
    source      text COLLATE "C" NOT NULL DEFAULT 'API',
    set_name    text COLLATE "C",
    -- Scopes of other services.
    scopes      text COLLATE "C" NOT NULL DEFAULT '[]'
);

CREATE TABLE groups (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    members     bigint NOT NULL DEFAULT 0,
    set_name    text COLLATE "C"
);

CREATE TABLE group_members (
    actor_urn text COLLATE "C" NOT NULL,
    group_urn text COLLATE "C" NOT NULL,
    -- 1: a group of the identity provider, set at sign-in. It has no row in `groups`. No group there has its urn.
    external  integer NOT NULL DEFAULT 0,
    PRIMARY KEY (actor_urn, group_urn)
);
CREATE INDEX group_members_group ON group_members (group_urn, actor_urn);

CREATE FUNCTION count_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE groups SET members = members + 1 WHERE urn = NEW.group_urn;
    ELSE
        UPDATE groups SET members = members - 1 WHERE urn = OLD.group_urn;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER group_members_counted AFTER INSERT OR DELETE ON group_members
    FOR EACH ROW EXECUTE FUNCTION count_members();

-- ---- Actors ----

-- An actor has a row once it has a name, an address or another status. changed_at and changed_by are of the status;
-- NULL: it never changed.
CREATE TABLE actors (
    urn          text COLLATE "C" PRIMARY KEY,
    status       text COLLATE "C" NOT NULL DEFAULT 'ACTIVE',
    changed_at   bigint,
    changed_by   text COLLATE "C",
    display_name text COLLATE "C",
    email        text COLLATE "C"
);

-- A deleted account keeps its row, so that its urn is never used again.
CREATE TABLE service_accounts (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    created_at  bigint NOT NULL,
    created_by  text COLLATE "C" NOT NULL,
    deleted_at  bigint,
    set_name    text COLLATE "C"
);
CREATE INDEX service_accounts_name ON service_accounts (name, urn) WHERE deleted_at IS NULL;

-- The actor of each user of the identity provider. The first sign-in stores it; an administrator may change it.
CREATE TABLE identities (
    issuer       text COLLATE "C" NOT NULL,
    subject      text COLLATE "C" NOT NULL,
    actor_urn    text COLLATE "C" NOT NULL UNIQUE,
    linked_at    bigint NOT NULL,
    signed_in_at bigint,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_signed_in ON identities (signed_in_at);

-- ---- Signing keys ----

CREATE TABLE keys (
    seq             bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kid             text COLLATE "C" NOT NULL UNIQUE,
    public          bytea NOT NULL,
    sealed_private  bytea NOT NULL,
    created_at      bigint NOT NULL,
    retired_at      bigint,
    published_until bigint
);

-- The key that signs after the next rotation. It is published already.
CREATE TABLE next_key (
    one            integer PRIMARY KEY CHECK (one = 1),
    kid            text COLLATE "C" NOT NULL,
    public         bytea NOT NULL,
    sealed_private bytea NOT NULL,
    created_at     bigint NOT NULL
);

-- ---- Sessions and devices ----
-- Not copied to another store: people sign in again.

-- Sessions of browsers. The id is the digest of the cookie. Without a token, the actor was chosen in local mode or
-- signed in at the identity provider; the latter has an issuer, a subject and often the provider's session id.
CREATE TABLE sessions (
    id         text COLLATE "C" PRIMARY KEY,
    actor_urn  text COLLATE "C" NOT NULL,
    token_id   text COLLATE "C",
    created_at bigint NOT NULL,
    ends_at    bigint NOT NULL,
    seen_at    bigint NOT NULL DEFAULT 0,
    peer       text COLLATE "C" NOT NULL DEFAULT '',
    issuer     text COLLATE "C",
    subject    text COLLATE "C",
    sid        text COLLATE "C"
);
-- The number of sessions of a token, or of an actor without one, is limited: the oldest is deleted.
CREATE INDEX sessions_token   ON sessions (token_id, created_at) WHERE token_id IS NOT NULL;
CREATE INDEX sessions_actor   ON sessions (actor_urn, created_at) WHERE token_id IS NULL;
CREATE INDEX sessions_end     ON sessions (ends_at);
-- With and without a token: counted when the actor is suspended, deleted when it is offboarded.
CREATE INDEX sessions_of      ON sessions (actor_urn);
CREATE INDEX sessions_subject ON sessions (issuer, subject) WHERE issuer IS NOT NULL;
CREATE INDEX sessions_sid     ON sessions (issuer, sid) WHERE sid IS NOT NULL;

-- Devices that wait for a token (RFC 8628). The id and the user code are digests.
CREATE TABLE devices (
    id            text COLLATE "C" PRIMARY KEY,
    user_code     text COLLATE "C" NOT NULL UNIQUE,
    client        text COLLATE "C" NOT NULL,
    host          text COLLATE "C",
    scopes        text COLLATE "C",
    peer          text COLLATE "C" NOT NULL,
    origin        text COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL,
    ends_at       bigint NOT NULL,
    poll_interval bigint NOT NULL,
    polled_at     bigint,
    status        text COLLATE "C" NOT NULL,
    actor_urn     text COLLATE "C",
    bearer_id     text COLLATE "C"
);
CREATE INDEX devices_end    ON devices (ends_at);
CREATE INDEX devices_origin ON devices (origin, ends_at);

-- ---- Events ----

CREATE TABLE events (
    seq        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    bearer_id  text COLLATE "C",
    action     text COLLATE "C" NOT NULL,
    target     text COLLATE "C" NOT NULL,
    peer       text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    detail     text COLLATE "C" NOT NULL
);
CREATE INDEX events_at     ON events (at, seq);
CREATE INDEX events_actor  ON events (actor, at, seq);
CREATE INDEX events_action ON events (action, at, seq);
CREATE INDEX events_target ON events (target, at, seq);
-- A repeated failure with the same token is not written: this index finds the earlier event.
CREATE INDEX events_failed ON events (bearer_id, at) WHERE action = 'authentication.failed' AND bearer_id IS NOT NULL;

-- The last event that each reader processed, and the process that holds the lease to read.
CREATE TABLE event_cursors (
    name       text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    holder     text COLLATE "C" NOT NULL DEFAULT '',
    held_until bigint NOT NULL DEFAULT 0
);

-- ---- Operations in the search index ----
-- In this and later tables, home is '' for the shared index, otherwise the embedded index of one instance.

CREATE TABLE operations (
    number          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    home            text COLLATE "C" NOT NULL DEFAULT '',
    index_name      text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    plan            text COLLATE "C" NOT NULL,
    work            text COLLATE "C" NOT NULL,
    asked_by        text COLLATE "C" NOT NULL,
    asked_at        bigint NOT NULL,
    started_at      bigint,
    changed_at      bigint,
    finished_at     bigint,
    cancel_asked_at bigint,
    cancel_asked_by text COLLATE "C",
    -- The fencing token: writes with a lower one are rejected.
    fence           bigint NOT NULL DEFAULT 0,
    held_until      bigint NOT NULL DEFAULT 0,
    -- The operation pauses until its time window opens.
    not_before      bigint NOT NULL DEFAULT 0
);
-- At most one active operation per index.
CREATE UNIQUE INDEX operations_active ON operations (home, index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');

-- ---- Retention ----
-- A series is `entity.aspect` in lower case, or `*`.

CREATE TABLE retention_rules (
    series     text COLLATE "C" PRIMARY KEY,
    rule       text COLLATE "C" NOT NULL,
    set_name   text COLLATE "C",
    changed_at bigint NOT NULL,
    changed_by text COLLATE "C" NOT NULL
);

CREATE TABLE retention_holds (
    series  text COLLATE "C" NOT NULL,
    reason  text COLLATE "C" NOT NULL,
    set_by  text COLLATE "C" NOT NULL,
    set_at  bigint NOT NULL,
    -- 1: declared by the rule of the series, and released with it. 0: set by hand.
    by_rule integer NOT NULL,
    PRIMARY KEY (series, by_rule)
);

CREATE TABLE retention_runs (
    number      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    home        text COLLATE "C" NOT NULL,
    series      text COLLATE "C" NOT NULL,
    due_at      bigint NOT NULL,
    state       text COLLATE "C" NOT NULL,
    rule        text COLLATE "C" NOT NULL,
    plan        text COLLATE "C",
    asked_by    text COLLATE "C" NOT NULL,
    made_at     bigint NOT NULL,
    operation   bigint,
    approved_by text COLLATE "C",
    approved_at bigint,
    error       text COLLATE "C"
);
-- One run for each time of a schedule, on any number of instances.
CREATE UNIQUE INDEX retention_runs_due ON retention_runs (home, series, due_at);
CREATE INDEX retention_runs_made ON retention_runs (made_at);
CREATE INDEX retention_runs_waiting ON retention_runs (home, series) WHERE state = 'WAITING';

-- The process that holds the lease to plan the runs of an index.
CREATE TABLE retention_leases (
    home       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    held_until bigint NOT NULL
);

CREATE TABLE series_sizes (
    home   text COLLATE "C" NOT NULL,
    series text COLLATE "C" NOT NULL,
    -- Days since 1970, in UTC.
    day    bigint NOT NULL,
    rows   bigint NOT NULL,
    bytes  bigint NOT NULL,
    PRIMARY KEY (home, series, day)
);

-- ---- Webhooks ----

CREATE TABLE webhooks (
    id              text COLLATE "C" PRIMARY KEY,
    name            text COLLATE "C" NOT NULL,
    url             text COLLATE "C" NOT NULL,
    actions         text COLLATE "C" NOT NULL,
    actors          text COLLATE "C" NOT NULL,
    groups          text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    sealed_secret   bytea NOT NULL,
    created_at      bigint NOT NULL,
    created_by      text COLLATE "C" NOT NULL,
    -- The secret before the last rotation also signs until previous_until.
    sealed_previous bytea,
    previous_until  bigint,
    -- Only events with a higher number are sent.
    after_seq       bigint NOT NULL,
    failing_since   bigint,
    failures        bigint NOT NULL,
    due_at          bigint NOT NULL,
    dropped         bigint NOT NULL,
    stopped_because text COLLATE "C",
    set_name        text COLLATE "C"
);

CREATE TABLE webhook_deliveries (
    number       bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    webhook      text COLLATE "C" NOT NULL,
    message      text COLLATE "C" NOT NULL,
    event_seq    bigint,
    type         text COLLATE "C" NOT NULL,
    payload      text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,
    made_at      bigint NOT NULL,
    delivered_at bigint,
    -- The latest ones.
    attempts     text COLLATE "C" NOT NULL
);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook, number);
CREATE INDEX webhook_deliveries_made ON webhook_deliveries (made_at);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook, number) WHERE state = 'WAITING';

-- ---- Mail ----

-- The notices that were sent before a token expires, by the number of days before.
CREATE TABLE expiry_notices (
    token_id text COLLATE "C" NOT NULL,
    days     bigint NOT NULL,
    PRIMARY KEY (token_id, days)
);

-- One row is one mail. Items are added to a digest until the first attempt to send it.
CREATE TABLE mails (
    number    bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kind      text COLLATE "C" NOT NULL,
    recipient text COLLATE "C" NOT NULL,
    address   text COLLATE "C" NOT NULL,
    -- The content, without tokens and secrets.
    items     text COLLATE "C" NOT NULL,
    -- The number of further items, which are not stored.
    more      bigint NOT NULL,
    made_at   bigint NOT NULL,
    state     text COLLATE "C" NOT NULL,
    attempts  bigint NOT NULL DEFAULT 0,
    next_at   bigint NOT NULL,
    done_at   bigint,
    error     text COLLATE "C"
);
CREATE INDEX mails_waiting ON mails (next_at) WHERE state = 'WAITING';
CREATE INDEX mails_recipient ON mails (recipient, kind);
CREATE INDEX mails_made ON mails (made_at);

-- The kinds of mail that a person turned off.
CREATE TABLE mail_preferences (
    actor_urn text COLLATE "C" PRIMARY KEY,
    kinds_off text COLLATE "C" NOT NULL
);

-- ---- Locks ----
-- Advisory locks by name, until the commit. A write takes shared locks on what its precondition rests on and exclusive
-- locks on what it changes; in one call and in the order of their keys, so that no two writes deadlock.
--
-- `policies`, `keys`, `actor:…`: what an authorization rests on.
-- `token:…`: a token family, by the id of its oldest token. A family never changes, so it may be read before it is
--     locked. Shared by writes with a bearer of the family and by derivations from it. Exclusive for a rotation, the
--     first use of a successor and a revocation: except in a cascade, all tokens that are revoked together are of one
--     family. A new token is locked by its own id too, against a withdrawal.
-- `tokens`: all families. Exclusive for writes to many of them: a cascade, a bulk revocation, a deleted account. Shared
--     by all that lock a family or change a row of a token.
-- `limit:…`: an actor's token limit. `idempotency:…`: exclusive for a request with this key. `index:…`: operations.
--
-- Then a transaction takes its slot, then rows of tokens, in the order of their ids unless it has `tokens` exclusively.

CREATE FUNCTION lock_key(_name text) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.hashtextextended(current_schema()::text || '/' || _name, 0::bigint) $$;

-- The subquery has the order in which the locks are taken.
CREATE FUNCTION lock_names(_shared text[], _exclusive text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
    FROM (
        SELECT key, bool_or(exclusive) AS exclusive FROM (
            SELECT lock_key(name) AS key, false AS exclusive FROM unnest(_shared) AS name WHERE name IS NOT NULL
            UNION ALL
            SELECT lock_key(name), true FROM unnest(_exclusive) AS name WHERE name IS NOT NULL) AS wanted
        GROUP BY key ORDER BY key) AS ordered;
END $$;

-- The id of the oldest token of the family; without such a token the id itself.
CREATE FUNCTION family_of(_id text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT root FROM tokens WHERE id = _id), _id);
END $$;

-- The lock of the family of each of these tokens.
CREATE FUNCTION family_locks(_ids text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT 'token:' || coalesce((SELECT t.root FROM tokens AS t WHERE t.id = wanted.id), wanted.id)
        FROM unnest(_ids) WITH ORDINALITY AS wanted (id, n) ORDER BY n);
END $$;

-- Lock a slot to count in, until the commit; a free one if there is one. Only rows of tokens are locked after it: a
-- transaction with a slot never waits for a lock by name, so waiting for a slot cannot deadlock.
CREATE FUNCTION take_slot() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first integer := pg_backend_pid();
    slot integer;
BEGIN
    FOR i IN 0 .. 15 LOOP
        slot := (first + i) & 15;
        IF pg_try_advisory_xact_lock(lock_key('slot:' || slot)) THEN
            PERFORM set_config('watchword.slot', slot::text, true);
            RETURN;
        END IF;
    END LOOP;
    slot := first & 15;
    PERFORM pg_advisory_xact_lock(lock_key('slot:' || slot));
    PERFORM set_config('watchword.slot', slot::text, true);
END $$;

-- ---- Adding and revoking tokens ----
-- The rules are in Python, for both databases. These functions are for the writes that need one round trip: adding
-- tokens, revoking tokens without relatives, withdrawing a token. Requests that wait together are checked and written
-- as a set, with one statement each for locks, checks, rows, events and totals. If one of the set is rejected or
-- affects another, each is checked and written alone, in turn, by the same statements.

-- In PL/pgSQL, which caches the plan; a function in SQL would be planned at each call.
CREATE FUNCTION total_of(_kind text, _urn text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = _kind AND urn = _urn);
END $$;

-- Whether the precondition of a write holds; without a version it always does. PostgreSQL inlines such a function and
-- plans it together with the statement around it. Here and below, scalar subqueries instead of EXISTS and joins: each
-- is one lookup in an index, whatever the sizes of the tables were when the plan was made.
CREATE FUNCTION precondition(_actor text, _bearer text, _version bigint, _now bigint) RETURNS TABLE (holds boolean)
LANGUAGE sql STABLE AS $$
    SELECT _version IS NULL OR (
        _version = (SELECT policy_version FROM state WHERE one = 1)
        AND coalesce((SELECT status FROM actors WHERE urn = _actor), '') <> 'SUSPENDED'
        AND (_bearer IS NULL OR coalesce((
            SELECT actor_urn = _actor AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > _now)
            FROM tokens WHERE id = _bearer), false)))
$$;

-- Up to how many tokens of an actor its creates share the lock of the limit. Above that each has it exclusively. The
-- difference is more than can be created at the same time.
CREATE FUNCTION shared_limit(_max_live bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT _max_live - greatest(1000, _max_live / 2) $$;

-- A token to add, with the request. `near`: before the locks were taken, the number of its actor's tokens was near the
-- limit, whose lock is exclusive then.
CREATE TYPE new_token AS (
    actor text, bearer text, version bigint, peer text, request text, kid text, max_live bigint, action text,
    detail text, retry_actor text, retry_digest text, retry_kid text, retry_token text, retry_created_at bigint,
    retry_expires_at bigint, id text, type text, name text, description text, actor_urn text, owner_urn text,
    created_at bigint, expires_at bigint, created_with text, limits text, parent text, root text, name_folded text,
    description_folded text, near boolean
);

-- Add tokens under the locks that `add_tokens` takes. The outcome of each is one of:
-- kept; there: its id is in use; withdrawn; stale: the precondition failed; repeated: its Idempotency-Key was used less
-- than a day ago; unknown: its service account; suspended: its actor; full: the limit is reached; again: the number of
-- its actor's tokens came near the limit before the locks were taken.
CREATE FUNCTION add_locked(_wanted new_token[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    number integer := cardinality(_wanted);
    moment bigint := now_ms(); -- read once: an index can be searched for a value, not for a volatile function
    day_ago bigint := moment - 86400000;
    keyed bigint;
    outcomes text[];
BEGIN
    SELECT array_agg(CASE
        WHEN (SELECT true FROM tokens WHERE id = w.id) THEN 'there'
        WHEN (SELECT true FROM withdrawn WHERE id = w.id) THEN 'withdrawn'
        WHEN precondition.holds IS NOT TRUE THEN 'stale'
        WHEN w.retry_digest IS NOT NULL AND (
            SELECT r.created_at > day_ago FROM retries AS r
            WHERE r.actor = w.retry_actor AND r.digest = w.retry_digest) THEN 'repeated'
        WHEN (SELECT kid FROM keys ORDER BY seq DESC LIMIT 1) IS DISTINCT FROM w.kid THEN 'stale'
        WHEN w.type = 'SERVICE_ACCOUNT' AND (
            SELECT true FROM service_accounts WHERE urn = w.actor_urn AND deleted_at IS NULL) IS NULL THEN 'unknown'
        WHEN (SELECT status = 'SUSPENDED' FROM actors WHERE urn = w.actor_urn) THEN 'suspended'
        -- An unused successor has no children: it may be revoked alone.
        WHEN w.parent IS NOT NULL AND (
            SELECT p.revoked_at IS NULL AND p.grace IS NULL AND (p.expires_at IS NULL OR p.expires_at >= w.expires_at)
            FROM tokens AS p WHERE p.id = w.parent) IS NOT TRUE THEN 'stale'
        WHEN NOT w.near AND of_actor.held > shared_limit(w.max_live) THEN 'again'
        -- Expired tokens do not count. Several new ones are checked alone, in turn.
        WHEN of_actor.held >= w.max_live AND (number > 1 OR w.max_live <= (
            SELECT count(*) FROM (
                SELECT 1 FROM tokens WHERE actor_urn = w.actor_urn AND revoked_at IS NULL AND expires_at IS NULL
                UNION ALL
                SELECT 1 FROM tokens WHERE actor_urn = w.actor_urn AND revoked_at IS NULL AND expires_at > moment
                LIMIT w.max_live) AS live)) THEN 'full'
        ELSE 'kept' END ORDER BY w.ordinality), count(w.retry_digest) INTO outcomes, keyed
    FROM unnest(_wanted) WITH ORDINALITY AS w
        CROSS JOIN LATERAL precondition(w.actor, w.bearer, w.version, moment)
        CROSS JOIN LATERAL (
            -- As if the others of this set were added for the same actor. If that is too many, each is checked alone.
            SELECT coalesce(sum(total), 0) + number - 1 AS held FROM token_totals
            WHERE kind = 'actor' AND urn = w.actor_urn) AS of_actor;
    IF number > 1 AND ('kept' <> ANY (outcomes) OR (
        SELECT count(DISTINCT id) < number
            OR count(DISTINCT (retry_actor, retry_digest)) FILTER (WHERE retry_digest IS NOT NULL) < keyed
        FROM unnest(_wanted))) THEN
        FOR i IN 1 .. number LOOP
            outcomes[i] := (add_locked(_wanted[i:i]))[1];
        END LOOP;
        RETURN outcomes;
    END IF;
    IF 'kept' <> ANY (outcomes) THEN
        RETURN outcomes;
    END IF;
    IF keyed > 0 THEN
        INSERT INTO retries (actor, digest, kid, token_id, created_at, expires_at)
        SELECT retry_actor, retry_digest, retry_kid, retry_token, retry_created_at, retry_expires_at
        FROM unnest(_wanted) WHERE retry_digest IS NOT NULL
        ON CONFLICT ON CONSTRAINT retries_pkey DO UPDATE SET kid = excluded.kid, token_id = excluded.token_id,
            created_at = excluded.created_at, expires_at = excluded.expires_at;
    END IF;
    INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, created_with,
        limits, parent, root, name_folded, description_folded)
    SELECT id, type, name, description, actor_urn, owner_urn, created_at, expires_at, created_with,
        limits, parent, root, name_folded, description_folded
    FROM unnest(_wanted);
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    SELECT moment, actor, bearer, action, id, peer, request, detail FROM unnest(_wanted);
    RETURN outcomes;
END $$;

-- Add tokens in one commit. Returns the outcome of each.
CREATE FUNCTION add_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _kids text[],
    _max_lives bigint[], _actions text[], _details text[], _retry_actors text[], _retry_digests text[],
    _retry_kids text[], _retry_tokens text[], _retry_created_ats bigint[], _retry_expires_ats bigint[], _ids text[],
    _types text[], _names text[], _descriptions text[], _actor_urns text[], _owner_urns text[], _created_ats bigint[],
    _expires_ats bigint[], _created_withs text[], _limits text[], _parents text[], _roots text[], _names_folded text[],
    _descriptions_folded text[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    near boolean[] := ARRAY(
        SELECT shared_limit(most) < (
            SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'actor' AND urn = actor)
        FROM unnest(_actor_urns, _max_lives) WITH ORDINALITY AS limits (actor, most, n) ORDER BY n);
BEGIN
    PERFORM lock_names(
        ARRAY['policies', 'keys', 'tokens'] || family_locks(_bearers || _parents)
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors || _actor_urns) AS urn)
            || ARRAY(SELECT 'limit:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE NOT r.near),
        ARRAY(SELECT 'token:' || id FROM unnest(_ids) AS id)
            || ARRAY(
                SELECT 'idempotency:' || digest || actor
                FROM unnest(_retry_actors, _retry_digests) AS r (actor, digest))
            || ARRAY(SELECT 'limit:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE r.near));
    PERFORM take_slot();
    RETURN add_locked(ARRAY(
        SELECT ROW(wanted.*)::new_token FROM unnest(
            _actors, _bearers, _versions, _peers, _requests, _kids, _max_lives, _actions, _details, _retry_actors,
            _retry_digests, _retry_kids, _retry_tokens, _retry_created_ats, _retry_expires_ats, _ids, _types, _names,
            _descriptions, _actor_urns, _owner_urns, _created_ats, _expires_ats, _created_withs, _limits, _parents,
            _roots, _names_folded, _descriptions_folded, near) AS wanted));
END $$;

-- A token to revoke, with the request. If `visible_to` is set, the token is unknown unless it is of that actor, or
-- `created` is true and that actor owns it, or `accounts` is true and it is of a service account. `family`: the lock
-- that was taken for it.
CREATE TYPE revocation AS (
    actor text, bearer text, version bigint, peer text, request text, id text, visible_to text, accounts boolean,
    created boolean, possession boolean, family text
);

-- Revoke tokens whose families are locked. The outcome of each is one of: revoked, at this time; already: revoked at
-- that time; unknown; stale: the precondition failed; family: others may have to be revoked with it.
CREATE FUNCTION revoke_locked(_wanted revocation[], OUT outcomes text[], OUT ats bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    number integer := cardinality(_wanted);
    moment bigint := now_ms();
    ids text[];
    alone record;
BEGIN
    SELECT array_agg(CASE
            WHEN precondition.holds IS NOT TRUE THEN 'stale'
            -- In another family: created since the lock was taken, it did not exist when the request came.
            WHEN t.id IS NULL OR 'token:' || coalesce(t.root, t.id) <> w.family OR (
                w.visible_to IS NULL OR w.visible_to = t.actor_urn OR (w.created AND w.visible_to = t.owner_urn)
                OR (w.accounts AND t.type = 'SERVICE_ACCOUNT')) IS NOT TRUE THEN 'unknown'
            WHEN t.revoked_at IS NOT NULL THEN 'already'
            WHEN t.replaces IS NOT NULL OR t.replaced_by IS NOT NULL OR (
                SELECT true FROM tokens WHERE parent = w.id AND parent IS NOT NULL AND revoked_at IS NULL LIMIT 1)
                THEN 'family'
            ELSE 'revoked' END ORDER BY w.ordinality),
        array_agg(coalesce(t.revoked_at, moment) ORDER BY w.ordinality), array_agg(w.id) INTO outcomes, ats, ids
    FROM unnest(_wanted) WITH ORDINALITY AS w
        CROSS JOIN LATERAL precondition(w.actor, w.bearer, w.version, moment)
        LEFT JOIN LATERAL (SELECT * FROM tokens WHERE tokens.id = w.id LIMIT 1) AS t ON true;
    IF number > 1 AND ('revoked' <> ANY (outcomes) OR (
        SELECT count(DISTINCT id) < number OR bool_or(bearer = ANY (ids)) FROM unnest(_wanted))) THEN
        FOR i IN 1 .. number LOOP
            alone := revoke_locked(_wanted[i:i]);
            outcomes[i] := alone.outcomes[1];
            ats[i] := alone.ats[1];
        END LOOP;
        RETURN;
    END IF;
    IF 'revoked' <> ANY (outcomes) THEN
        RETURN;
    END IF;
    PERFORM set_config('watchword.counts', 'by_statement', true);
    WITH revoked AS (
        -- Without the condition of the partial indexes: a plan made on an empty table would read one of them.
        UPDATE tokens SET revoked_at = moment WHERE id = ANY (ids) RETURNING id, actor_urn, owner_urn, name
    ), counted AS (
        INSERT INTO token_totals AS t (kind, urn, slot, total)
        SELECT kind, urn, current_slot(), -count(*) FROM revoked, LATERAL (
            VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
        GROUP BY kind, urn
        ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total
    )
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    SELECT moment, w.actor, w.bearer, 'token.revoked', w.id, w.peer, w.request,
        pg_catalog.json_strip_nulls(pg_catalog.json_build_object(
            'name', r.name, 'actorUrn', r.actor_urn, 'byPossession', CASE WHEN w.possession THEN true END))::text
    FROM unnest(_wanted) WITH ORDINALITY AS w JOIN revoked AS r ON r.id = w.id ORDER BY w.ordinality;
    PERFORM set_config('watchword.counts', '', true);
END $$;

-- Revoke tokens without relatives in one commit. Returns the outcome of each. Fails if a lock takes longer than
-- `_patience`; with '0' it waits until the statement timeout.
CREATE FUNCTION revoke_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _ids text[],
    _visible_to text[], _accounts boolean[], _created boolean[], _possession boolean[], _patience text DEFAULT '0',
    OUT outcomes text[], OUT ats bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    families text[] := family_locks(_ids);
BEGIN
    PERFORM set_config('lock_timeout', _patience, true);
    PERFORM lock_names(
        ARRAY['policies', 'tokens'] || family_locks(_bearers)
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors) AS urn),
        families);
    PERFORM take_slot();
    IF cardinality(_ids) > 1 THEN
        PERFORM 1 FROM tokens WHERE id = ANY (_ids) ORDER BY id FOR NO KEY UPDATE;
    END IF;
    SELECT locked.outcomes, locked.ats INTO outcomes, ats FROM revoke_locked(ARRAY(
        SELECT ROW(wanted.*)::revocation FROM unnest(
            _actors, _bearers, _versions, _peers, _requests, _ids, _visible_to, _accounts, _created, _possession,
            families) AS wanted)) AS locked;
END $$;

-- Revoke a token that its caller never received, whether it was added, will be added, or never will be.
CREATE FUNCTION withdraw_token(_id text, _family text, _actor text, _peer text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM lock_names(ARRAY['tokens'], ARRAY['token:' || _id, 'token:' || _family]);
    PERFORM take_slot();
    IF 'unknown' = (SELECT outcomes[1] FROM revoke_locked(ARRAY[ROW(
        _actor, NULL, NULL, _peer, '', _id, NULL, false, false, false, 'token:' || _family)::revocation])) THEN
        DELETE FROM withdrawn WHERE at < now_ms() - 86400000;
        INSERT INTO withdrawn (id, at) VALUES (_id, now_ms()) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- ---- Marks of commits ----

-- The lock lets `has_mark` wait until this transaction is committed or rolled back.
CREATE FUNCTION write_mark(_mark text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('mark:' || _mark));
    INSERT INTO commit_marks (mark, at) VALUES (_mark, now_ms());
    IF random() < 0.01 THEN
        DELETE FROM commit_marks WHERE mark = ANY (ARRAY(
            SELECT mark FROM commit_marks WHERE at < now_ms() - 3600000 LIMIT 1000 FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

CREATE FUNCTION has_mark(_mark text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('mark:' || _mark));
    RETURN EXISTS (SELECT 1 FROM commit_marks WHERE mark = _mark);
END $$;
