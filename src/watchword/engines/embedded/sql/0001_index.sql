CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    node TEXT NOT NULL
);

CREATE TABLE indices (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    uuid TEXT NOT NULL,
    blocked INTEGER NOT NULL DEFAULT 0,
    rows INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    last INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX indices_dropped ON indices (number) WHERE name IS NULL;

CREATE TABLE aliases (
    name TEXT PRIMARY KEY,
    index_number INTEGER NOT NULL REFERENCES indices
) WITHOUT ROWID;
CREATE INDEX aliases_by_index ON aliases (index_number);

CREATE TABLE documents (
    place INTEGER PRIMARY KEY,
    index_number INTEGER NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    time,
    source BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_by_id ON documents (index_number, id);
CREATE INDEX documents_by_time ON documents (index_number, time);

CREATE TRIGGER documents_added AFTER INSERT ON documents BEGIN
    UPDATE indices SET rows = rows + 1, bytes = bytes + length(NEW.source) + length(NEW.id)
    WHERE number = NEW.index_number;
END;
CREATE TRIGGER documents_removed AFTER DELETE ON documents BEGIN
    UPDATE indices SET rows = rows - 1, bytes = bytes - length(OLD.source) - length(OLD.id)
    WHERE number = OLD.index_number;
END;

CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    tag TEXT,
    source INTEGER NOT NULL,
    target INTEGER,
    until INTEGER NOT NULL,
    since INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    rate REAL NOT NULL,
    total INTEGER,
    updated INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    batches INTEGER NOT NULL DEFAULT 0,
    version_conflicts INTEGER NOT NULL DEFAULT 0,
    noops INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    throttled_millis INTEGER NOT NULL DEFAULT 0,
    pause_millis INTEGER NOT NULL DEFAULT 0,
    resume_at INTEGER NOT NULL DEFAULT 0,
    stage INTEGER NOT NULL DEFAULT 0,
    at_time,
    at_place INTEGER NOT NULL DEFAULT 0,
    up_to,
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    error TEXT
);
CREATE INDEX tasks_unfinished ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
