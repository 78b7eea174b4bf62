-- An approval of a terminal ends with the session in which it was given.
ALTER TABLE devices RENAME COLUMN bearer_id TO session_id;
-- Undecided terminals are counted by their IPv6 /56 and by their network too; decided ones by who decided.
ALTER TABLE devices ADD COLUMN site text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE devices ADD COLUMN network text COLLATE "C" NOT NULL DEFAULT '';
DROP INDEX devices_origin;
CREATE INDEX devices_network ON devices (status, network, ends_at);
CREATE INDEX devices_decided ON devices (actor_urn) WHERE status <> 'PENDING';
-- Gateways of other services verify tokens for an audience of their own. Declared by policy files.
CREATE TABLE resources (
    name     text COLLATE "C" PRIMARY KEY,
    id       text COLLATE "C" NOT NULL UNIQUE,
    set_name text COLLATE "C" NOT NULL
);
-- When each actor may make a whole burst of changes again.
CREATE TABLE change_rates (
    actor_urn text COLLATE "C" PRIMARY KEY,
    full_at bigint NOT NULL
);
