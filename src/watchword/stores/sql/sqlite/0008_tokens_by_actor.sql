-- The tokens of an actor lie together, so that a page of them is read from a few places of the file and not from as many
-- as it has rows. Verification reads the index on ids alone, which has all that a verdict rests on.

CREATE TABLE tokens_by_actor (
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    name         TEXT NOT NULL,
    description  TEXT,
    actor_urn    TEXT NOT NULL,
    owner_urn    TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    minted_with  TEXT,
    last_used_at INTEGER,
    revoked_at   INTEGER,
    -- What it may be used for, as JSON; NULL: anything its actor may do.
    limits       TEXT,
    -- The token it was derived from and dies with; the oldest of its family (NULL: itself).
    parent       TEXT,
    root         TEXT,
    -- Rotation. A successor whose grace is not NULL awaits its first use: until then it ends with the overlap
    -- (expires_at), from then on at its full end.
    replaces     TEXT,
    replaced_by  TEXT,
    replaced_at  INTEGER,
    grace        INTEGER,
    full_end     INTEGER,
    use_count    INTEGER NOT NULL DEFAULT 0,
    last_network TEXT,
    PRIMARY KEY (actor_urn, id)
) STRICT, WITHOUT ROWID;

INSERT INTO tokens_by_actor
SELECT id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with, last_used_at, revoked_at,
    limits, parent, root, replaces, replaced_by, replaced_at, grace, full_end, use_count, last_network
FROM tokens ORDER BY actor_urn, id;

DROP TABLE tokens;
ALTER TABLE tokens_by_actor RENAME TO tokens;

-- Every index has the actor too, as all of this table have what the table is ordered by.
CREATE INDEX tokens_verdict ON tokens (id, expires_at, revoked_at, limits, grace, parent);
-- The lists that must cost the same at any size, in their order. NULL is smallest, so never-expiring comes last.
CREATE INDEX tokens_all   ON tokens (expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_parent ON tokens (parent) WHERE parent IS NOT NULL AND revoked_at IS NULL;
CREATE INDEX tokens_minted ON tokens (minted_with) WHERE minted_with IS NOT NULL;
-- Few tokens are in a rotation: who ends many asks here, not at each of them.
CREATE INDEX tokens_replaced ON tokens (id) WHERE replaced_by IS NOT NULL;
CREATE INDEX tokens_replacing ON tokens (id) WHERE replaces IS NOT NULL;
-- For whoever asks until when a signing key is needed.
CREATE INDEX tokens_pending ON tokens (full_end) WHERE grace IS NOT NULL AND revoked_at IS NULL;
-- What may be purged, the oldest first; of those that were not revoked tokens_all tells.
CREATE INDEX tokens_dead ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;

-- An id is one token's, whoever its actor is.
CREATE TRIGGER tokens_differ BEFORE INSERT ON tokens WHEN EXISTS (SELECT 1 FROM tokens WHERE id = new.id)
BEGIN
    SELECT RAISE(ABORT, 'there is a token of this id');
END;

-- The totals of an actor lie together too: one is changed with the other, as a rule.
CREATE TABLE totals_by_urn (
    kind  TEXT NOT NULL,
    urn   TEXT NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (urn, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO totals_by_urn SELECT kind, urn, total FROM token_totals ORDER BY urn, kind;
DROP TABLE token_totals;
ALTER TABLE totals_by_urn RENAME TO token_totals;

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

-- A revocation is for ever.
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens WHEN old.revoked_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a revoked token stays revoked');
END;
