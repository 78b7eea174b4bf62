-- Members by sign-in (external = 1) belong to groups of the identity provider, which have no row in `groups`. Groups made
-- here and groups of the identity provider never have the same urn.
ALTER TABLE group_members DROP CONSTRAINT group_members_group_urn_fkey;
ALTER TABLE group_members ADD COLUMN external integer NOT NULL DEFAULT 0;

-- Who an actor is at the identity provider. The first sign-in stores it; an administrator may change it.
CREATE TABLE identities (
    issuer       text COLLATE "C" NOT NULL,
    subject      text COLLATE "C" NOT NULL,
    actor_urn    text COLLATE "C" NOT NULL UNIQUE,
    linked_at    bigint NOT NULL,
    signed_in_at bigint,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_signed_in ON identities (signed_in_at);

-- A session of a person who signed in at the identity provider has an issuer, a subject, and often a session id there.
ALTER TABLE sessions
    ADD COLUMN seen_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN peer text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN issuer text COLLATE "C",
    ADD COLUMN subject text COLLATE "C",
    ADD COLUMN sid text COLLATE "C";
UPDATE sessions SET seen_at = created_at;
CREATE INDEX sessions_subject ON sessions (issuer, subject) WHERE issuer IS NOT NULL;
CREATE INDEX sessions_sid ON sessions (issuer, sid) WHERE sid IS NOT NULL;
