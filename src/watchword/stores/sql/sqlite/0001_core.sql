-- Tokens, policies, groups, actors, keys and events. Times are milliseconds since 1970.

-- The one row of facts about the store itself.
CREATE TABLE state (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    policy_version INTEGER NOT NULL,
    defaults_made  INTEGER NOT NULL,
    sealed_salt    BLOB,
    probed_at      INTEGER
) STRICT;
INSERT INTO state (one, policy_version, defaults_made) VALUES (1, 1, 0);

CREATE TABLE tokens (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    type         TEXT NOT NULL,
    name         TEXT NOT NULL,
    description  TEXT,
    actor_urn    TEXT NOT NULL,
    owner_urn    TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    minted_with  TEXT,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

-- The lists that must cost the same at any size, in their order. NULL is smallest, so never-expiring comes last.
CREATE INDEX tokens_all   ON tokens (expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC, id) WHERE revoked_at IS NULL;

-- How many tokens are not revoked: of all ('all', ''), of an actor, by an owner.
CREATE TABLE token_totals (
    kind  TEXT NOT NULL,
    urn   TEXT NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (kind, urn)
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

-- A revocation is for ever.
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens WHEN old.revoked_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a revoked token stays revoked');
END;

CREATE TABLE policies (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    state       TEXT NOT NULL,
    privileges  TEXT NOT NULL,
    users       TEXT NOT NULL,
    groups      TEXT NOT NULL,
    all_users   INTEGER NOT NULL,
    editable    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    members     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE group_members (
    actor_urn TEXT NOT NULL,
    group_urn TEXT NOT NULL REFERENCES groups (urn) ON DELETE CASCADE,
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

-- Only actors that were ever suspended have a row.
CREATE TABLE actors (
    urn        TEXT PRIMARY KEY,
    status     TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    seq             INTEGER PRIMARY KEY,
    kid             TEXT NOT NULL UNIQUE,
    public          BLOB NOT NULL,
    sealed_private  BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    retired_at      INTEGER,
    published_until INTEGER
) STRICT;

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
