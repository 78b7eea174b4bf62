-- Which search index an operation works on: '' for the one that all share, else the embedded one of one instance.

ALTER TABLE operations ADD COLUMN home TEXT NOT NULL DEFAULT '';
DROP INDEX operations_active;
-- Of each index at most one at a time.
CREATE UNIQUE INDEX operations_active ON operations (home, index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');
