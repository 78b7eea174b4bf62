-- Operations in the search index: what was asked, where the work stands, who holds it.

CREATE TABLE operations (
    number          INTEGER PRIMARY KEY AUTOINCREMENT,
    index_name      TEXT NOT NULL,
    state           TEXT NOT NULL,
    plan            TEXT NOT NULL,
    work            TEXT NOT NULL,
    asked_by        TEXT NOT NULL,
    asked_at        INTEGER NOT NULL,
    started_at      INTEGER,
    changed_at      INTEGER,
    finished_at     INTEGER,
    cancel_asked_at INTEGER,
    cancel_asked_by TEXT,
    -- Nothing is written to it under a lower fence than this.
    fence           INTEGER NOT NULL DEFAULT 0,
    held_until      INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Of each index at most one at a time.
CREATE UNIQUE INDEX operations_active ON operations (index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');

-- What stands before the colon in the id of an operation.
ALTER TABLE state ADD COLUMN node_id TEXT;
UPDATE state SET node_id = lower(hex(randomblob(11)));
