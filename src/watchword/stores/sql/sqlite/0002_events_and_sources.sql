-- Events are read newest first: all, by who, by what, by which. Policies say where they come from.

CREATE INDEX events_at     ON events (at);
CREATE INDEX events_actor  ON events (actor, at);
CREATE INDEX events_action ON events (action, at);
CREATE INDEX events_target ON events (target, at);

-- Older events than this may have been pruned.
ALTER TABLE state ADD COLUMN events_since INTEGER NOT NULL DEFAULT 0;
-- What the settings were at the last start, as JSON; secrets are not among them.
ALTER TABLE state ADD COLUMN settings TEXT;

ALTER TABLE policies ADD COLUMN source TEXT NOT NULL DEFAULT 'API';
UPDATE policies SET source = 'SERVICE' WHERE NOT editable;
ALTER TABLE policies DROP COLUMN editable;
