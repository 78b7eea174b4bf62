-- Rows of each urn that the task does not delete.
ALTER TABLE tasks ADD COLUMN keep_last INTEGER;
