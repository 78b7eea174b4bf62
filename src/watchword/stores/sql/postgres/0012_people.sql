-- Names of people. An actor has a row once it has a status or a name; changed_at and changed_by are those of the status,
-- and NULL where it never changed.
ALTER TABLE actors
    ALTER COLUMN status SET DEFAULT 'ACTIVE',
    ALTER COLUMN changed_at DROP NOT NULL,
    ALTER COLUMN changed_by DROP NOT NULL,
    ADD COLUMN display_name text COLLATE "C",
    ADD COLUMN email text COLLATE "C";

-- The set that declares a group or service account; NULL: made by the API.
ALTER TABLE groups ADD COLUMN set_name text COLLATE "C";
ALTER TABLE service_accounts ADD COLUMN set_name text COLLATE "C";
