-- The number of rows of each urn that the task keeps; NULL: it keeps none.
ALTER TABLE tasks ADD COLUMN keep_last INTEGER;
