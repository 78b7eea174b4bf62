-- Terminals that wait for a token (RFC 8628). The id and the user code are digests. Nothing refers to a row, and none is
-- copied to another store: its codes are valid for minutes.
CREATE TABLE devices (
    id            text COLLATE "C" PRIMARY KEY,
    user_code     text COLLATE "C" NOT NULL UNIQUE,
    client        text COLLATE "C" NOT NULL,
    host          text COLLATE "C",
    scopes        text COLLATE "C",
    peer          text COLLATE "C" NOT NULL,
    origin        text COLLATE "C" NOT NULL,
    created_at    bigint NOT NULL,
    ends_at       bigint NOT NULL,
    poll_interval bigint NOT NULL,
    polled_at     bigint,
    status        text COLLATE "C" NOT NULL,
    actor_urn     text COLLATE "C",
    bearer_id     text COLLATE "C"
);
CREATE INDEX devices_end    ON devices (ends_at);
CREATE INDEX devices_origin ON devices (origin, ends_at);
