-- Members by sign-in (external = 1) belong to groups of the identity provider, which have no row in `groups`. Groups made
-- here and groups of the identity provider never have the same urn.
CREATE TABLE members (
    actor_urn TEXT NOT NULL,
    group_urn TEXT NOT NULL,
    external  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (actor_urn, group_urn)
) STRICT, WITHOUT ROWID;
INSERT INTO members (actor_urn, group_urn) SELECT actor_urn, group_urn FROM group_members;
DROP TABLE group_members;
ALTER TABLE members RENAME TO group_members;
CREATE INDEX group_members_group ON group_members (group_urn, actor_urn);
CREATE TRIGGER group_members_counted AFTER INSERT ON group_members
BEGIN
    UPDATE groups SET members = members + 1 WHERE urn = new.group_urn;
END;
CREATE TRIGGER group_members_uncounted AFTER DELETE ON group_members
BEGIN
    UPDATE groups SET members = members - 1 WHERE urn = old.group_urn;
END;

-- Who an actor is at the identity provider. The first sign-in stores it; an administrator may change it.
CREATE TABLE identities (
    issuer       TEXT NOT NULL,
    subject      TEXT NOT NULL,
    actor_urn    TEXT NOT NULL UNIQUE,
    linked_at    INTEGER NOT NULL,
    signed_in_at INTEGER,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_signed_in ON identities (signed_in_at);

-- A session of a person who signed in at the identity provider has an issuer, a subject, and often a session id there.
ALTER TABLE sessions ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN peer TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN issuer TEXT;
ALTER TABLE sessions ADD COLUMN subject TEXT;
ALTER TABLE sessions ADD COLUMN sid TEXT;
UPDATE sessions SET seen_at = created_at;
CREATE INDEX sessions_subject ON sessions (issuer, subject) WHERE issuer IS NOT NULL;
CREATE INDEX sessions_sid ON sessions (issuer, sid) WHERE sid IS NOT NULL;
