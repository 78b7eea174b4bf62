-- The scopes of other services that a policy grants, a JSON array like its privileges.
ALTER TABLE policies ADD COLUMN scopes TEXT NOT NULL DEFAULT '[]';
