-- What only SQLite has.

-- Verification reads this index and not the table. Every index of the table also has the actor, from the primary key.
CREATE INDEX tokens_verdict ON tokens (id, expires_at, revoked_at, limits, grace, parent);
-- Few tokens are in a rotation: a bulk revocation reads these two instead of each token.
CREATE INDEX tokens_replaced ON tokens (id) WHERE replaced_by IS NOT NULL;
CREATE INDEX tokens_replacing ON tokens (id) WHERE replaces IS NOT NULL;
-- In the order of lists, like tokens_actor. NULL is the smallest value, so tokens that never expire come last. With
-- revoked_at, although it is NULL in all their rows: SQLite then counts live tokens without reading the table.
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

CREATE TRIGGER group_members_counted AFTER INSERT ON group_members
BEGIN
    UPDATE groups SET members = members + 1 WHERE urn = new.group_urn;
END;
CREATE TRIGGER group_members_uncounted AFTER DELETE ON group_members
BEGIN
    UPDATE groups SET members = members - 1 WHERE urn = old.group_urn;
END;
