-- What only PostgreSQL has. Times are by the clock of the database.

-- VOLATILE, so that each statement of a function that waited for a lock sees the commits until then.
CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint $$;

-- A value that is compressed or moved out of the row takes no page.
ALTER TABLE probes ALTER COLUMN filler SET STORAGE PLAIN;

-- Marks of committed transactions, kept for an hour. If a commit gets no answer, the mark says whether it took place.
-- The number of the transaction cannot say it: PostgreSQL may use it again after a crash.
CREATE TABLE commit_marks (
    mark text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL
);
CREATE INDEX commit_marks_at ON commit_marks (at);

-- ---- Tokens ----

ALTER TABLE tokens
    -- In lower case; NULL: lower() does it, which knows ASCII only.
    ADD COLUMN name_folded text COLLATE "C",
    ADD COLUMN description_folded text COLLATE "C";
-- In the order of lists, like tokens_actor.
CREATE INDEX tokens_all   ON tokens (expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_owner ON tokens (owner_urn, expires_at DESC NULLS LAST, id) WHERE revoked_at IS NULL;

CREATE FUNCTION reject_undone_revocation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revoked token stays revoked';
END $$;
CREATE TRIGGER tokens_stay_revoked BEFORE UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NOT NULL) EXECUTE FUNCTION reject_undone_revocation();

-- The number of tokens that are not revoked: of all ('all', ''), per actor, per owner; the sum over the slots. Each
-- transaction that counts locks a slot until its commit (`take_slot`). With one row for all, each would wait for the
-- commit of another.
CREATE TABLE token_totals (
    kind  text COLLATE "C" NOT NULL,
    urn   text COLLATE "C" NOT NULL,
    slot  integer NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (kind, urn, slot)
) WITH (fillfactor = 60);

CREATE FUNCTION current_slot() RETURNS integer LANGUAGE sql STABLE
AS $$ SELECT coalesce(nullif(current_setting('watchword.slot', true), ''), '0')::integer $$;

CREATE FUNCTION count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    SELECT kind, urn, current_slot(), count(*) FROM added, LATERAL (
        VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
    WHERE revoked_at IS NULL GROUP BY kind, urn
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_counted AFTER INSERT ON tokens REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_added();

CREATE FUNCTION count_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    VALUES ('actor', OLD.actor_urn, current_slot(), -1), ('all', '', current_slot(), -1),
        ('owner', OLD.owner_urn, current_slot(), -1)
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_uncounted AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (
        OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL
        -- A transaction with a slot counts what it revokes itself, once for each statement.
        AND coalesce(current_setting('watchword.slot', true), '') = '')
    EXECUTE FUNCTION count_removed();
CREATE TRIGGER tokens_purged AFTER DELETE ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL) EXECUTE FUNCTION count_removed();

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

-- ---- Locks ----
-- Advisory locks by name, until the commit. A write takes shared locks on what its precondition rests on and exclusive
-- locks on what it changes; in one call and in the order of their keys, so that no two writes deadlock.
--
-- `policies`, `keys`, `actor:…`: what an authorization rests on.
-- `token:…`: a token family, by the id of its oldest token. A family never changes, so it may be read before it is
--     locked. Shared by writes with a bearer of the family and by derivations from it. Exclusive for a rotation, the
--     first use of a successor and a revocation: except in a cascade, all tokens that are revoked together are of one
--     family. A new token is locked by its own id too, against a withdrawal.
-- `tokens`: all families. Exclusive for writes to many of them: a cascade, a bulk revocation, a deleted account. Shared
--     by all that lock a family or change a row of a token.
-- `limit:…`: an actor's token limit. `idempotency:…`: exclusive for a request with this key. `index:…`: operations.
--
-- Then a transaction takes its slot, then rows of tokens, in the order of their ids unless it has `tokens` exclusively.

CREATE FUNCTION lock_key(_name text) RETURNS bigint LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.hashtextextended(current_schema()::text || '/' || _name, 0::bigint) $$;

-- The subquery has the order in which the locks are taken.
CREATE FUNCTION lock_names(_shared text[], _exclusive text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM CASE WHEN exclusive THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
    FROM (
        SELECT key, bool_or(exclusive) AS exclusive FROM (
            SELECT lock_key(name) AS key, false AS exclusive FROM unnest(_shared) AS name WHERE name IS NOT NULL
            UNION ALL
            SELECT lock_key(name), true FROM unnest(_exclusive) AS name WHERE name IS NOT NULL) AS wanted
        GROUP BY key ORDER BY key) AS ordered;
END $$;

-- The lock of the family of each of these tokens.
CREATE FUNCTION family_locks(_ids text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT 'token:' || coalesce((SELECT t.root FROM tokens AS t WHERE t.id = wanted.id), wanted.id)
        FROM unnest(_ids) WITH ORDINALITY AS wanted (id, n) ORDER BY n);
END $$;

-- Lock a slot to count in, until the commit; a free one if there is one. Only rows of tokens are locked after it: a
-- transaction with a slot never waits for a lock by name, so waiting for a slot cannot deadlock.
CREATE FUNCTION take_slot() RETURNS void LANGUAGE plpgsql AS $$
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

-- In PL/pgSQL, which caches the plan; a function in SQL would be planned at each call.
CREATE FUNCTION total_of(_kind text, _urn text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = _kind AND urn = _urn);
END $$;

-- ---- Marks of commits ----

-- The lock lets `has_mark` wait until this transaction is committed or rolled back.
CREATE FUNCTION write_mark(_mark text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_key('mark:' || _mark));
    INSERT INTO commit_marks (mark, at) VALUES (_mark, now_ms());
    IF random() < 0.01 THEN
        DELETE FROM commit_marks WHERE mark = ANY (ARRAY(
            SELECT mark FROM commit_marks WHERE at < now_ms() - 3600000 LIMIT 1000 FOR UPDATE SKIP LOCKED));
    END IF;
END $$;

CREATE FUNCTION has_mark(_mark text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(lock_key('mark:' || _mark));
    RETURN EXISTS (SELECT 1 FROM commit_marks WHERE mark = _mark);
END $$;
