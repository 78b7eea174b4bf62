-- Tokens, policies, groups, actors, keys, events and operations, under the names they have in every store. Times are
-- milliseconds since 1970 by this database's clock. Text is compared byte by byte, whatever the database's locale.

-- Volatile, so that each statement of a function that runs after it sees what was committed while it ran.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The one row of facts about the store itself.
CREATE TABLE state (
    one            integer PRIMARY KEY CHECK (one = 1),
    policy_version bigint NOT NULL,
    defaults_made  integer NOT NULL,
    sealed_salt    bytea,
    -- Older events than this may have been pruned.
    events_since   bigint NOT NULL DEFAULT 0,
    -- What the settings that all instances share were at the last start, as JSON; secrets are not among them.
    settings       text COLLATE "C",
    -- What stands before the colon in the id of an operation.
    node_id        text COLLATE "C" NOT NULL
);
INSERT INTO state (one, policy_version, defaults_made, node_id)
VALUES (1, 1, 0, left(replace(gen_random_uuid()::text, '-', ''), 22));

-- Written to prove that a write can be made; apart from what every verification reads.
CREATE TABLE probes (
    one integer PRIMARY KEY CHECK (one = 1),
    at  bigint
);
INSERT INTO probes (one) VALUES (1);

CREATE TABLE tokens (
    id                 text COLLATE "C" PRIMARY KEY,
    type               text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    description        text COLLATE "C",
    actor_urn          text COLLATE "C" NOT NULL,
    owner_urn          text COLLATE "C" NOT NULL,
    created_at         bigint NOT NULL,
    expires_at         bigint,
    minted_with        text COLLATE "C",
    last_used_at       bigint,
    revoked_at         bigint,
    -- What it may be used for, as JSON; NULL: anything its actor may do.
    limits             text COLLATE "C",
    -- The token it was derived from and dies with; the oldest of its family (NULL: itself), which never changes.
    parent             text COLLATE "C",
    root               text COLLATE "C",
    -- Rotation. A successor whose grace is not NULL awaits its first use: until then it ends with the overlap
    -- (expires_at), from then on at its full end.
    replaces           text COLLATE "C",
    replaced_by        text COLLATE "C",
    replaced_at        bigint,
    grace              bigint,
    full_end           bigint,
    use_count          bigint NOT NULL DEFAULT 0,
    last_network       text COLLATE "C",
    -- In small letters, where SQL's own lower() for ASCII would not do.
    name_folded        text COLLATE "C",
    description_folded text COLLATE "C"
) WITH (fillfactor = 90);

-- The lists that must cost the same at any size, in their order.
CREATE INDEX tokens_all   ON tokens (expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
-- Who dies with a token.
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_minted ON tokens (minted_with) WHERE minted_with IS NOT NULL;
-- Successors that were never used: a signing key is published until the last of them may end.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- What may be purged, the oldest first; of those that were not revoked tokens_all tells.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;

-- Marks of transactions, kept for an hour: whether one whose commit got no answer took place. Its own number would not
-- tell: after a crash that is given again.
CREATE TABLE marks (
    mark text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL
);
CREATE INDEX marks_at ON marks (at);

-- Ids of tokens that were asked for, nobody received, and nobody knows to be kept: such a one is kept no more, should the
-- request still be on its way.
CREATE TABLE withdrawn (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL
);

-- How many tokens are not revoked: of all ('all', ''), of an actor, by an owner; the sum over the slots. Each transaction
-- that counts has a slot of its own while it lasts (`own_slot`), so that none waits for another's commit at a row, nor
-- two for each other.
CREATE TABLE token_totals (
    kind  text COLLATE "C" NOT NULL,
    urn   text COLLATE "C" NOT NULL,
    slot  integer NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (kind, urn, slot)
) WITH (fillfactor = 60);

CREATE FUNCTION own_slot_number() RETURNS integer LANGUAGE sql STABLE
AS $$ SELECT coalesce(nullif(current_setting('watchword.slot', true), ''), '0')::integer $$;

CREATE FUNCTION count_token() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    step bigint := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
    slot integer := own_slot_number();
    changed tokens;
BEGIN
    IF TG_OP = 'DELETE' THEN
        changed := OLD;
    ELSE
        changed := NEW;
    END IF;
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    VALUES ('actor', changed.actor_urn, slot, step), ('all', '', slot, step), ('owner', changed.owner_urn, slot, step)
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;

CREATE TRIGGER tokens_counted AFTER INSERT ON tokens
    FOR EACH ROW WHEN (NEW.revoked_at IS NULL) EXECUTE FUNCTION count_token();
CREATE TRIGGER tokens_uncounted AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (
        OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL
        -- `end_tokens` counts what it ends, once for all.
        AND current_setting('watchword.counts', true) IS DISTINCT FROM 'together')
    EXECUTE FUNCTION count_token();
CREATE TRIGGER tokens_purged AFTER DELETE ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL) EXECUTE FUNCTION count_token();

-- A revocation is for ever.
CREATE FUNCTION refuse_revival() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revoked token stays revoked';
END $$;
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL) EXECUTE FUNCTION refuse_revival();

CREATE TABLE policies (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    state       text COLLATE "C" NOT NULL,
    privileges  text COLLATE "C" NOT NULL,
    users       text COLLATE "C" NOT NULL,
    groups      text COLLATE "C" NOT NULL,
    all_users   integer NOT NULL,
    source      text COLLATE "C" NOT NULL DEFAULT 'API'
);

CREATE TABLE groups (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    members     bigint NOT NULL DEFAULT 0
);

CREATE TABLE group_members (
    actor_urn text COLLATE "C" NOT NULL,
    group_urn text COLLATE "C" NOT NULL REFERENCES groups (urn) ON DELETE CASCADE,
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

-- Only actors that were ever suspended have a row.
CREATE TABLE actors (
    urn        text COLLATE "C" PRIMARY KEY,
    status     text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL,
    changed_by text COLLATE "C" NOT NULL
);

-- A deleted one keeps its row, so that its urn stays dead.
CREATE TABLE service_accounts (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    created_at  bigint NOT NULL,
    created_by  text COLLATE "C" NOT NULL,
    deleted_at  bigint
);
CREATE INDEX service_accounts_name ON service_accounts (name, urn) WHERE deleted_at IS NULL;

-- What was asked under an Idempotency-Key: nothing of it is secret.
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

CREATE TABLE keys (
    seq             bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kid             text COLLATE "C" NOT NULL UNIQUE,
    public          bytea NOT NULL,
    sealed_private  bytea NOT NULL,
    created_at      bigint NOT NULL,
    retired_at      bigint,
    published_until bigint
);

-- The one that will sign after the next rotation: published already, used for nothing yet.
CREATE TABLE next_key (
    one            integer PRIMARY KEY CHECK (one = 1),
    kid            text COLLATE "C" NOT NULL,
    public         bytea NOT NULL,
    sealed_private bytea NOT NULL,
    created_at     bigint NOT NULL
);

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

CREATE TABLE operations (
    number          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    -- Which search index: '' for the one all instances share, else the embedded one of one instance.
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
    -- Nothing is written to it under a lower fence than this.
    fence           bigint NOT NULL DEFAULT 0,
    held_until      bigint NOT NULL DEFAULT 0
);
-- Of each index at most one at a time.
CREATE UNIQUE INDEX operations_active ON operations (home, index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');

-- What a write rests on, and what it changes, it holds until its commit. Shared by those who rely on it, alone by those
-- who change it. All in one call, in the order of their numbers, so that no two writes wait for each other.
--
-- `policies`, `keys`, `actor:…`   what a decision rests on.
-- `token:…`   a family of tokens, under the id of its oldest, which never changes and so may be read before it is held.
--     Who writes by a bearer shares the bearer's family; so does who derives from it. Who replaces a token, first uses a
--     successor or revokes has the family alone: all that dies with a token, but for a cascade, is of its family. Who
--     keeps a new token has its id alone too, against whoever withdraws it.
-- `tokens`   all families at once: alone to those who end tokens of many (a cascade, an ending of many, a deleted
--     account), shared by everybody who holds a family, or changes any row of a token.
-- `room:…`   an actor's limit. `retry:…` a request under a key: alone, so that of two under one key the later sees the
--     earlier. `index:…` operations.
--
-- After these a transaction takes its slot to count in, after that rows of tokens, in the order of their ids unless it
-- has `tokens` alone. Nobody takes them in another order, so nobody waits in a circle.
CREATE FUNCTION lock_key(_name text) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.hashtextextended(current_schema()::text || '/' || _name, 0::bigint) $$;

CREATE FUNCTION hold(_shared text[], _alone text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lock record;
BEGIN
    FOR lock IN
        SELECT key, bool_or(alone) AS alone FROM (
            SELECT lock_key(name) AS key, false AS alone FROM unnest(_shared) AS name WHERE name IS NOT NULL
            UNION ALL
            SELECT lock_key(name), true FROM unnest(_alone) AS name) AS wanted
        GROUP BY key ORDER BY key
    LOOP
        IF lock.alone THEN
            PERFORM pg_advisory_xact_lock(lock.key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(lock.key);
        END IF;
    END LOOP;
END $$;

-- The id of the oldest of its family; of a token that is not there, its own.
CREATE FUNCTION family_of(_id text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT root FROM tokens WHERE id = _id), _id);
END $$;

-- Rows of tokens, until the commit: in one order, so that no two that change the same ones wait for each other.
CREATE FUNCTION hold_rows(_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM tokens WHERE id = ANY (_ids) ORDER BY id FOR NO KEY UPDATE;
END $$;

-- A slot to count in that no other transaction has; of all that is held the last but for rows, so that whoever has one
-- gets to its end.
CREATE FUNCTION own_slot() RETURNS void LANGUAGE plpgsql AS $$
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

-- Whether what a decision rested on still holds. No version: the service itself, which has nothing to prove.
-- These are in plpgsql, which keeps the plans of a session; a function in plain SQL would be planned at each call.
CREATE FUNCTION proven(_actor text, _bearer text, _version bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN _version IS NULL OR (
        (SELECT policy_version FROM state WHERE one = 1) = _version
        AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = _actor AND status = 'SUSPENDED')
        AND (_bearer IS NULL OR EXISTS (
            SELECT 1 FROM tokens WHERE id = _bearer AND actor_urn = _actor AND revoked_at IS NULL
                AND (expires_at IS NULL OR expires_at > now_ms()))));
END $$;

CREATE FUNCTION total_of(_kind text, _urn text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = _kind AND urn = _urn);
END $$;

-- Why a token may not be kept, besides its warrant and its room: repeated (under this key there is one of less than a day
-- ago), stale, unknown (its service account), suspended; NULL: it may. `_end` is when it ends at the latest.
CREATE FUNCTION issue_fault(
    _kid text, _type text, _actor_urn text, _parent text, _end bigint, _retry_actor text, _retry_digest text
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF _retry_digest IS NOT NULL AND EXISTS (
        SELECT 1 FROM retries
        WHERE actor = _retry_actor AND digest = _retry_digest AND created_at > now_ms() - 86400000) THEN
        RETURN 'repeated';
    END IF;
    IF (SELECT kid FROM keys ORDER BY seq DESC LIMIT 1) IS DISTINCT FROM _kid THEN
        RETURN 'stale';
    END IF;
    IF _type = 'SERVICE_ACCOUNT'
        AND NOT EXISTS (SELECT 1 FROM service_accounts WHERE urn = _actor_urn AND deleted_at IS NULL) THEN
        RETURN 'unknown';
    END IF;
    IF EXISTS (SELECT 1 FROM actors WHERE urn = _actor_urn AND status = 'SUSPENDED') THEN
        RETURN 'suspended';
    END IF;
    -- A successor that awaits its first use has no children: it may be taken back alone.
    IF _parent IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM tokens
        WHERE id = _parent AND revoked_at IS NULL AND grace IS NULL AND (expires_at IS NULL OR expires_at >= _end)) THEN
        RETURN 'stale';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION keep_retry(
    _actor text, _digest text, _kid text, _token_id text, _created_at bigint, _expires_at bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO retries (actor, digest, kid, token_id, created_at, expires_at)
    VALUES (_actor, _digest, _kid, _token_id, _created_at, _expires_at)
    ON CONFLICT ON CONSTRAINT retries_pkey DO UPDATE SET kid = excluded.kid, token_id = excluded.token_id,
        created_at = excluded.created_at, expires_at = excluded.expires_at;
END $$;

-- Keep one new token of those that `add_tokens` holds the locks for. Says what became of it: kept; what `issue_fault`
-- says; full; withdrawn; there: it was kept before; again: the number of the actor's tokens has come near the limit
-- meanwhile.
CREATE FUNCTION keep_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _kid text, _max_live bigint, _action text,
    _detail text, _retry_actor text, _retry_digest text, _retry_kid text, _retry_token text, _retry_created_at bigint,
    _retry_expires_at bigint, _id text, _type text, _name text, _description text, _actor_urn text, _owner_urn text,
    _created_at bigint, _expires_at bigint, _minted_with text, _limits text, _parent text, _root text,
    _name_folded text, _description_folded text, _near boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
    live bigint;
    moment bigint := now_ms(); -- as a value, which an index can be asked for
    fault text;
BEGIN
    IF EXISTS (SELECT 1 FROM tokens WHERE id = _id) THEN
        RETURN 'there';
    END IF;
    IF EXISTS (SELECT 1 FROM withdrawn WHERE id = _id) THEN
        RETURN 'withdrawn';
    END IF;
    IF NOT proven(_actor, _bearer, _version) THEN
        RETURN 'stale';
    END IF;
    fault := issue_fault(_kid, _type, _actor_urn, _parent, _expires_at, _retry_actor, _retry_digest);
    IF fault IS NOT NULL THEN
        RETURN fault;
    END IF;
    held := total_of('actor', _actor_urn);
    IF NOT _near AND held > room(_max_live) THEN
        RETURN 'again';
    END IF;
    IF held >= _max_live THEN
        SELECT count(*) INTO live FROM (
            SELECT 1 FROM tokens WHERE actor_urn = _actor_urn AND revoked_at IS NULL AND expires_at IS NULL
            UNION ALL
            SELECT 1 FROM tokens WHERE actor_urn = _actor_urn AND revoked_at IS NULL AND expires_at > moment
            LIMIT _max_live) AS those;
        IF live >= _max_live THEN
            RETURN 'full';
        END IF;
    END IF;
    IF _retry_digest IS NOT NULL THEN
        PERFORM keep_retry(
            _retry_actor, _retry_digest, _retry_kid, _retry_token, _retry_created_at, _retry_expires_at);
    END IF;
    INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
        limits, parent, root, name_folded, description_folded)
    VALUES (_id, _type, _name, _description, _actor_urn, _owner_urn, _created_at, _expires_at, _minted_with,
        _limits, _parent, _root, _name_folded, _description_folded);
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    VALUES (moment, _actor, _bearer, _action, _id, _peer, _request, _detail);
    RETURN 'kept';
END $$;

-- Up to how many tokens an actor's creates share the lock of its limit; beyond, each counts alone. The rest is more than
-- can be under way at once.
CREATE FUNCTION room(_max_live bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT _max_live - greatest(1000, _max_live / 2) $$;

-- Keep new tokens that wait together: each judged by itself, all in one commit.
CREATE FUNCTION add_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _kids text[],
    _max_lives bigint[], _actions text[], _details text[], _retry_actors text[], _retry_digests text[],
    _retry_kids text[], _retry_tokens text[], _retry_created_ats bigint[], _retry_expires_ats bigint[], _ids text[],
    _types text[], _names text[], _descriptions text[], _actor_urns text[], _owner_urns text[], _created_ats bigint[],
    _expires_ats bigint[], _minted_withs text[], _limits text[], _parents text[], _roots text[], _names_folded text[],
    _descriptions_folded text[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    near boolean[];
    outcomes text[] := '{}';
BEGIN
    SELECT array_agg(total_of('actor', actor) > room(most) ORDER BY n) INTO near
    FROM unnest(_actor_urns, _max_lives) WITH ORDINALITY AS limits (actor, most, n);
    PERFORM hold(
        ARRAY['policies', 'keys', 'tokens']
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors || _actor_urns) AS urn)
            || ARRAY(SELECT 'token:' || family_of(id) FROM (
                SELECT DISTINCT bearer FROM unnest(_bearers || _parents) AS bearer) AS makers (id))
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE NOT r.near),
        ARRAY(SELECT 'token:' || id FROM unnest(_ids) AS id)
            || ARRAY(SELECT 'retry:' || digest || actor FROM unnest(_retry_actors, _retry_digests) AS r (actor, digest)
                WHERE digest IS NOT NULL)
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE r.near));
    PERFORM own_slot();
    FOR i IN 1 .. cardinality(_ids) LOOP
        outcomes := outcomes || keep_token(
            _actors[i], _bearers[i], _versions[i], _peers[i], _requests[i], _kids[i], _max_lives[i], _actions[i],
            _details[i], _retry_actors[i], _retry_digests[i], _retry_kids[i], _retry_tokens[i], _retry_created_ats[i],
            _retry_expires_ats[i], _ids[i], _types[i], _names[i], _descriptions[i], _actor_urns[i], _owner_urns[i],
            _created_ats[i], _expires_ats[i], _minted_withs[i], _limits[i], _parents[i], _roots[i], _names_folded[i],
            _descriptions_folded[i], near[i]);
    END LOOP;
    RETURN outcomes;
END $$;

-- Who dies with these tokens, themselves included, at most so many: what was derived from them; the partner of a rotation
-- while the older of the two is alive; with a cascade, what was minted with them. One step follows one index for one
-- token, whatever a session's plans are made by.
CREATE FUNCTION dying(_ids text[], _now bigint, _cascade boolean, _expired boolean, _most bigint) RETURNS text[] LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE family (id, replaces, replaced_by, alive, dies) AS (
            SELECT t.id, t.replaces, t.replaced_by,
                t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > _now),
                t.revoked_at IS NULL AND (_expired OR t.expires_at IS NULL OR t.expires_at > _now)
            FROM tokens AS t WHERE t.id = ANY (_ids) AND (_cascade OR t.revoked_at IS NULL)
            UNION
            SELECT other.id, other.replaces, other.replaced_by, other.alive, other.alive
            FROM family AS f CROSS JOIN LATERAL (
                SELECT t.id, t.replaces, t.replaced_by, true AS alive FROM tokens AS t
                WHERE t.parent = f.id AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > _now)
                UNION ALL
                SELECT t.id, t.replaces, t.replaced_by,
                    t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > _now) FROM tokens AS t
                WHERE (f.alive OR _cascade) AND t.id = f.replaced_by
                UNION ALL
                SELECT t.id, t.replaces, t.replaced_by, true FROM tokens AS t
                WHERE f.alive AND t.id = f.replaces AND t.revoked_at IS NULL
                    AND (t.expires_at IS NULL OR t.expires_at > _now)
                UNION ALL
                SELECT t.id, t.replaces, t.replaced_by,
                    t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > _now) FROM tokens AS t
                WHERE _cascade AND t.minted_with = f.id) AS other)
        SELECT DISTINCT id FROM family WHERE dies LIMIT _most);
END $$;

-- Revoke these tokens, each with its event; returns how many. Who has not all families alone has their own.
CREATE FUNCTION end_tokens(
    _ids text[], _now bigint, _actor text, _bearer text, _peer text, _request text, _why text,
    _possession boolean DEFAULT false
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM own_slot();
    PERFORM set_config('watchword.counts', 'together', true);
    WITH ended AS (
        -- Not in the words of the partial indexes: a plan that was made on an empty table would go through one of them.
        UPDATE tokens SET revoked_at = _now WHERE id = ANY (_ids) AND coalesce(revoked_at, 0) = 0
        RETURNING id, actor_urn, owner_urn
    ), told AS (
        INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
        SELECT _now, _actor, _bearer, 'token.revoked', id, _peer, _request,
            pg_catalog.json_strip_nulls(pg_catalog.json_build_object('actorUrn', actor_urn,
                'with', CASE WHEN _why <> id THEN _why END, 'byPossession', CASE WHEN _possession THEN true END))::text
        FROM ended
    ), counted AS (
        INSERT INTO token_totals AS t (kind, urn, slot, total)
        SELECT kind, urn, own_slot_number(), -count(*) FROM ended, LATERAL (
            VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
        GROUP BY kind, urn
        ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total
    )
    SELECT count(*) INTO number FROM ended;
    PERFORM set_config('watchword.counts', '', true);
    RETURN number;
END $$;

-- Revoke, and say when: (revoked, when), (already, when it was), (unknown, null), (stale, null), (many, null) where more
-- than `_most` would die. With `_reach`, a token that is neither of nor by that actor is unknown, but with `_accounts`
-- those of service accounts. Its family is held.
CREATE FUNCTION revoke_held(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _reach text, _accounts boolean,
    _created boolean, _most bigint, _possession boolean, OUT outcome text, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    token tokens;
    ids text[];
BEGIN
    IF NOT proven(_actor, _bearer, _version) THEN
        outcome := 'stale';
        RETURN;
    END IF;
    SELECT * INTO token FROM tokens WHERE id = _id;
    IF token.id IS NULL OR NOT (
        _reach IS NULL OR _reach = token.actor_urn OR (_created AND _reach = token.owner_urn)
        OR (_accounts AND token.type = 'SERVICE_ACCOUNT')) THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    IF token.revoked_at IS NOT NULL THEN
        outcome := 'already';
        at := token.revoked_at;
        RETURN;
    END IF;
    at := now_ms();
    ids := dying(ARRAY[_id], at, false, true, _most + 1);
    IF cardinality(ids) > _most THEN
        outcome := 'many';
        at := NULL;
        RETURN;
    END IF;
    PERFORM own_slot();
    IF cardinality(ids) > 1 THEN
        PERFORM hold_rows(ids);
    END IF;
    PERFORM end_tokens(ids, at, _actor, _bearer, _peer, _request, _id, _possession);
    outcome := 'revoked';
END $$;

CREATE FUNCTION revoke_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _reach text, _accounts boolean,
    _created boolean, _most bigint, _possession boolean, OUT outcome text, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    family text := family_of(_id);
BEGIN
    PERFORM hold(
        ARRAY['policies', 'actor:' || _actor, 'tokens', 'token:' || family_of(_bearer)], ARRAY['token:' || family]);
    IF family_of(_id) <> family THEN
        outcome := 'unknown'; -- it came into a family of others since we looked: when we were asked it was not there
        RETURN;
    END IF;
    SELECT held.outcome, held.at INTO outcome, at
    FROM revoke_held(_actor, _bearer, _version, _peer, _request, _id, _reach, _accounts, _created, _most, _possession)
    AS held;
END $$;

-- End a token that nobody received, whether it was kept, is about to be, or never will. Nothing dies with it.
CREATE FUNCTION withdraw_token(_id text, _family text, _actor text, _peer text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold(ARRAY['tokens'], ARRAY['token:' || _id, 'token:' || _family]);
    IF (SELECT outcome FROM revoke_held(_actor, NULL, NULL, _peer, '', _id, NULL, false, false, 1, false)) = 'unknown' THEN
        DELETE FROM withdrawn WHERE at < now_ms() - 86400000;
        INSERT INTO withdrawn (id, at) VALUES (_id, now_ms()) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- The first use of a successor: from now on it lives its own life, and the one it replaces, with all derived from it, ends
-- after the grace. Those that await their own first use must not live longer by it either.
CREATE FUNCTION note_first_use(
    _actor text, _bearer text, _peer text, _request text, _id text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    successor tokens;
    line text[];
    moment bigint;
    ending bigint;
BEGIN
    PERFORM hold(ARRAY['tokens'], ARRAY['token:' || family_of(_id)]);
    moment := now_ms();
    SELECT * INTO successor FROM tokens
    WHERE id = _id AND grace IS NOT NULL AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > moment);
    IF successor.id IS NULL THEN
        RETURN;
    END IF;
    ending := moment + successor.grace;
    line := ARRAY(
        WITH RECURSIVE line (id) AS (
            SELECT successor.replaces
            UNION
            SELECT t.id FROM line AS l JOIN tokens AS t ON t.parent = l.id
            WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > moment))
        SELECT id FROM line);
    PERFORM hold_rows(line || _id);
    UPDATE tokens SET expires_at = full_end, grace = NULL WHERE id = _id;
    UPDATE tokens SET replaced_at = moment WHERE id = successor.replaces;
    UPDATE tokens SET expires_at = least(expires_at, ending),
        full_end = CASE WHEN grace IS NULL THEN full_end ELSE least(full_end, ending) END
    WHERE id = ANY (line) AND revoked_at IS NULL AND (
        expires_at IS NULL OR expires_at > ending
        OR (grace IS NOT NULL AND (full_end IS NULL OR full_end > ending)));
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    VALUES (moment, _actor, _bearer, 'token.replaced', successor.replaces, _peer, _request,
        pg_catalog.json_build_object('successor', _id, 'endsBy', ending)::text);
END $$;

-- Counters of use grow; a time is never moved back, and the network is that of the latest use.
CREATE FUNCTION note_uses(_ids text[], _lasts bigint[], _counts bigint[], _networks text[]) RETURNS void
LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM hold(ARRAY['tokens'], '{}');
    PERFORM hold_rows(_ids);
    UPDATE tokens AS t SET use_count = t.use_count + seen.uses,
        last_network = CASE WHEN coalesce(t.last_used_at, 0) <= seen.last THEN seen.network ELSE t.last_network END,
        last_used_at = greatest(t.last_used_at, seen.last)
    FROM unnest(_ids, _lasts, _counts, _networks) AS seen (id, last, uses, network) WHERE t.id = seen.id;
END $$;

-- Remove tokens that were dead before then, at most so many; returns how many. It waits for no row of theirs: what another
-- is at work on is left for the next time. What one of them minted counts as minted with whatever that one was, so that a
-- cascade finds it still.
CREATE FUNCTION purge_tokens(_before bigint, _most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ids text[];
    made text[];
BEGIN
    PERFORM hold(ARRAY['tokens'], '{}');
    PERFORM own_slot();
    ids := ARRAY(
        SELECT id FROM tokens WHERE revoked_at IS NOT NULL AND revoked_at < _before ORDER BY revoked_at LIMIT _most
        FOR UPDATE SKIP LOCKED);
    ids := ids || ARRAY(
        SELECT id FROM tokens WHERE revoked_at IS NULL AND expires_at < _before
        ORDER BY expires_at NULLS FIRST LIMIT _most - cardinality(ids)
        FOR UPDATE SKIP LOCKED);
    -- Of a line of makers that all go at once the next is looked for, as far as makers of makers go.
    FOR i IN 1 .. 100 LOOP
        made := ARRAY(SELECT id FROM tokens WHERE minted_with = ANY (ids) AND id <> ALL (ids));
        EXIT WHEN cardinality(made) = 0;
        PERFORM hold_rows(made);
        UPDATE tokens AS t SET minted_with = maker.minted_with FROM tokens AS maker
        WHERE t.id = ANY (made) AND maker.id = t.minted_with AND t.minted_with = ANY (ids);
    END LOOP;
    DELETE FROM tokens WHERE id = ANY (ids);
    RETURN cardinality(ids);
END $$;

CREATE FUNCTION purge_retries(_most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    over bigint := now_ms() - 86400000;
    number bigint;
BEGIN
    DELETE FROM retries AS r USING (
        SELECT actor, digest FROM retries WHERE created_at <= over ORDER BY created_at LIMIT _most
        FOR UPDATE SKIP LOCKED) AS gone
    WHERE r.actor = gone.actor AND r.digest = gone.digest;
    GET DIAGNOSTICS number = ROW_COUNT;
    RETURN number;
END $$;

-- Leave this transaction's mark, and hold it until the end: whoever looks for it waits until it is there or never will be.
CREATE FUNCTION leave_mark(_mark text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('mark:' || _mark));
    INSERT INTO marks (mark, at) VALUES (_mark, now_ms());
    IF random() < 0.01 THEN
        DELETE FROM marks WHERE mark = ANY (ARRAY(
            SELECT mark FROM marks WHERE at < now_ms() - 3600000 LIMIT 1000 FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

CREATE FUNCTION has_mark(_mark text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('mark:' || _mark));
    RETURN EXISTS (SELECT 1 FROM marks WHERE mark = _mark);
END $$;
