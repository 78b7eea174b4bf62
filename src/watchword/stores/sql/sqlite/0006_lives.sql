-- Limits of tokens, their families, their use; service accounts; requests that may be sent again.

-- What it may be used for, as JSON; NULL: anything its actor may do.
ALTER TABLE tokens ADD COLUMN limits TEXT;
-- The token it was derived from and dies with; the oldest of its family (NULL: itself).
ALTER TABLE tokens ADD COLUMN parent TEXT;
ALTER TABLE tokens ADD COLUMN root TEXT;
-- Rotation. A successor whose grace is not NULL awaits its first use: until then it ends with the overlap (expires_at),
-- from then on at its full end.
ALTER TABLE tokens ADD COLUMN replaces TEXT;
ALTER TABLE tokens ADD COLUMN replaced_by TEXT;
ALTER TABLE tokens ADD COLUMN replaced_at INTEGER;
ALTER TABLE tokens ADD COLUMN grace INTEGER;
ALTER TABLE tokens ADD COLUMN full_end INTEGER;
ALTER TABLE tokens ADD COLUMN use_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN last_network TEXT;

CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_minted ON tokens (minted_with) WHERE minted_with IS NOT NULL;
-- Few tokens are in a rotation: who ends many asks here, not at each of them.
CREATE INDEX tokens_replaced ON tokens (id) WHERE replaced_by IS NOT NULL;
CREATE INDEX tokens_replacing ON tokens (id) WHERE replaces IS NOT NULL;
-- For whoever asks until when a signing key is needed.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- What may be purged, the oldest first; of those that were not revoked tokens_all tells.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;

CREATE TRIGGER tokens_purged AFTER DELETE ON tokens WHEN old.revoked_at IS NULL
BEGIN
    UPDATE token_totals SET total = total - 1 WHERE kind = 'all' AND urn = '';
    UPDATE token_totals SET total = total - 1 WHERE kind = 'actor' AND urn = old.actor_urn;
    UPDATE token_totals SET total = total - 1 WHERE kind = 'owner' AND urn = old.owner_urn;
END;

-- A deleted one keeps its row, so that its urn stays dead.
CREATE TABLE service_accounts (
    urn         TEXT PRIMARY KEY,
    name        TEXT NOT NULL,
    description TEXT,
    created_at  INTEGER NOT NULL,
    created_by  TEXT NOT NULL,
    deleted_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX service_accounts_name ON service_accounts (name, urn) WHERE deleted_at IS NULL;

-- What was asked under an Idempotency-Key: nothing of it is secret.
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

-- The one that will sign after the next rotation: published already, used for nothing yet.
CREATE TABLE next_key (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    kid            TEXT NOT NULL,
    public         BLOB NOT NULL,
    sealed_private BLOB NOT NULL,
    created_at     INTEGER NOT NULL
) STRICT;
