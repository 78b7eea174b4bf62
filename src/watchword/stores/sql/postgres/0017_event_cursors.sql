-- How far each reader of events has come, and which process reads, until when.
CREATE TABLE event_cursors (
    name       text COLLATE "C" PRIMARY KEY,
    seq        bigint NOT NULL,
    holder     text COLLATE "C" NOT NULL DEFAULT '',
    held_until bigint NOT NULL DEFAULT 0
);
