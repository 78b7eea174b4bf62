-- How far each reader of events has come, and which process reads, until when.
CREATE TABLE event_cursors (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    holder     TEXT NOT NULL DEFAULT '',
    held_until INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
