-- The embedded search index. Times are milliseconds since 1970.

-- One row: the id of the node, once `prepare` has chosen it.
CREATE TABLE meta (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    node TEXT NOT NULL
);

-- Numbers are never reused.
CREATE TABLE indices (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name   TEXT UNIQUE,
    rows   INTEGER NOT NULL DEFAULT 0,
    bytes  INTEGER NOT NULL DEFAULT 0,
    -- The number of the last row that was written.
    last   INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE documents (
    -- The number of the index and a number within it, which every write of the row changes.
    place        INTEGER PRIMARY KEY,
    index_number INTEGER NOT NULL,
    id           TEXT NOT NULL,
    version      INTEGER NOT NULL,
    -- Without a type: an integer, a real number or NULL.
    time,
    source       BLOB NOT NULL
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

-- Deletions by query, which the engine's process works through in batches. `DeletionOrder` and `DeletionProgress` in
-- deletions.py have most of the columns.
CREATE TABLE tasks (
    number            INTEGER PRIMARY KEY AUTOINCREMENT,
    tag               TEXT,
    index_number      INTEGER NOT NULL,
    until             INTEGER NOT NULL,
    mark              INTEGER NOT NULL,
    batch             INTEGER NOT NULL,
    rate              REAL NOT NULL,
    total             INTEGER,
    deleted           INTEGER NOT NULL DEFAULT 0,
    batches           INTEGER NOT NULL DEFAULT 0,
    version_conflicts INTEGER NOT NULL DEFAULT 0,
    retries           INTEGER NOT NULL DEFAULT 0,
    throttled_millis  INTEGER NOT NULL DEFAULT 0,
    pause_millis      INTEGER NOT NULL DEFAULT 0,
    resume_at         INTEGER NOT NULL DEFAULT 0,
    at_time,
    at_place          INTEGER NOT NULL DEFAULT 0,
    cancel_asked      INTEGER NOT NULL DEFAULT 0,
    started_at        INTEGER NOT NULL,
    ended_at          INTEGER,
    error             TEXT,
    -- The number of rows of each urn that the task keeps; NULL: it keeps none.
    keep_last         INTEGER
);
CREATE INDEX tasks_unfinished ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
