-- The tokens that came from DataHub, and when each expires there. A row outlives its token until then: a token that was
-- revoked and purged here must not come again.
CREATE TABLE imported_tokens (
    id         text COLLATE "C" PRIMARY KEY,
    expires_at bigint
);
CREATE INDEX imported_tokens_end ON imported_tokens (expires_at) WHERE expires_at IS NOT NULL;
