-- Retention: rules, holds, runs, and the sizes of series by day. A series is `entity.aspect` in lower case, or `*`.

CREATE TABLE retention_rules (
    series     TEXT PRIMARY KEY,
    rule       TEXT NOT NULL,
    -- The policy set that declares it, if one does.
    set_name   TEXT,
    changed_at INTEGER NOT NULL,
    changed_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Of each series at most one set by hand and one declared by its rule.
CREATE TABLE retention_holds (
    series  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    set_by  TEXT NOT NULL,
    set_at  INTEGER NOT NULL,
    -- 1: declared by the rule of the series, and released with it.
    by_rule INTEGER NOT NULL,
    PRIMARY KEY (series, by_rule)
) STRICT, WITHOUT ROWID;

CREATE TABLE retention_runs (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    home        TEXT NOT NULL,
    series      TEXT NOT NULL,
    due_at      INTEGER NOT NULL,
    state       TEXT NOT NULL,
    rule        TEXT NOT NULL,
    plan        TEXT,
    asked_by    TEXT NOT NULL,
    made_at     INTEGER NOT NULL,
    operation   INTEGER,
    approved_by TEXT,
    approved_at INTEGER,
    error       TEXT
) STRICT;
-- Each moment of a schedule once, on any number of instances.
CREATE UNIQUE INDEX retention_runs_due ON retention_runs (home, series, due_at);
CREATE INDEX retention_runs_made ON retention_runs (made_at);
CREATE INDEX retention_runs_waiting ON retention_runs (home, series) WHERE state = 'WAITING';

-- Who plans the runs of an index, until when.
CREATE TABLE retention_leases (
    home       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    held_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE series_sizes (
    home   TEXT NOT NULL,
    series TEXT NOT NULL,
    -- Days since 1970 in UTC.
    day    INTEGER NOT NULL,
    rows   INTEGER NOT NULL,
    bytes  INTEGER NOT NULL,
    PRIMARY KEY (home, series, day)
) STRICT, WITHOUT ROWID;

-- No instance takes up the operation before: its window is closed.
ALTER TABLE operations ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
