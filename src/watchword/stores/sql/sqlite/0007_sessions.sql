-- Browsers that signed in. The id is the digest of what the browser holds. Without a token (NULL) the actor was chosen, in
-- local mode. Nothing refers to a session, and none is worth carrying to another store: one signs in again.
CREATE TABLE sessions (
    id         TEXT PRIMARY KEY,
    actor_urn  TEXT NOT NULL,
    token_id   TEXT,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Those of one token, or of one actor without a token, the oldest first.
CREATE INDEX sessions_token ON sessions (token_id, created_at) WHERE token_id IS NOT NULL;
CREATE INDEX sessions_actor ON sessions (actor_urn, created_at) WHERE token_id IS NULL;
CREATE INDEX sessions_end   ON sessions (ends_at);
