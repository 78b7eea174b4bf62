-- The tokens that came from DataHub, and when each expires there. A row outlives its token until then: a token that was
-- revoked and purged here must not come again.
CREATE TABLE imported_tokens (
    id         TEXT PRIMARY KEY,
    expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX imported_tokens_end ON imported_tokens (expires_at) WHERE expires_at IS NOT NULL;
