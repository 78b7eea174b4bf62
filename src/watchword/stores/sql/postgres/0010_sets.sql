-- New tokens and revocations that wait together are judged and written as a set: one statement each for locks,
-- judgment, rows, events and totals. Unless all of them may be written, and none changes the judgment of another, each
-- is judged and written alone, in turn, by the same statements.

DROP FUNCTION add_tokens(
    text[], text[], bigint[], text[], text[], text[], bigint[], text[], text[], text[], text[], text[], text[],
    bigint[], bigint[], text[], text[], text[], text[], text[], text[], bigint[], bigint[], text[], text[], text[],
    text[], text[], text[]);
DROP FUNCTION keep_token(
    text, text, bigint, text, text, text, bigint, text, text, text, text, text, text, bigint, bigint, text, text, text,
    text, text, text, bigint, bigint, text, text, text, text, text, text, boolean);
DROP FUNCTION issue_fault(text, text, text, text, bigint, text, text);
DROP FUNCTION keep_retry(text, text, text, text, bigint, bigint);
DROP FUNCTION withdraw_token(text, text, text, text);
DROP FUNCTION revoke_token(text, text, bigint, text, text, text, text, boolean, boolean, boolean);
DROP FUNCTION revoke_locked(text, text, bigint, text, text, text, text, boolean, boolean, boolean);
DROP FUNCTION proven(text, text, bigint);

-- The locks are taken one by one, in the order of the subquery.
CREATE OR REPLACE FUNCTION hold(_shared text[], _alone text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM CASE WHEN alone THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
    FROM (
        SELECT key, bool_or(alone) AS alone FROM (
            SELECT lock_key(name) AS key, false AS alone FROM unnest(_shared) AS name WHERE name IS NOT NULL
            UNION ALL
            SELECT lock_key(name), true FROM unnest(_alone) AS name WHERE name IS NOT NULL) AS wanted
        GROUP BY key ORDER BY key) AS ordered;
END $$;

-- The lock of the family of each of these tokens. A family never changes, so it may be read before it is locked.
CREATE FUNCTION family_locks(_ids text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT 'token:' || coalesce((SELECT t.root FROM tokens AS t WHERE t.id = wanted.id), wanted.id)
        FROM unnest(_ids) WITH ORDINALITY AS wanted (id, n) ORDER BY n);
END $$;

-- Whether the precondition of a write holds. Without a version it always does: the service itself. PostgreSQL puts the
-- body of such a function into the statement that uses it, and plans both as one.
-- Scalar subqueries here and below, not EXISTS and joins: one look into an index for each, whatever the sizes of the
-- tables were when the plan was made.
CREATE FUNCTION precondition(_actor text, _bearer text, _version bigint, _now bigint) RETURNS TABLE (holds boolean)
LANGUAGE sql STABLE AS $$
    SELECT _version IS NULL OR (
        _version = (SELECT policy_version FROM state WHERE one = 1)
        AND coalesce((SELECT status FROM actors WHERE urn = _actor), '') <> 'SUSPENDED'
        AND (_bearer IS NULL OR coalesce((
            SELECT actor_urn = _actor AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > _now)
            FROM tokens WHERE id = _bearer), false)))
$$;

-- The totals of new tokens are counted once for each statement that inserts them.
CREATE FUNCTION count_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO token_totals AS t (kind, urn, slot, total)
    SELECT kind, urn, own_slot_number(), count(*) FROM added, LATERAL (
        VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
    WHERE revoked_at IS NULL GROUP BY kind, urn
    ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total;
    RETURN NULL;
END $$;
DROP TRIGGER tokens_counted ON tokens;
CREATE TRIGGER tokens_counted AFTER INSERT ON tokens REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION count_added();

-- A token to add, with the request. `near`: the number of its actor's tokens was near the limit before the locks were
-- taken, and `room` is locked exclusively.
CREATE TYPE new_token AS (
    actor text, bearer text, version bigint, peer text, request text, kid text, max_live bigint, action text,
    detail text, retry_actor text, retry_digest text, retry_kid text, retry_token text, retry_created_at bigint,
    retry_expires_at bigint, id text, type text, name text, description text, actor_urn text, owner_urn text,
    created_at bigint, expires_at bigint, minted_with text, limits text, parent text, root text, name_folded text,
    description_folded text, near boolean
);

-- Add tokens under the locks that `add_tokens` takes. The outcome of each is one of: kept; there: its id is in use;
-- withdrawn; stale; repeated: its key was used less than a day ago; unknown: its service account; suspended: its actor;
-- again: the number of its actor's tokens came near the limit before the locks were taken; full.
CREATE FUNCTION add_locked(_wanted new_token[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    number integer := cardinality(_wanted);
    moment bigint := now_ms(); -- a value, which an index can be searched for
    day_ago bigint := moment - 86400000;
    keyed bigint;
    outcomes text[];
BEGIN
    SELECT array_agg(CASE
        WHEN (SELECT true FROM tokens WHERE id = w.id) THEN 'there'
        WHEN (SELECT true FROM withdrawn WHERE id = w.id) THEN 'withdrawn'
        WHEN precondition.holds IS NOT TRUE THEN 'stale'
        WHEN w.retry_digest IS NOT NULL AND (
            SELECT r.created_at > day_ago FROM retries AS r
            WHERE r.actor = w.retry_actor AND r.digest = w.retry_digest) THEN 'repeated'
        WHEN (SELECT kid FROM keys ORDER BY seq DESC LIMIT 1) IS DISTINCT FROM w.kid THEN 'stale'
        WHEN w.type = 'SERVICE_ACCOUNT' AND (
            SELECT true FROM service_accounts WHERE urn = w.actor_urn AND deleted_at IS NULL) IS NULL THEN 'unknown'
        WHEN (SELECT status = 'SUSPENDED' FROM actors WHERE urn = w.actor_urn) THEN 'suspended'
        -- An unused successor has no children: it may be revoked alone.
        WHEN w.parent IS NOT NULL AND (
            SELECT p.revoked_at IS NULL AND p.grace IS NULL AND (p.expires_at IS NULL OR p.expires_at >= w.expires_at)
            FROM tokens AS p WHERE p.id = w.parent) IS NOT TRUE THEN 'stale'
        WHEN NOT w.near AND of_actor.held > room(w.max_live) THEN 'again'
        -- Expired tokens do not count. Of several new ones, each is judged alone.
        WHEN of_actor.held >= w.max_live AND (number > 1 OR w.max_live <= (
            SELECT count(*) FROM (
                SELECT 1 FROM tokens WHERE actor_urn = w.actor_urn AND revoked_at IS NULL AND expires_at IS NULL
                UNION ALL
                SELECT 1 FROM tokens WHERE actor_urn = w.actor_urn AND revoked_at IS NULL AND expires_at > moment
                LIMIT w.max_live) AS live)) THEN 'full'
        ELSE 'kept' END ORDER BY w.ordinality), count(w.retry_digest) INTO outcomes, keyed
    FROM unnest(_wanted) WITH ORDINALITY AS w
        CROSS JOIN LATERAL precondition(w.actor, w.bearer, w.version, moment)
        CROSS JOIN LATERAL (
            -- As if all others of this set were of the same actor and added: if that is too many, each is judged alone.
            SELECT coalesce(sum(total), 0) + number - 1 AS held FROM token_totals
            WHERE kind = 'actor' AND urn = w.actor_urn) AS of_actor;
    IF number > 1 AND ('kept' <> ANY (outcomes) OR (
        SELECT count(DISTINCT id) < number
            OR count(DISTINCT (retry_actor, retry_digest)) FILTER (WHERE retry_digest IS NOT NULL) < keyed
        FROM unnest(_wanted))) THEN
        FOR i IN 1 .. number LOOP
            outcomes[i] := (add_locked(_wanted[i:i]))[1];
        END LOOP;
        RETURN outcomes;
    END IF;
    IF 'kept' <> ANY (outcomes) THEN
        RETURN outcomes;
    END IF;
    IF keyed > 0 THEN
        INSERT INTO retries (actor, digest, kid, token_id, created_at, expires_at)
        SELECT retry_actor, retry_digest, retry_kid, retry_token, retry_created_at, retry_expires_at
        FROM unnest(_wanted) WHERE retry_digest IS NOT NULL
        ON CONFLICT ON CONSTRAINT retries_pkey DO UPDATE SET kid = excluded.kid, token_id = excluded.token_id,
            created_at = excluded.created_at, expires_at = excluded.expires_at;
    END IF;
    INSERT INTO tokens (id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
        limits, parent, root, name_folded, description_folded)
    SELECT id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with,
        limits, parent, root, name_folded, description_folded
    FROM unnest(_wanted);
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    SELECT moment, actor, bearer, action, id, peer, request, detail FROM unnest(_wanted);
    RETURN outcomes;
END $$;

-- Add new tokens that wait together, in one commit; returns the outcome of each.
CREATE FUNCTION add_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _kids text[],
    _max_lives bigint[], _actions text[], _details text[], _retry_actors text[], _retry_digests text[],
    _retry_kids text[], _retry_tokens text[], _retry_created_ats bigint[], _retry_expires_ats bigint[], _ids text[],
    _types text[], _names text[], _descriptions text[], _actor_urns text[], _owner_urns text[], _created_ats bigint[],
    _expires_ats bigint[], _minted_withs text[], _limits text[], _parents text[], _roots text[], _names_folded text[],
    _descriptions_folded text[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    near boolean[] := ARRAY(
        SELECT room(most) < (SELECT coalesce(sum(total), 0) FROM token_totals WHERE kind = 'actor' AND urn = actor)
        FROM unnest(_actor_urns, _max_lives) WITH ORDINALITY AS limits (actor, most, n) ORDER BY n);
BEGIN
    PERFORM hold(
        ARRAY['policies', 'keys', 'tokens'] || family_locks(_bearers || _parents)
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors || _actor_urns) AS urn)
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE NOT r.near),
        ARRAY(SELECT 'token:' || id FROM unnest(_ids) AS id)
            || ARRAY(SELECT 'retry:' || digest || actor FROM unnest(_retry_actors, _retry_digests) AS r (actor, digest))
            || ARRAY(SELECT 'room:' || urn FROM unnest(_actor_urns, near) AS r (urn, near) WHERE r.near));
    PERFORM own_slot();
    RETURN add_locked(ARRAY(
        SELECT ROW(wanted.*)::new_token FROM unnest(
            _actors, _bearers, _versions, _peers, _requests, _kids, _max_lives, _actions, _details, _retry_actors,
            _retry_digests, _retry_kids, _retry_tokens, _retry_created_ats, _retry_expires_ats, _ids, _types, _names,
            _descriptions, _actor_urns, _owner_urns, _created_ats, _expires_ats, _minted_withs, _limits, _parents,
            _roots, _names_folded, _descriptions_folded, near) AS wanted));
END $$;

-- A token to revoke, with the request. With `visible_to` a token that is neither of that actor nor, with `created`,
-- made by it is unknown; with `accounts` those of service accounts are not. `family`: the lock that was taken for it.
CREATE TYPE revocation AS (
    actor text, bearer text, version bigint, peer text, request text, id text, visible_to text, accounts boolean,
    created boolean, possession boolean, family text
);

-- Revoke tokens whose families are locked. The outcome of each is one of: revoked, at this time; already revoked, at
-- that time; unknown; stale; family: others may have to be revoked with it.
CREATE FUNCTION revoke_locked(_wanted revocation[], OUT outcomes text[], OUT ats bigint[]) LANGUAGE plpgsql AS $$
DECLARE
    number integer := cardinality(_wanted);
    moment bigint := now_ms();
    ids text[];
    alone record;
BEGIN
    SELECT array_agg(CASE
            WHEN precondition.holds IS NOT TRUE THEN 'stale'
            -- In another family: created since the lock was taken, it did not exist when the request came.
            WHEN t.id IS NULL OR 'token:' || coalesce(t.root, t.id) <> w.family OR (
                w.visible_to IS NULL OR w.visible_to = t.actor_urn OR (w.created AND w.visible_to = t.owner_urn)
                OR (w.accounts AND t.type = 'SERVICE_ACCOUNT')) IS NOT TRUE THEN 'unknown'
            WHEN t.revoked_at IS NOT NULL THEN 'already'
            WHEN t.replaces IS NOT NULL OR t.replaced_by IS NOT NULL OR (
                SELECT true FROM tokens WHERE parent = w.id AND parent IS NOT NULL AND revoked_at IS NULL LIMIT 1)
                THEN 'family'
            ELSE 'revoked' END ORDER BY w.ordinality),
        array_agg(coalesce(t.revoked_at, moment) ORDER BY w.ordinality), array_agg(w.id) INTO outcomes, ats, ids
    FROM unnest(_wanted) WITH ORDINALITY AS w
        CROSS JOIN LATERAL precondition(w.actor, w.bearer, w.version, moment)
        LEFT JOIN LATERAL (SELECT * FROM tokens WHERE tokens.id = w.id LIMIT 1) AS t ON true;
    IF number > 1 AND ('revoked' <> ANY (outcomes) OR (
        SELECT count(DISTINCT id) < number OR bool_or(bearer = ANY (ids)) FROM unnest(_wanted))) THEN
        FOR i IN 1 .. number LOOP
            alone := revoke_locked(_wanted[i:i]);
            outcomes[i] := alone.outcomes[1];
            ats[i] := alone.ats[1];
        END LOOP;
        RETURN;
    END IF;
    IF 'revoked' <> ANY (outcomes) THEN
        RETURN;
    END IF;
    PERFORM set_config('watchword.counts', 'together', true);
    WITH revoked AS (
        -- Not in the words of the partial indexes: a plan made on an empty table would go through one of them.
        UPDATE tokens SET revoked_at = moment WHERE id = ANY (ids) RETURNING id, actor_urn, owner_urn
    ), counted AS (
        INSERT INTO token_totals AS t (kind, urn, slot, total)
        SELECT kind, urn, own_slot_number(), -count(*) FROM revoked, LATERAL (
            VALUES ('actor', actor_urn), ('all', ''), ('owner', owner_urn)) AS each_of (kind, urn)
        GROUP BY kind, urn
        ON CONFLICT ON CONSTRAINT token_totals_pkey DO UPDATE SET total = t.total + excluded.total
    )
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    SELECT moment, w.actor, w.bearer, 'token.revoked', w.id, w.peer, w.request,
        pg_catalog.json_strip_nulls(pg_catalog.json_build_object(
            'actorUrn', r.actor_urn, 'byPossession', CASE WHEN w.possession THEN true END))::text
    FROM unnest(_wanted) WITH ORDINALITY AS w JOIN revoked AS r ON r.id = w.id ORDER BY w.ordinality;
    PERFORM set_config('watchword.counts', '', true);
END $$;

-- Revoke tokens without relatives that wait together, in one commit; returns the outcome of each. Fails if it does not
-- get a lock within `_patience`; '0': it waits as long as a statement may take.
CREATE FUNCTION revoke_tokens(
    _actors text[], _bearers text[], _versions bigint[], _peers text[], _requests text[], _ids text[],
    _visible_to text[], _accounts boolean[], _created boolean[], _possession boolean[], _patience text DEFAULT '0',
    OUT outcomes text[], OUT ats bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    families text[] := family_locks(_ids);
BEGIN
    PERFORM set_config('lock_timeout', _patience, true);
    PERFORM hold(
        ARRAY['policies', 'tokens'] || family_locks(_bearers)
            || ARRAY(SELECT 'actor:' || urn FROM unnest(_actors) AS urn),
        families);
    PERFORM own_slot();
    IF cardinality(_ids) > 1 THEN
        PERFORM 1 FROM tokens WHERE id = ANY (_ids) ORDER BY id FOR NO KEY UPDATE;
    END IF;
    SELECT locked.outcomes, locked.ats INTO outcomes, ats FROM revoke_locked(ARRAY(
        SELECT ROW(wanted.*)::revocation FROM unnest(
            _actors, _bearers, _versions, _peers, _requests, _ids, _visible_to, _accounts, _created, _possession,
            families) AS wanted)) AS locked;
END $$;

-- Revoke a token that its caller never received, whether it was added, is about to be added, or never will be.
CREATE FUNCTION withdraw_token(_id text, _family text, _actor text, _peer text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold(ARRAY['tokens'], ARRAY['token:' || _id, 'token:' || _family]);
    PERFORM own_slot();
    IF 'unknown' = (SELECT outcomes[1] FROM revoke_locked(ARRAY[ROW(
        _actor, NULL, NULL, _peer, '', _id, NULL, false, false, false, 'token:' || _family)::revocation])) THEN
        DELETE FROM withdrawn WHERE at < now_ms() - 86400000;
        INSERT INTO withdrawn (id, at) VALUES (_id, now_ms()) ON CONFLICT DO NOTHING;
    END IF;
END $$;
