-- Notices before tokens expire, the networks that tokens were used from, and mail.

-- Which thresholds of a token have had their notice.
CREATE TABLE expiry_notices (
    token_id TEXT NOT NULL,
    days     INTEGER NOT NULL,
    PRIMARY KEY (token_id, days)
) STRICT, WITHOUT ROWID;

CREATE TABLE token_networks (
    token_id TEXT NOT NULL,
    network  TEXT NOT NULL,
    first_at INTEGER NOT NULL,
    PRIMARY KEY (token_id, network)
) STRICT, WITHOUT ROWID;
INSERT INTO token_networks (token_id, network, first_at)
SELECT id, last_network, last_used_at FROM tokens WHERE last_network IS NOT NULL;

-- One row is one mail. A digest grows until it is first tried.
CREATE TABLE mails (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT NOT NULL,
    recipient TEXT NOT NULL,
    address   TEXT NOT NULL,
    -- JSON: what it says, without a token or a secret.
    items     TEXT NOT NULL,
    -- How many more there are than its items.
    more      INTEGER NOT NULL,
    made_at   INTEGER NOT NULL,
    state     TEXT NOT NULL,
    attempts  INTEGER NOT NULL DEFAULT 0,
    next_at   INTEGER NOT NULL,
    done_at   INTEGER,
    error     TEXT
) STRICT;
CREATE INDEX mails_waiting ON mails (next_at) WHERE state = 'WAITING';
CREATE INDEX mails_recipient ON mails (recipient, kind);
CREATE INDEX mails_made ON mails (made_at);

-- The kinds that a person does not want, as JSON.
CREATE TABLE mail_preferences (
    actor_urn TEXT PRIMARY KEY,
    kinds_off TEXT NOT NULL
) STRICT, WITHOUT ROWID;
