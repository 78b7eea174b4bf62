-- Uses by day. Days are UTC, counted from 1970. Both tables keep the days of domain/uses.py.

CREATE TABLE token_uses (
    token_id TEXT NOT NULL,
    day      INTEGER NOT NULL,
    uses     INTEGER NOT NULL,
    PRIMARY KEY (token_id, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX token_uses_day ON token_uses (day);

-- Sums over the whole store: 'uses', and the actions of rejected requests.
CREATE TABLE day_counts (
    kind   TEXT NOT NULL,
    day    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (kind, day)
) STRICT, WITHOUT ROWID;

-- With revoked_at, which is NULL in all their rows: SQLite then counts live tokens without a look at the table.
DROP INDEX tokens_all;
DROP INDEX tokens_owner;
CREATE INDEX tokens_all   ON tokens (expires_at DESC, id, revoked_at) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC, id, revoked_at) WHERE revoked_at IS NULL;
