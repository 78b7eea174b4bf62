-- A token is found by its id in one descent of one tree: verification is that, and little else.

CREATE TABLE tokens_by_id (
    id           TEXT PRIMARY KEY,
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
) STRICT, WITHOUT ROWID;

INSERT INTO tokens_by_id
SELECT id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with, last_used_at, revoked_at
FROM tokens ORDER BY id;

DROP TABLE tokens;
ALTER TABLE tokens_by_id RENAME TO tokens;

-- The lists that must cost the same at any size, in their order. NULL is smallest, so never-expiring comes last.
CREATE INDEX tokens_all   ON tokens (expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC, id) WHERE revoked_at IS NULL;

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
