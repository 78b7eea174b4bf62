-- Filled for a moment by the readiness probe after the disk was full: such a row takes a page of its own. PLAIN: a value
-- that is compressed or moved to another table would not.
ALTER TABLE probes ADD COLUMN filler text;
ALTER TABLE probes ALTER COLUMN filler SET STORAGE PLAIN;
