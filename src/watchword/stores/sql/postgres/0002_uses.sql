-- Uses by day. Days are since 1970, in UTC. domain/uses.py has the number of days that are kept.

CREATE TABLE token_uses (
    token_id text COLLATE "C" NOT NULL,
    day      bigint NOT NULL,
    uses     bigint NOT NULL,
    PRIMARY KEY (token_id, day)
) WITH (fillfactor = 80);
CREATE INDEX token_uses_day ON token_uses (day);

-- Sums over the whole store: 'uses', and the actions of rejected requests.
CREATE TABLE day_counts (
    kind   text COLLATE "C" NOT NULL,
    day    bigint NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (kind, day)
) WITH (fillfactor = 10);
