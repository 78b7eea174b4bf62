-- The schema of a store, in the words of PostgreSQL. Times are milliseconds since 1970; lists and objects are stored as
-- JSON. `database/migrations.py` translates it for SQLite, and adds to PostgreSQL's texts the collation that compares them
-- byte by byte. What only one of the databases has is in the file beside this one.

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
    -- The settings at the last start that all instances share, without secrets.
    settings       text,
    -- The part before the colon in the id of an operation.
    node_id        text NOT NULL
);
INSERT INTO state (one, policy_version, defaults_made, node_id)
VALUES (1, 1, 0, left(replace(gen_random_uuid()::text, '-', ''), 22));

-- Updated by the readiness probe. Apart from `state`, which every verification reads.
CREATE TABLE probes (
    one    integer PRIMARY KEY CHECK (one = 1),
    at     bigint,
    -- On PostgreSQL, filled for a moment when the disk was full, to see whether the table can grow by a page.
    filler text
);
INSERT INTO probes (one) VALUES (1);

-- ---- Tokens ----

-- On SQLite its key begins with the actor: a list of one actor's tokens reads few pages of the file.
CREATE TABLE tokens (
    id           text NOT NULL,
    type         text NOT NULL,
    name         text NOT NULL,
    description  text,
    actor_urn    text NOT NULL,
    owner_urn    text NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    -- The token that created it.
    created_with text,
    last_used_at bigint,
    revoked_at   bigint,
    -- NULL: none.
    limits       text,
    -- The token it was derived from, which it is revoked and expires with.
    parent       text,
    -- The oldest token of its family; NULL: itself. It never changes.
    root         text,
    -- Rotation. A successor has a grace until its first use: it expires at expires_at, with the overlap. Its first use
    -- sets expires_at to full_end and grace to NULL.
    replaces     text,
    replaced_by  text,
    replaced_at  bigint,
    grace        bigint,
    full_end     bigint,
    use_count    bigint NOT NULL DEFAULT 0,
    last_network text,
    PRIMARY KEY (id)
) WITH (fillfactor = 90);

-- In the order of lists: a page costs the same at any size.
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_created_with ON tokens (created_with) WHERE created_with IS NOT NULL;
-- Unused successors: a signing key is published until the last of them may expire.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- To purge revoked tokens, the oldest first. Expired ones are read from tokens_all.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;

-- Requests with an Idempotency-Key. No column is secret.
CREATE TABLE retries (
    actor      text NOT NULL,
    digest     text NOT NULL,
    kid        text NOT NULL,
    token_id   text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    PRIMARY KEY (actor, digest)
);
CREATE INDEX retries_created ON retries (created_at);

-- Tokens imported from DataHub, and when they expire there. A row is kept until then, also after its token was purged:
-- a revoked token must not be imported again.
CREATE TABLE imported_tokens (
    id         text PRIMARY KEY,
    expires_at bigint
);
CREATE INDEX imported_tokens_end ON imported_tokens (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE token_networks (
    token_id text NOT NULL,
    network  text NOT NULL,
    first_at bigint NOT NULL,
    PRIMARY KEY (token_id, network)
);

-- Uses by day. Days are since 1970, in UTC. journal/day_counts.py has the number of days that are kept.
CREATE TABLE token_uses (
    token_id text NOT NULL,
    day      bigint NOT NULL,
    uses     bigint NOT NULL,
    PRIMARY KEY (token_id, day)
) WITH (fillfactor = 80);
CREATE INDEX token_uses_day ON token_uses (day);

-- Sums over the whole store: 'uses', and the actions of rejected requests.
CREATE TABLE day_counts (
    kind   text NOT NULL,
    day    bigint NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (kind, day)
) WITH (fillfactor = 10);

-- ---- Policies and groups ----
-- In this and later tables, set_name is the policy set that declares the row; NULL: none does.

CREATE TABLE policies (
    urn         text PRIMARY KEY,
    name        text NOT NULL,
    description text,
    state       text NOT NULL,
    privileges  text NOT NULL,
    users       text NOT NULL,
    groups      text NOT NULL,
    all_users   integer NOT NULL,
    source      text NOT NULL DEFAULT 'API',
    set_name    text,
    -- Scopes of other services.
    scopes      text NOT NULL DEFAULT '[]'
);

CREATE TABLE groups (
    urn         text PRIMARY KEY,
    name        text NOT NULL,
    description text,
    members     bigint NOT NULL DEFAULT 0,
    set_name    text
);

CREATE TABLE group_members (
    actor_urn text NOT NULL,
    group_urn text NOT NULL,
    -- 1: a group of the identity provider, set at sign-in. It has no row in `groups`. No group there has its urn.
    external  integer NOT NULL DEFAULT 0,
    PRIMARY KEY (actor_urn, group_urn)
);
CREATE INDEX group_members_group ON group_members (group_urn, actor_urn);

-- Gateways of other services verify tokens for an audience of their own. Declared by policy files.
CREATE TABLE resources (
    name     text PRIMARY KEY,
    id       text NOT NULL UNIQUE,
    set_name text NOT NULL
);

-- ---- Actors ----

-- An actor has a row once it has a name, an address or another status. changed_at and changed_by are of the status;
-- NULL: it never changed.
CREATE TABLE actors (
    urn          text PRIMARY KEY,
    status       text NOT NULL DEFAULT 'ACTIVE',
    changed_at   bigint,
    changed_by   text,
    display_name text,
    email        text
);

-- A deleted account keeps its row, so that its urn is never used again.
CREATE TABLE service_accounts (
    urn         text PRIMARY KEY,
    name        text NOT NULL,
    description text,
    created_at  bigint NOT NULL,
    created_by  text NOT NULL,
    deleted_at  bigint,
    set_name    text
);
CREATE INDEX service_accounts_name ON service_accounts (name, urn) WHERE deleted_at IS NULL;

-- When each actor may make a whole burst of changes again.
CREATE TABLE change_rates (
    actor_urn text PRIMARY KEY,
    full_at   bigint NOT NULL
);

-- The actor of each user of the identity provider. The first sign-in stores it; an administrator may change it.
CREATE TABLE identities (
    issuer       text NOT NULL,
    subject      text NOT NULL,
    actor_urn    text NOT NULL UNIQUE,
    linked_at    bigint NOT NULL,
    signed_in_at bigint,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_signed_in ON identities (signed_in_at);

-- ---- Signing keys ----

CREATE TABLE keys (
    seq             integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kid             text NOT NULL UNIQUE,
    public          bytea NOT NULL,
    sealed_private  bytea NOT NULL,
    created_at      bigint NOT NULL,
    retired_at      bigint,
    published_until bigint
);

-- The key that signs after the next rotation. It is published already.
CREATE TABLE next_key (
    one            integer PRIMARY KEY CHECK (one = 1),
    kid            text NOT NULL,
    public         bytea NOT NULL,
    sealed_private bytea NOT NULL,
    created_at     bigint NOT NULL
);

-- ---- Sessions and devices ----
-- Not copied to another store: people sign in again.

-- Sessions of browsers. The id is the digest of the cookie. Without a token, the actor was chosen in local mode or
-- signed in at the identity provider; the latter has an issuer, a subject and often the provider's session id.
CREATE TABLE sessions (
    id         text PRIMARY KEY,
    actor_urn  text NOT NULL,
    token_id   text,
    created_at bigint NOT NULL,
    ends_at    bigint NOT NULL,
    seen_at    bigint NOT NULL DEFAULT 0,
    peer       text NOT NULL DEFAULT '',
    issuer     text,
    subject    text,
    sid        text
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
    id            text PRIMARY KEY,
    user_code     text NOT NULL UNIQUE,
    client        text NOT NULL,
    host          text,
    scopes        text,
    peer          text NOT NULL,
    origin        text NOT NULL,
    -- Undecided terminals are counted by their IPv6 /56 and by their network too; decided ones by who decided.
    site          text NOT NULL DEFAULT '',
    network       text NOT NULL DEFAULT '',
    created_at    bigint NOT NULL,
    ends_at       bigint NOT NULL,
    poll_interval bigint NOT NULL,
    polled_at     bigint,
    status        text NOT NULL,
    actor_urn     text,
    -- An approval ends with the session in which it was given.
    session_id    text
);
CREATE INDEX devices_end     ON devices (ends_at);
CREATE INDEX devices_network ON devices (status, network, ends_at);
CREATE INDEX devices_decided ON devices (actor_urn) WHERE status <> 'PENDING';

-- ---- Events ----

CREATE TABLE events (
    seq        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text NOT NULL,
    bearer_id  text,
    action     text NOT NULL,
    target     text NOT NULL,
    peer       text NOT NULL,
    request_id text NOT NULL,
    detail     text NOT NULL
);
CREATE INDEX events_at     ON events (at, seq);
CREATE INDEX events_actor  ON events (actor, at, seq);
CREATE INDEX events_action ON events (action, at, seq);
CREATE INDEX events_target ON events (target, at, seq);
-- A repeated failure with the same token is not written: this index finds the earlier event.
CREATE INDEX events_failed ON events (bearer_id, at) WHERE action = 'authentication.failed' AND bearer_id IS NOT NULL;

-- The last event that each reader processed, and the process that holds the lease to read.
CREATE TABLE event_cursors (
    name       text PRIMARY KEY,
    seq        bigint NOT NULL,
    holder     text NOT NULL DEFAULT '',
    held_until bigint NOT NULL DEFAULT 0
);

-- ---- Operations in the search index ----
-- In this and later tables, home is '' for the shared index, otherwise the embedded index of one instance.

CREATE TABLE operations (
    number          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    home            text NOT NULL DEFAULT '',
    index_name      text NOT NULL,
    state           text NOT NULL,
    plan            text NOT NULL,
    work            text NOT NULL,
    asked_by        text NOT NULL,
    asked_at        bigint NOT NULL,
    started_at      bigint,
    changed_at      bigint,
    finished_at     bigint,
    cancel_asked_at bigint,
    cancel_asked_by text,
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
    series     text PRIMARY KEY,
    rule       text NOT NULL,
    set_name   text,
    changed_at bigint NOT NULL,
    changed_by text NOT NULL
);

CREATE TABLE retention_holds (
    series  text NOT NULL,
    reason  text NOT NULL,
    set_by  text NOT NULL,
    set_at  bigint NOT NULL,
    -- 1: declared by the rule of the series, and released with it. 0: set by hand.
    by_rule integer NOT NULL,
    PRIMARY KEY (series, by_rule)
);

CREATE TABLE retention_runs (
    number      bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    home        text NOT NULL,
    series      text NOT NULL,
    due_at      bigint NOT NULL,
    state       text NOT NULL,
    rule        text NOT NULL,
    plan        text,
    asked_by    text NOT NULL,
    made_at     bigint NOT NULL,
    operation   bigint,
    approved_by text,
    approved_at bigint,
    error       text
);
-- One run for each time of a schedule, on any number of instances.
CREATE UNIQUE INDEX retention_runs_due ON retention_runs (home, series, due_at);
CREATE INDEX retention_runs_made ON retention_runs (made_at);
CREATE INDEX retention_runs_waiting ON retention_runs (home, series) WHERE state = 'WAITING';

CREATE TABLE series_sizes (
    home   text NOT NULL,
    series text NOT NULL,
    -- Days since 1970, in UTC.
    day    bigint NOT NULL,
    rows   bigint NOT NULL,
    bytes  bigint NOT NULL,
    PRIMARY KEY (home, series, day)
);

-- ---- Webhooks ----

CREATE TABLE webhooks (
    id              text PRIMARY KEY,
    name            text NOT NULL,
    url             text NOT NULL,
    actions         text NOT NULL,
    actors          text NOT NULL,
    groups          text NOT NULL,
    state           text NOT NULL,
    sealed_secret   bytea NOT NULL,
    created_at      bigint NOT NULL,
    created_by      text NOT NULL,
    -- The secret before the last rotation also signs until previous_until.
    sealed_previous bytea,
    previous_until  bigint,
    -- Only events with a higher number are sent.
    after_seq       bigint NOT NULL,
    failing_since   bigint,
    failures        bigint NOT NULL,
    due_at          bigint NOT NULL,
    dropped         bigint NOT NULL,
    stopped_because text,
    set_name        text
);

CREATE TABLE webhook_deliveries (
    number       bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    webhook      text NOT NULL,
    message      text NOT NULL,
    event_seq    bigint,
    type         text NOT NULL,
    payload      text NOT NULL,
    state        text NOT NULL,
    made_at      bigint NOT NULL,
    delivered_at bigint,
    -- The latest ones.
    attempts     text NOT NULL
);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook, number);
CREATE INDEX webhook_deliveries_made ON webhook_deliveries (made_at);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook, number) WHERE state = 'WAITING';

-- ---- Mail ----

-- The notices that were sent before a token expires, by the number of days before.
CREATE TABLE expiry_notices (
    token_id text NOT NULL,
    days     bigint NOT NULL,
    PRIMARY KEY (token_id, days)
);

-- One row is one mail. Items are added to a digest until the first attempt to send it.
CREATE TABLE mails (
    number    bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kind      text NOT NULL,
    recipient text NOT NULL,
    address   text NOT NULL,
    -- The content, without tokens and secrets.
    items     text NOT NULL,
    -- The number of further items, which are not stored.
    more      bigint NOT NULL,
    made_at   bigint NOT NULL,
    state     text NOT NULL,
    attempts  bigint NOT NULL DEFAULT 0,
    next_at   bigint NOT NULL,
    done_at   bigint,
    error     text
);
CREATE INDEX mails_waiting ON mails (next_at) WHERE state = 'WAITING';
CREATE INDEX mails_recipient ON mails (recipient, kind);
CREATE INDEX mails_made ON mails (made_at);

-- The kinds of mail that a person turned off.
CREATE TABLE mail_preferences (
    actor_urn text PRIMARY KEY,
    kinds_off text NOT NULL
);
