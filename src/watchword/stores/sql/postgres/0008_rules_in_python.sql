-- The rules of a token's life are written once for every database, in Python. What stays here is what needs one round
-- trip: adding tokens, revoking one without relatives, and withdrawing one.

DROP FUNCTION note_first_use(text, text, text, text, text);
DROP FUNCTION note_uses(text[], bigint[], bigint[], text[]);
DROP FUNCTION purge_tokens(bigint, bigint);
DROP FUNCTION purge_retries(bigint);
DROP FUNCTION revoke_token(text, text, bigint, text, text, text, text, boolean, boolean, bigint, boolean);
DROP FUNCTION revoke_held(text, text, bigint, text, text, text, text, boolean, boolean, bigint, boolean);
DROP FUNCTION withdraw_token(text, text, text, text);
DROP FUNCTION dying(text[], bigint, boolean, boolean, bigint);
DROP FUNCTION end_tokens(text[], bigint, text, text, text, text, text, boolean);
DROP FUNCTION hold_rows(text[]);

-- Revoke one token, whose family is locked. The outcome is one of: revoked, at this time; already revoked, at that time;
-- unknown; stale; family: others may have to be revoked with it. With `_visible_to` a token that is neither of that actor
-- nor, with `_created`, made by it is unknown; with `_accounts` those of service accounts are not.
CREATE FUNCTION revoke_locked(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _visible_to text, _accounts boolean,
    _created boolean, _possession boolean, OUT outcome text, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    token tokens;
BEGIN
    IF NOT proven(_actor, _bearer, _version) THEN
        outcome := 'stale';
        RETURN;
    END IF;
    SELECT * INTO token FROM tokens WHERE id = _id;
    IF token.id IS NULL OR NOT (
        _visible_to IS NULL OR _visible_to = token.actor_urn OR (_created AND _visible_to = token.owner_urn)
        OR (_accounts AND token.type = 'SERVICE_ACCOUNT')) THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    IF token.revoked_at IS NOT NULL THEN
        outcome := 'already';
        at := token.revoked_at;
        RETURN;
    END IF;
    IF token.replaces IS NOT NULL OR token.replaced_by IS NOT NULL
        OR EXISTS (SELECT 1 FROM tokens WHERE parent = _id AND parent IS NOT NULL AND revoked_at IS NULL) THEN
        outcome := 'family';
        RETURN;
    END IF;
    PERFORM own_slot();
    at := now_ms();
    -- Not in the words of the partial indexes: a plan made on an empty table would go through one of them.
    UPDATE tokens SET revoked_at = revoke_locked.at WHERE id = _id;
    INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
    VALUES (revoke_locked.at, _actor, _bearer, 'token.revoked', _id, _peer, _request,
        pg_catalog.json_strip_nulls(pg_catalog.json_build_object(
            'actorUrn', token.actor_urn, 'byPossession', CASE WHEN _possession THEN true END))::text);
    outcome := 'revoked';
END $$;

CREATE FUNCTION revoke_token(
    _actor text, _bearer text, _version bigint, _peer text, _request text, _id text, _visible_to text, _accounts boolean,
    _created boolean, _possession boolean, OUT outcome text, OUT at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    family text := family_of(_id);
BEGIN
    PERFORM hold(
        ARRAY['policies', 'actor:' || _actor, 'tokens', 'token:' || family_of(_bearer)], ARRAY['token:' || family]);
    IF family_of(_id) <> family THEN
        outcome := 'unknown'; -- created since the lock was taken: it did not exist when the request came
        RETURN;
    END IF;
    SELECT locked.outcome, locked.at INTO outcome, at
    FROM revoke_locked(_actor, _bearer, _version, _peer, _request, _id, _visible_to, _accounts, _created, _possession)
    AS locked;
END $$;

-- Revoke a token that its caller never received, whether it was added, is about to be added, or never will be.
CREATE FUNCTION withdraw_token(_id text, _family text, _actor text, _peer text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM hold(ARRAY['tokens'], ARRAY['token:' || _id, 'token:' || _family]);
    IF (SELECT outcome FROM revoke_locked(_actor, NULL, NULL, _peer, '', _id, NULL, false, false, false)) = 'unknown' THEN
        DELETE FROM withdrawn WHERE at < now_ms() - 86400000;
        INSERT INTO withdrawn (id, at) VALUES (_id, now_ms()) ON CONFLICT DO NOTHING;
    END IF;
END $$;
