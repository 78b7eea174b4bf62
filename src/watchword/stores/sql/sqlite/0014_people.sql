-- Names of people. An actor has a row once it has a status or a name; changed_at and changed_by are those of the status,
-- and NULL where it never changed.
CREATE TABLE people (
    urn          TEXT PRIMARY KEY,
    status       TEXT NOT NULL DEFAULT 'ACTIVE',
    changed_at   INTEGER,
    changed_by   TEXT,
    display_name TEXT,
    email        TEXT
) STRICT, WITHOUT ROWID;
INSERT INTO people (urn, status, changed_at, changed_by) SELECT urn, status, changed_at, changed_by FROM actors;
DROP TABLE actors;
ALTER TABLE people RENAME TO actors;

-- The set that declares a group or service account; NULL: made by the API.
ALTER TABLE groups ADD COLUMN set_name TEXT;
ALTER TABLE service_accounts ADD COLUMN set_name TEXT;
