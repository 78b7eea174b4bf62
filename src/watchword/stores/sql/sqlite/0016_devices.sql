-- Terminals that wait for a token (RFC 8628). The id and the user code are digests. Nothing refers to a row, and none is
-- copied to another store: its codes are valid for minutes.
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
