-- Uses by day. Days are since 1970, in UTC. domain/uses.py has the number of days that are kept.

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
