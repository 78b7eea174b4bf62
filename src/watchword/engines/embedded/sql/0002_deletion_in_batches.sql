-- The index deletes in batches: no copies any more, hence no aliases, write blocks or dropped indices.
DELETE FROM documents WHERE index_number IN (SELECT number FROM indices WHERE name IS NULL);
DELETE FROM indices WHERE name IS NULL;
UPDATE indices SET name = (SELECT min(name) FROM aliases WHERE index_number = number)
WHERE number IN (SELECT index_number FROM aliases);
DROP INDEX indices_dropped;
DROP TABLE aliases;
ALTER TABLE indices DROP COLUMN blocked;
ALTER TABLE indices DROP COLUMN uuid;
DELETE FROM tasks WHERE kind <> 'delete';
ALTER TABLE tasks RENAME COLUMN source TO index_number;
ALTER TABLE tasks DROP COLUMN kind;
ALTER TABLE tasks DROP COLUMN target;
ALTER TABLE tasks DROP COLUMN since;
ALTER TABLE tasks DROP COLUMN updated;
ALTER TABLE tasks DROP COLUMN created;
ALTER TABLE tasks DROP COLUMN noops;
ALTER TABLE tasks DROP COLUMN stage;
ALTER TABLE tasks DROP COLUMN up_to;
