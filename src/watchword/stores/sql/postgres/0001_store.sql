-- Tokens, policies, groups, actors, keys, events and operations, under the names they have in every store. Times are
-- milliseconds since 1970 by this database's clock. Text is compared byte by byte, whatever the database's locale.

-- Volatile, so that each statement of a function that runs after it sees what was committed while it ran.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- The one row of facts about the store itself.
CREATE TABLE state (
    one            integer PRIMARY KEY CHECK (one = 1),
    policy_version bigint NOT NULL,
    defaults_made  integer NOT NULL,
    sealed_salt    bytea,
    -- Older events than this may have been pruned.
    events_since   bigint NOT NULL DEFAULT 0,
    -- What the settings that all instances share were at the last start, as JSON; secrets are not among them.
    settings       text COLLATE "C",
    -- What stands before the colon in the id of an operation.
    node_id        text COLLATE "C" NOT NULL
);
INSERT INTO state (one, policy_version, defaults_made, node_id)
VALUES (1, 1, 0, left(replace(gen_random_uuid()::text, '-', ''), 22));

-- Written to prove that a write can be made; apart from what every verification reads.
CREATE TABLE probes (
    one integer PRIMARY KEY CHECK (one = 1),
    at  bigint
);
INSERT INTO probes (one) VALUES (1);

CREATE TABLE tokens (
    id                 text COLLATE "C" PRIMARY KEY,
    type               text COLLATE "C" NOT NULL,
    name               text COLLATE "C" NOT NULL,
    description        text COLLATE "C",
    actor_urn          text COLLATE "C" NOT NULL,
    owner_urn          text COLLATE "C" NOT NULL,
    created_at         bigint NOT NULL,
    expires_at         bigint,
    minted_with        text COLLATE "C",
    last_used_at       bigint,
    revoked_at         bigint,
    -- In small letters, where SQL's own lower() for ASCII would not do.
    name_folded        text COLLATE "C",
    description_folded text COLLATE "C"
) WITH (fillfactor = 90);

-- The lists that must cost the same at any size, in their order.
CREATE INDEX tokens_all   ON tokens (expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_actor ON tokens (actor_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;

-- Marks of transactions, kept for an hour: whether one whose commit got no answer took place. Its own number would not
-- tell: after a crash that is given again.
CREATE TABLE marks (
    mark text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL
);
CREATE INDEX marks_at ON marks (at);

-- Ids of tokens that were asked for, nobody received, and nobody knows to be kept: such a one is kept no more, should the
-- request still be on its way.
CREATE TABLE withdrawn (
    id text COLLATE "C" PRIMARY KEY,
    at bigint NOT NULL
);

-- How many tokens are not revoked: of all ('all', ''), of an actor, by an owner; the sum over the slots. Each transaction
-- that counts has a slot of its own while it lasts (`own_slot`), so that none waits for another's commit at a row, nor
-- two for each other.
CREATE TABLE token_totals (
    kind  text COLLATE "C" NOT NULL,
    urn   text COLLATE "C" NOT NULL,
    slot  integer NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (kind, urn, slot)
) WITH (fillfactor = 60);

CREATE FUNCTION count_token() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    step bigint := CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END;
    slot integer := coalesce(nullif(current_setting('watchword.slot', true), ''), '0');
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    VALUES ('actor', NEW.actor_urn, slot, step), ('all', '', slot, step), ('owner', NEW.owner_urn, slot, step)
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;

CREATE TRIGGER tokens_counted AFTER INSERT ON tokens
    FOR EACH ROW WHEN (NEW.revoked_at IS NULL) EXECUTE FUNCTION count_token();
CREATE TRIGGER tokens_uncounted AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION count_token();

-- A revocation is for ever.
CREATE FUNCTION refuse_revival() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revoked token stays revoked';
END $$;
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL) EXECUTE FUNCTION refuse_revival();

CREATE TABLE policies (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    state       text COLLATE "C" NOT NULL,
    privileges  text COLLATE "C" NOT NULL,
    users       text COLLATE "C" NOT NULL,
    groups      text COLLATE "C" NOT NULL,
    all_users   integer NOT NULL,
    source      text COLLATE "C" NOT NULL DEFAULT 'API'
);

CREATE TABLE groups (
    urn         text COLLATE "C" PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    members     bigint NOT NULL DEFAULT 0
);

CREATE TABLE group_members (
    actor_urn text COLLATE "C" NOT NULL,
    group_urn text COLLATE "C" NOT NULL REFERENCES groups (urn) ON DELETE CASCADE,
    PRIMARY KEY (actor_urn, group_urn)
);
CREATE INDEX group_members_group ON group_members (group_urn, actor_urn);

CREATE FUNCTION count_members() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE groups SET members = members + 1 WHERE urn = NEW.group_urn;
    ELSE
        UPDATE groups SET members = members - 1 WHERE urn = OLD.group_urn;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER group_members_counted AFTER INSERT OR DELETE ON group_members
    FOR EACH ROW EXECUTE FUNCTION count_members();

-- Only actors that were ever suspended have a row.
CREATE TABLE actors (
    urn        text COLLATE "C" PRIMARY KEY,
    status     text COLLATE "C" NOT NULL,
    changed_at bigint NOT NULL,
    changed_by text COLLATE "C" NOT NULL
);

CREATE TABLE keys (
    seq             bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    kid             text COLLATE "C" NOT NULL UNIQUE,
    public          bytea NOT NULL,
    sealed_private  bytea NOT NULL,
    created_at      bigint NOT NULL,
    retired_at      bigint,
    published_until bigint
);

CREATE TABLE events (
    seq        bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    actor      text COLLATE "C" NOT NULL,
    bearer_id  text COLLATE "C",
    action     text COLLATE "C" NOT NULL,
    target     text COLLATE "C" NOT NULL,
    peer       text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    detail     text COLLATE "C" NOT NULL
);
CREATE INDEX events_at     ON events (at, seq);
CREATE INDEX events_actor  ON events (actor, at, seq);
CREATE INDEX events_action ON events (action, at, seq);
CREATE INDEX events_target ON events (target, at, seq);

CREATE TABLE operations (
    number          bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
    -- Which search index: '' for the one all instances share, else the embedded one of one instance.
    home            text COLLATE "C" NOT NULL DEFAULT '',
    index_name      text COLLATE "C" NOT NULL,
    state           text COLLATE "C" NOT NULL,
    plan            text COLLATE "C" NOT NULL,
    work            text COLLATE "C" NOT NULL,
    asked_by        text COLLATE "C" NOT NULL,
    asked_at        bigint NOT NULL,
    started_at      bigint,
    changed_at      bigint,
    finished_at     bigint,
    cancel_asked_at bigint,
    cancel_asked_by text COLLATE "C",
    -- Nothing is written to it under a lower fence than this.
    fence           bigint NOT NULL DEFAULT 0,
    held_until      bigint NOT NULL DEFAULT 0
);
-- Of each index at most one at a time.
CREATE UNIQUE INDEX operations_active ON operations (home, index_name)
    WHERE state IN ('PLANNED', 'RUNNING', 'VERIFYING', 'SWAPPING');

-- What a write rests on, and what it changes, it holds until its commit: `policies`, `keys`, `actor:…`, `token:…`,
-- `room:…`. Shared by those who rely on it, alone by those who change it. All in one call, in the order of their
-- numbers, so that no two writes wait for each other.
CREATE FUNCTION lock_key(_name text) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.hashtextextended(current_schema()::text || '/' || _name, 0::bigint) $$;

CREATE FUNCTION hold(_shared text[], _alone text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lock record;
BEGIN
    FOR lock IN
        SELECT key, bool_or(alone) AS alone FROM (
            SELECT lock_key(name) AS key, false AS alone FROM unnest(_shared) AS name WHERE name IS NOT NULL
            UNION ALL
            SELECT lock_key(name), true FROM unnest(_alone) AS name) AS wanted
        GROUP BY key ORDER BY key
    LOOP
        IF lock.alone THEN
            PERFORM pg_advisory_xact_lock(lock.key);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(lock.key);
        END IF;
    END LOOP;
END $$;

-- A slot to count in that no other transaction has; the last thing a transaction waits for, so that whoever has one gets
-- to its end.
CREATE FUNCTION own_slot() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first integer := pg_backend_pid();
    slot integer;
BEGIN
    FOR i IN 0 .. 15 LOOP
        slot := (first + i) & 15;
        IF pg_try_advisory_xact_lock(lock_key('slot:' || slot)) THEN
            PERFORM set_config('watchword.slot', slot::text, true);
            RETURN;
        END IF;
    END LOOP;
    slot := first & 15;
    PERFORM pg_advisory_xact_lock(lock_key('slot:' || slot));
    PERFORM set_config('watchword.slot', slot::text, true);
END $$;

-- Whether what a decision rested on still holds. No version: the service itself, which has nothing to prove.
-- These are in plpgsql, which keeps the plans of a session; a function in plain SQL would be planned at each call.
CREATE FUNCTION proven(_actor text, _bearer text, _version bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN _version IS NULL OR (
        (SELECT policy_version FROM state WHERE one = 1) = _version
        AND NOT EXISTS (SELECT 1 FROM actors WHERE urn = _actor AND status = 'SUSPENDED')
        AND (_bearer IS NULL OR EXISTS (
            SELECT 1 FROM tokens WHERE id = _bearer AND actor_urn = _actor AND revoked_at IS NULL
                AND (expires_at IS NULL OR expires_at > now_ms()))));
END $$;

CREATE FUNCTION total_of(_kind text, _urn text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = _kind AND urn = _urn);
END $$;

-- Keep one new token of those that `add_tokens` holds the locks for. Says what became of it: kept, stale, suspended, full,
-- withdrawn; there: it was kept before; again: the number of the actor's tokens has come near the limit meanwhile.
CREATE FUNCTION keep_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _kid text, _max_live bigint, _detail text,
    _id text, _type text, _name text, _description text, _actor_urn text, _owner_urn text, _created_at bigint,
    _expires_at bigint, _minted_with text, _name_folded text, _description_folded text, _near boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    held bigint;
    live bigint;
    moment bigint := now_ms(); -- as a value, which an index can be asked for
BEGIN
    IF EXISTS (SELECT 1 FROM tokens WHERE id = _id) THEN
        RETURN 'there';
    END IF;
    IF EXISTS (SELECT 1 FROM withdrawn WHERE id = _id) THEN
        RETURN 'withdrawn';
    END IF;
    IF NOT proven(_actor, _bearer, _version) OR (SELECT kid FROM keys ORDER BY seq DESC LIMIT 1) <> _kid THEN
        RETURN 'stale';
    END IF;
    IF EXISTS (SELECT 1 FROM actors WHERE urn = _actor_urn AND status = 'SUSPENDED') THEN
        RETURN 'suspended';
    END IF;
    held := total_of('actor', _actor_urn);
    IF NOT _near AND held > room(_max_live) THEN
        RETURN 'again';
    END IF;
    IF held >= _max_live THEN
        SELECT count(*) INTO live FROM (
            SELECT 1 FROM tokens WHERE actor_urn = _actor_urn AND revoked_at IS NULL AND expires_at IS NULL
            UNION ALL
            SELECT 1 FROM tokens WHERE actor_urn = _actor_urn AND revoked_at IS NULL AND expires_at > moment
            LIMIT _max_live) AS those;
        IF live >= _max_live THEN
            RETURN 'full';
        END IF;
    END IF;
    INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
        name_folded, description_folded)
    VALUES (_id, _type, _name, _description, _actor_urn, _owner_urn, _created_at, _expires_at, _minted_with,
        _name_folded, _description_folded);
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    VALUES (moment, _actor, _bearer, 'token.created', _id, _peer, _request, _detail);
    RETURN 'kept';
END $$;

-- Up to how many tokens an actor's creates share the lock of its limit; beyond, each counts alone. The rest is more than
-- can be under way at once.
CREATE FUNCTION room(_max_live bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT _max_live - greatest(1000, _max_live / 2) $$;

-- Keep new tokens that wait together: each judged by itself, all in one commit.
CREATE FUNCTION add_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _kids text[],
    _max_lives bigint[], _details text[], _ids text[], _types text[], _names text[], _descriptions text[],
    _actor_urns text[], _owner_urns text[], _created_ats bigint[], _expires_ats bigint[], _minted_withs text[],
    _names_folded text[], _descriptions_folded text[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    near boolean[];
    outcomes text[] := '{}';
BEGIN
    SELECT array_agg(total_of('actor', actor) > room(most) ORDER BY n) INTO near
    FROM unnest(_actor_urns, _max_lives) WITH ORDINALITY AS limits (actor, most, n);
    PERFORM hold(
        ARRAY['policies', 'keys']
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors || _actor_urns) AS urn)
            || ARRAY(SELECT 'token:' || id FROM unnest(_bearers) AS id)
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE NOT r.near),
        ARRAY(SELECT 'token:' || id FROM unnest(_ids) AS id)
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE r.near));
    PERFORM own_slot();
    FOR i IN 1 .. cardinality(_ids) LOOP
        outcomes := outcomes || keep_token(
            _actors[i], _bearers[i], _versions[i], _peers[i], _requests[i], _kids[i], _max_lives[i], _details[i],
            _ids[i], _types[i], _names[i], _descriptions[i], _actor_urns[i], _owner_urns[i], _created_ats[i],
            _expires_ats[i], _minted_withs[i], _names_folded[i], _descriptions_folded[i], near[i]);
    END LOOP;
    RETURN outcomes;
END $$;

-- Revoke, and say when: (revoked, when), (already, when it was), (unknown, null), (stale, null). With `_only_of`, a token
-- that is neither of nor by that actor is unknown.
CREATE FUNCTION revoke_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _only_of text,
    OUT outcome text, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    found_actor text;
    found_owner text;
    found_end bigint;
BEGIN
    PERFORM hold(ARRAY['policies', 'actor:' || _actor, 'token:' || _bearer], ARRAY['token:' || _id]);
    IF NOT proven(_actor, _bearer, _version) THEN
        outcome := 'stale';
        RETURN;
    END IF;
    SELECT actor_urn, owner_urn, revoked_at INTO found_actor, found_owner, found_end FROM tokens WHERE id = _id;
    IF found_actor IS NULL OR (_only_of IS NOT NULL AND _only_of NOT IN (found_actor, found_owner)) THEN
        outcome := 'unknown';
    ELSIF found_end IS NOT NULL THEN
        outcome := 'already';
        at := found_end;
    ELSE
        outcome := 'revoked';
        PERFORM own_slot();
        at := now_ms();
        UPDATE tokens SET revoked_at = revoke_token.at WHERE id = _id;
        INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
        VALUES (revoke_token.at, _actor, _bearer, 'token.revoked', _id, _peer, _request,
            pg_catalog.json_build_object('actorUrn', found_actor)::text);
    END IF;
END $$;

-- End a token that nobody received, whether it was kept, is about to be, or never will.
CREATE FUNCTION withdraw_token(_id text, _actor text, _peer text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT outcome FROM revoke_token(_actor, NULL, NULL, _peer, '', _id, NULL)) = 'unknown' THEN
        DELETE FROM withdrawn WHERE at < now_ms() - 86400000;
        INSERT INTO withdrawn (id, at) VALUES (_id, now_ms()) ON CONFLICT DO NOTHING;
    END IF;
END $$;

-- Leave this transaction's mark, and hold it until the end: whoever looks for it waits until it is there or never will be.
CREATE FUNCTION leave_mark(_mark text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('mark:' || _mark));
    INSERT INTO marks (mark, at) VALUES (_mark, now_ms());
    IF random() < 0.01 THEN
        DELETE FROM marks WHERE mark = ANY (ARRAY(
            SELECT mark FROM marks WHERE at < now_ms() - 3600000 LIMIT 1000 FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

CREATE FUNCTION has_mark(_mark text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('mark:' || _mark));
    RETURN EXISTS (SELECT 1 FROM marks WHERE mark = _mark);
END $$;
