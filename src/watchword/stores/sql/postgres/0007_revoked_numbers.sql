-- A revocation says how many tokens it ended: this one, and those that died with it.

DROP FUNCTION revoke_token(text, text, bigint, text, text, text, text, boolean, boolean, bigint, boolean);
DROP FUNCTION revoke_held(text, text, bigint, text, text, text, text, boolean, boolean, bigint, boolean);

CREATE FUNCTION revoke_held(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _reach text, _accounts boolean,
    _created boolean, _most bigint, _possession boolean, OUT outcome text, OUT at bigint, OUT number bigint
) LANGUAGE plpgsql AS $$
DECLARE
    token tokens;
    ids text[];
BEGIN
    IF NOT proven(_actor, _bearer, _version) THEN
        outcome := 'stale';
        RETURN;
    END IF;
    SELECT * INTO token FROM tokens WHERE id = _id;
    IF token.id IS NULL OR NOT (
        _reach IS NULL OR _reach = token.actor_urn OR (_created AND _reach = token.owner_urn)
        OR (_accounts AND token.type = 'SERVICE_ACCOUNT')) THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    IF token.revoked_at IS NOT NULL THEN
        outcome := 'already';
        at := token.revoked_at;
        RETURN;
    END IF;
    at := now_ms();
    ids := dying(ARRAY[_id], at, false, true, _most + 1);
    IF cardinality(ids) > _most THEN
        outcome := 'many';
        at := NULL;
        RETURN;
    END IF;
    PERFORM own_slot();
    IF cardinality(ids) > 1 THEN
        PERFORM hold_rows(ids);
    END IF;
    number := end_tokens(ids, at, _actor, _bearer, _peer, _request, _id, _possession);
    outcome := 'revoked';
END $$;

CREATE FUNCTION revoke_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _reach text, _accounts boolean,
    _created boolean, _most bigint, _possession boolean, OUT outcome text, OUT at bigint, OUT number bigint
) LANGUAGE plpgsql AS $$
DECLARE
    family text := family_of(_id);
BEGIN
    PERFORM hold(
        ARRAY['policies', 'actor:' || _actor, 'tokens', 'token:' || family_of(_bearer)], ARRAY['token:' || family]);
    IF family_of(_id) <> family THEN
        outcome := 'unknown'; -- it came into a family of others since we looked: when we were asked it was not there
        RETURN;
    END IF;
    SELECT held.outcome, held.at, held.number INTO outcome, at, number
    FROM revoke_held(_actor, _bearer, _version, _peer, _request, _id, _reach, _accounts, _created, _most, _possession)
    AS held;
END $$;
