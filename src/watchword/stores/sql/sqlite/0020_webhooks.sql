-- Webhooks: subscriptions to events, and the messages that wait for their receivers or were delivered.

CREATE TABLE webhooks (
    id              TEXT PRIMARY KEY,
    name            TEXT NOT NULL,
    url             TEXT NOT NULL,
    -- Lists as JSON.
    actions         TEXT NOT NULL,
    actors          TEXT NOT NULL,
    groups          TEXT NOT NULL,
    state           TEXT NOT NULL,
    sealed_secret   BLOB NOT NULL,
    created_at      INTEGER NOT NULL,
    created_by      TEXT NOT NULL,
    -- The secret before the last rotation signs too until then.
    sealed_previous BLOB,
    previous_until  INTEGER,
    -- It gets events with a higher number.
    after_seq       INTEGER NOT NULL,
    failing_since   INTEGER,
    failures        INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    dropped         INTEGER NOT NULL,
    stopped_because TEXT,
    -- The policy set that declares it, if one does.
    set_name        TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE webhook_deliveries (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook      TEXT NOT NULL,
    message      TEXT NOT NULL,
    event_seq    INTEGER,
    type         TEXT NOT NULL,
    payload      TEXT NOT NULL,
    state        TEXT NOT NULL,
    made_at      INTEGER NOT NULL,
    delivered_at INTEGER,
    -- The latest ones, as JSON.
    attempts     TEXT NOT NULL
) STRICT;
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook, number);
CREATE INDEX webhook_deliveries_made ON webhook_deliveries (made_at);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (webhook, number) WHERE state = 'WAITING';
