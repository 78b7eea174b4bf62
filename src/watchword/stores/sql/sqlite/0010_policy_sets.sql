-- The set that declares a policy; NULL unless its source is FILE. Until now all files declared one set.
ALTER TABLE policies ADD COLUMN set_name TEXT;
UPDATE policies SET set_name = 'default' WHERE source = 'FILE';
