-- The schema of an SQLite store. Times are milliseconds since 1970; lists and objects are stored as JSON.

-- ---- The store itself ----

-- One row.
CREATE TABLE state (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    policy_version INTEGER NOT NULL,
    -- 1: the default policies were created.
    defaults_made  INTEGER NOT NULL,
    sealed_salt    BLOB,
    -- Updated by the readiness probe.
    probed_at      INTEGER,
    -- Retention may have deleted older events.
    events_since   INTEGER NOT NULL DEFAULT 0,
    -- The settings at the last start, without secrets.
    settings       TEXT,
    -- The part before the colon in the id of an operation.
    node_id        TEXT
) STRICT;
INSERT INTO state (one, policy_version, defaults_made, node_id) VALUES (1, 1, 0, lower(hex(randomblob(11))));

-- ---- Tokens ----

-- Ordered by actor: a list of one actor's tokens reads few pages of the file.
CREATE TABLE tokens (
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    name         TEXT NOT NULL,
    description  TEXT,
    actor_urn    TEXT NOT NULL,
    owner_urn    TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    -- The token that created it.
    created_with TEXT,
    last_used_at INTEGER,
    revoked_at   INTEGER,
    -- NULL: none.
    limits       TEXT,
    -- The token it was derived from, which it is revoked and expires with.
    parent       TEXT,
    -- The oldest token of its family; NULL: itself. It never changes.
    root         TEXT,
    -- Rotation. A successor has a grace until its first use: it expires at expires_at, with the overlap. Its first use
    -- sets expires_at to full_end and grace to NULL.
    replaces     TEXT,
    replaced_by  TEXT,
    replaced_at  INTEGER,
    grace        INTEGER,
    full_end     INTEGER,
    use_count    INTEGER NOT NULL DEFAULT 0,
    last_network TEXT,
    PRIMARY KEY (actor_urn, id)
) STRICT, WITHOUT ROWID;

-- Verification reads this index and not the table. Every index of the table also has the actor, from the primary key.
CREATE INDEX tokens_verdict ON tokens (id, expires_at, revoked_at, limits, grace, parent);
-- In the order of lists, like tokens_all and tokens_owner: a page costs the same at any size. NULL is the smallest
-- value, so tokens that never expire come last.
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_created_with ON tokens (created_with) WHERE created_with IS NOT NULL;
-- Few tokens are in a rotation: a bulk revocation reads these two instead of each token.
CREATE INDEX tokens_replaced ON tokens (id) WHERE replaced_by IS NOT NULL;
CREATE INDEX tokens_replacing ON tokens (id) WHERE replaces IS NOT NULL;
-- Unused successors: a signing key is published until the last of them may expire.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- To purge revoked tokens, the oldest first. Expired ones are read from tokens_all.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;
-- With revoked_at, although it is NULL in all their rows: SQLite then counts live tokens without reading the table.
CREATE INDEX tokens_all   ON tokens (expires_at DESC, id, revoked_at) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC, id, revoked_at) WHERE revoked_at IS NULL;

-- The primary key allows the same id for two actors.
CREATE TRIGGER tokens_unique_id BEFORE INSERT ON tokens WHEN EXISTS (SELECT 1 FROM tokens WHERE id = new.id)
BEGIN
    SELECT RAISE(ABORT, 'a token with this id exists');
END;

-- The number of tokens that are not revoked: of all ('all', ''), per actor, per owner. Ordered by urn: a token
-- often has the same actor and owner.
CREATE TABLE token_totals (
    kind  TEXT NOT NULL,
    urn   TEXT NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (urn, kind)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER tokens_counted AFTER INSERT ON tokens WHEN new.revoked_at IS NULL
BEGIN
    INSERT INTO token_totals VALUES ('all', '', 1)
        ON CONFLICT DO UPDATE SET total = total + 1;
    INSERT INTO token_totals VALUES ('actor', new.actor_urn, 1)
        ON CONFLICT DO UPDATE SET total = total + 1;
    INSERT INTO token_totals VALUES ('owner', new.owner_urn, 1)
        ON CONFLICT DO UPDATE SET total = total + 1;
END;

CREATE TRIGGER tokens_uncounted AFTER UPDATE OF revoked_at ON tokens
    WHEN old.revoked_at IS NULL AND new.revoked_at IS NOT NULL
BEGIN
    UPDATE token_totals SET total = total - 1 WHERE kind = 'all' AND urn = '';
    UPDATE token_totals SET total = total - 1 WHERE kind = 'actor' AND urn = new.actor_urn;
    UPDATE token_totals SET total = total - 1 WHERE kind = 'owner' AND urn = new.owner_urn;
END;

CREATE TRIGGER tokens_purged AFTER DELETE ON tokens WHEN old.revoked_at IS NULL
BEGIN
    UPDATE token_totals SET total = total - 1 WHERE kind = 'all' AND urn = '';
    UPDATE token_totals SET total = total - 1 WHERE kind = 'actor' AND urn = old.actor_urn;
    UPDATE token_totals SET total = total - 1 WHERE kind = 'owner' AND urn = old.owner_urn;
END;

CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens WHEN old.revoked_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a revoked token stays revoked');
END;

-- Requests with an Idempotency-Key. No column is secret.
CREATE TABLE retries (
    actor      TEXT NOT NULL,
    digest     TEXT NOT NULL,
    kid        TEXT NOT NULL,
    token_id   TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (actor, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX retries_created ON retries (created_at);

-- Tokens imported from DataHub, and when they expire there. A row is kept until then, also after its token was purged:
-- a revoked token must not be imported again.
CREATE TABLE imported_tokens (
    id         TEXT PRIMARY KEY,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX imported_tokens_end ON imported_tokens (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE token_networks (
    token_id TEXT NOT NULL,
    network  TEXT NOT NULL,
    first_at INTEGER NOT NULL,
    PRIMARY KEY (token_id, network)
) STRICT, WITHOUT ROWID;

-- ---- Policies and groups ----
-- In this and later tables, set_name is the policy set that declares the row; NULL: none does.

CREATE TABLE policies (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    state       TEXT NOT NULL,
    privileges  TEXT NOT NULL,
    users       TEXT NOT NULL,
    groups      TEXT NOT NULL,
    all_users   INTEGER NOT NULL,
    source      TEXT NOT NULL DEFAULT 'API',
    set_name    TEXT,
    -- Scopes of other services.
    scopes      TEXT NOT NULL DEFAULT '[]'
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    members     INTEGER NOT NULL DEFAULT 0,
    set_name    TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE group_members (
    actor_urn TEXT NOT NULL,
    group_urn TEXT NOT NULL,
    -- 1: a group of the identity provider, set at sign-in. It has no row in `groups`. No group there has its urn.
    external  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (actor_urn, group_urn)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_group ON group_members (group_urn, actor_urn);

CREATE TRIGGER group_members_counted AFTER INSERT ON group_members
BEGIN
    UPDATE groups SET members = members + 1 WHERE urn = new.group_urn;
END;
CREATE TRIGGER group_members_uncounted AFTER DELETE ON group_members
BEGIN
    UPDATE groups SET members = members - 1 WHERE urn = old.group_urn;
END;

-- ---- Actors ----

-- An actor has a row once it has a name, an address or another status. changed_at and changed_by are of the status;
-- NULL: it never changed.
CREATE TABLE actors (
    urn          TEXT PRIMARY KEY,
    status       TEXT NOT NULL DEFAULT 'ACTIVE',
    changed_at   INTEGER,
    changed_by   TEXT,
    display_name TEXT,
    email        TEXT
) STRICT, WITHOUT ROWID;

-- A deleted account keeps its row, so that its urn is never used again.
CREATE TABLE service_accounts (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    created_at  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    deleted_at  INTEGER,
    set_name    TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX service_accounts_name ON service_accounts (name, urn) WHERE deleted_at IS NULL;

-- The actor of each user of the identity provider. The first sign-in stores it; an administrator may change it.
CREATE TABLE identities (
    issuer       TEXT NOT NULL,
    subject      TEXT NOT NULL,
    actor_urn    TEXT NOT NULL UNIQUE,
    linked_at    INTEGER NOT NULL,
    signed_in_at INTEGER,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_signed_in ON identities (signed_in_at);

-- ---- Signing keys ----

CREATE TABLE keys (
    seq             INTEGER PRIMARY KEY,
    kid             TEXT NOT NULL UNIQUE,
    public          BLOB NOT NULL,
    sealed_private  BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    retired_at      INTEGER,
    published_until INTEGER
) STRICT;

-- The key that signs after the next rotation. It is published already.
CREATE TABLE next_key (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    kid            TEXT NOT NULL,
    public         BLOB NOT NULL,
    sealed_private BLOB NOT NULL,
    created_at     INTEGER NOT NULL
) STRICT;

-- ---- Sessions and devices ----
-- Not copied to another store: people sign in again.

-- Sessions of browsers. The id is the digest of the cookie. Without a token, the actor was chosen in local mode or
-- signed in at the identity provider; the latter has an issuer, a subject and often the provider's session id.
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    actor_urn  TEXT NOT NULL,
    token_id   TEXT,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL DEFAULT 0,
    peer       TEXT NOT NULL DEFAULT '',
    issuer     TEXT,
    subject    TEXT,
    sid        TEXT
) STRICT, WITHOUT ROWID;
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
    id            TEXT PRIMARY KEY,
    user_code     TEXT NOT NULL UNIQUE,
    client        TEXT NOT NULL,
    host          TEXT,
    scopes        TEXT,
    peer          TEXT NOT NULL,
    origin        TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    ends_at       INTEGER NOT NULL,
    poll_interval INTEGER NOT NULL,
    polled_at     INTEGER,
    status        TEXT NOT NULL,
    actor_urn     TEXT,
    bearer_id     TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX devices_end    ON devices (ends_at);
CREATE INDEX devices_origin ON devices (origin, ends_at);

-- ---- Events ----

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    bearer_id  TEXT,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    peer       TEXT NOT NULL,
    request_id TEXT NOT NULL,
    detail     TEXT NOT NULL
) STRICT;
CREATE INDEX events_at     ON events (at);
CREATE INDEX events_actor  ON events (actor, at);
CREATE INDEX events_action ON events (action, at);
CREATE INDEX events_target ON events (target, at);
-- A repeated failure with the same token is not written: this index finds the earlier event.
CREATE INDEX events_failed ON events (bearer_id, at) WHERE action = 'authentication.failed' AND bearer_id IS NOT NULL;

-- The last event that each reader processed, and the process that holds the lease to read.
CREATE TABLE event_cursors (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    holder     TEXT NOT NULL DEFAULT '',
    held_until INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- ---- Operations in the search index ----
-- In this and later tables, home is '' for the shared index, otherwise the embedded index of one instance.

CREATE TABLE operations (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    index_name      TEXT NOT NULL,
    state           TEXT NOT NULL,
    plan            TEXT NOT NULL,
    work            TEXT NOT NULL,
    asked_by        TEXT NOT NULL,
    asked_at        INTEGER NOT NULL,
    started_at      INTEGER,
    changed_at      INTEGER,
    finished_at     INTEGER,
    cancel_asked_at INTEGER,
    cancel_asked_by TEXT,
    -- The fencing token: writes with a lower one are rejected.
    fence           INTEGER NOT NULL DEFAULT 0,
    held_until      INTEGER NOT NULL DEFAULT 0,
    home            TEXT NOT NULL DEFAULT '',
    -- The operation pauses until its time window opens.
    not_before      INTEGER NOT NULL DEFAULT 0
) STRICT;
-- At most one active operation per index.
CREATE UNIQUE INDEX operations_active ON operations (home, index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');

-- ---- Retention ----
-- A series is `entity.aspect` in lower case, or `*`.

CREATE TABLE retention_rules (
    series     TEXT PRIMARY KEY,
    rule       TEXT NOT NULL,
    set_name   TEXT,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE retention_holds (
    series  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    set_by  TEXT NOT NULL,
    set_at  INTEGER NOT NULL,
    -- 1: declared by the rule of the series, and released with it. 0: set by hand.
    by_rule INTEGER NOT NULL,
    PRIMARY KEY (series, by_rule)
) STRICT, WITHOUT ROWID;

CREATE TABLE retention_runs (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    home        TEXT NOT NULL,
    series      TEXT NOT NULL,
    due_at      INTEGER NOT NULL,
    state       TEXT NOT NULL,
    rule        TEXT NOT NULL,
    plan        TEXT,
    asked_by    TEXT NOT NULL,
    made_at     INTEGER NOT NULL,
    operation   INTEGER,
    approved_by TEXT,
    approved_at INTEGER,
    error       TEXT
) STRICT;
-- One run for each time of a schedule, on any number of instances.
CREATE UNIQUE INDEX retention_runs_due ON retention_runs (home, series, due_at);
CREATE INDEX retention_runs_made ON retention_runs (made_at);
CREATE INDEX retention_runs_waiting ON retention_runs (home, series) WHERE state = 'WAITING';

-- The process that holds the lease to plan the runs of an index.
CREATE TABLE retention_leases (
    home       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    held_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE series_sizes (
    home   TEXT NOT NULL,
    series TEXT NOT NULL,
    -- Days since 1970, in UTC.
    day    INTEGER NOT NULL,
    rows   INTEGER NOT NULL,
    bytes  INTEGER NOT NULL,
    PRIMARY KEY (home, series, day)
) STRICT, WITHOUT ROWID;

-- ---- Webhooks ----

CREATE TABLE webhooks (
    id              TEXT PRIMARY KEY,
    name            TEXT NOT NULL,
    url             TEXT NOT NULL,
    actions         TEXT NOT NULL,
    actors          TEXT NOT NULL,
    groups          TEXT NOT NULL,
    state           TEXT NOT NULL,
    sealed_secret   BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    created_by      TEXT NOT NULL,
    -- The secret before the last rotation also signs until previous_until.
    sealed_previous BLOB,
    previous_until  INTEGER,
    -- Only events with a higher number are sent.
    after_seq       INTEGER NOT NULL,
    failing_since   INTEGER,
    failures        INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    dropped         INTEGER NOT NULL,
    stopped_because TEXT,
    set_name        TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_deliveries (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook      TEXT NOT NULL,
    message      TEXT NOT NULL,
    event_seq    INTEGER,
    type         TEXT NOT NULL,
    payload      TEXT NOT NULL,
    state        TEXT NOT NULL,
    made_at      INTEGER NOT NULL,
    delivered_at INTEGER,
    -- The latest ones.
    attempts     TEXT NOT NULL
) STRICT;
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook, number);
CREATE INDEX webhook_deliveries_made ON webhook_deliveries (made_at);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook, number) WHERE state = 'WAITING';

-- ---- Mail ----

-- The notices that were sent before a token expires, by the number of days before.
CREATE TABLE expiry_notices (
    token_id TEXT NOT NULL,
    days     INTEGER NOT NULL,
    PRIMARY KEY (token_id, days)
) STRICT, WITHOUT ROWID;

-- One row is one mail. Items are added to a digest until the first attempt to send it.
CREATE TABLE mails (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT NOT NULL,
    recipient TEXT NOT NULL,
    address   TEXT NOT NULL,
    -- The content, without tokens and secrets.
    items     TEXT NOT NULL,
    -- The number of further items, which are not stored.
    more      INTEGER NOT NULL,
    made_at   INTEGER NOT NULL,
    state     TEXT NOT NULL,
    attempts  INTEGER NOT NULL DEFAULT 0,
    next_at   INTEGER NOT NULL,
    done_at   INTEGER,
    error     TEXT
) STRICT;
CREATE INDEX mails_waiting ON mails (next_at) WHERE state = 'WAITING';
CREATE INDEX mails_recipient ON mails (recipient, kind);
CREATE INDEX mails_made ON mails (made_at);

-- The kinds of mail that a person turned off.
CREATE TABLE mail_preferences (
    actor_urn TEXT PRIMARY KEY,
    kinds_off TEXT NOT NULL
) STRICT, WITHOUT ROWID;
