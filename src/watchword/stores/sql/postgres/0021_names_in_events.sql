-- The event of a revoked token has the token's name, which stays readable after the token is purged.

-- Revoke tokens whose families are locked. The outcome of each is one of: revoked, at this time; already revoked, at
-- that time; unknown; stale; family: others may have to be revoked with it.
CREATE OR REPLACE FUNCTION revoke_locked(_wanted revocation[], OUT outcomes text[], OUT ats bigint[]) LANGUAGE plpgsql AS $$
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
        UPDATE tokens SET revoked_at = moment WHERE id = ANY (ids) RETURNING id, actor_urn, owner_urn, name
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
            'name', r.name, 'actorUrn', r.actor_urn, 'byPossession', CASE WHEN w.possession THEN true END))::text
    FROM unnest(_wanted) WITH ORDINALITY AS w JOIN revoked AS r ON r.id = w.id ORDER BY w.ordinality;
    PERFORM set_config('watchword.counts', '', true);
END $$;
