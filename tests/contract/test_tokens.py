import pytest

from tests.contract.given import ADMIN, ANN, BOB, EVE, HOUR, OPS, PLENTY, SYSTEM, Given, policy, record, where
from tests.support.backends import NOW, Place
from tests.support.strategies import numbered_id
from watchword.domain.actors import ActorSnapshot, ActorStatus
from watchword.domain.bulk_revocation import TokenVisibility
from watchword.domain.errors import Reason
from watchword.domain.filters import Field
from watchword.domain.ports import Issue
from watchword.domain.tokens import TokenStatus


def test_a_token_is_kept_with_every_field_as_it_was_given(given: Given) -> None:
    odd = record(
        1,
        ANN,
        owner=BOB,
        name="näme 😀 '%_\"",
        description="two\nlines",
        created_at=1,
        expires_at=None,
        minted_with=numbered_id(9),
    )
    given.keep(odd)
    assert given.kept(odd) == odd
    found = given.run(given.store.find_bearer(odd.id))
    assert found is not None
    assert (found.token_id, found.actor, found.expires_at, found.revoked_at) == (odd.id, odd.actor_urn, None, None)


def test_an_unknown_id_is_nobodys(given: Given) -> None:
    given.token(1)
    assert given.run(given.store.get_token(numbered_id(2))) is None
    assert given.run(given.store.find_bearer(numbered_id(2))) is None
    assert given.run(given.store.find_bearer("")) is None


def test_an_id_is_told_apart_by_the_case_of_its_letters(given: Given) -> None:
    token = given.token(1)
    assert given.run(given.store.get_token(token.id.swapcase())) is None


def test_a_bearer_comes_with_the_standing_of_its_actor(given: Given) -> None:
    token = given.token(1, ANN, owner=BOB)
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    found = given.run(given.store.find_bearer(token.id))
    assert found is not None
    assert found.snapshot.suspended
    assert found.snapshot.groups == (OPS.urn,)
    assert found.snapshot == given.run(given.store.actor_snapshot(ANN))
    assert not given.run(given.store.actor_snapshot(BOB)).suspended


def test_an_actor_that_nobody_has_heard_of_stands_well_and_in_no_group(given: Given) -> None:
    version = given.run(given.store.policies()).version
    assert given.run(given.store.actor_snapshot(EVE)) == ActorSnapshot(
        suspended=False, groups=(), policy_version=version
    )


@pytest.mark.parametrize("kid", ["kid-1", "never heard of", ""])
def test_a_token_signed_with_a_key_that_is_no_longer_in_use_is_stale(given: Given, kid: str) -> None:
    given.rotate_key(3)
    given.stale(given.store.add_token(SYSTEM, record(1), Issue(kid, PLENTY)))
    assert given.kept(record(1)) is None
    given.run(given.store.add_token(SYSTEM, record(1), Issue("kid-2", PLENTY)))


def test_an_actor_holds_at_most_so_many_live_tokens(given: Given) -> None:
    given.run(given.store.add_token(SYSTEM, record(1), Issue(given.kid, 2)))
    given.run(given.store.add_token(SYSTEM, record(2, expires_at=None), Issue(given.kid, 2)))
    fault = given.refused(given.store.add_token(SYSTEM, record(3), Issue(given.kid, 2)))
    assert fault.reason is Reason.TOO_MANY_TOKENS
    assert "2 live tokens" in fault.message
    assert given.kept(record(3)) is None
    given.run(given.store.add_token(SYSTEM, record(3, BOB), Issue(given.kid, 2)))


def test_the_tokens_an_actor_made_for_others_are_not_its_own(given: Given) -> None:
    given.run(given.store.add_token(SYSTEM, record(1, BOB, owner=ANN), Issue(given.kid, 1)))
    given.run(given.store.add_token(SYSTEM, record(2, ANN), Issue(given.kid, 1)))


def test_a_revoked_token_makes_room_for_another(given: Given) -> None:
    given.run(given.store.add_token(SYSTEM, record(1), Issue(given.kid, 1)))
    given.revoke(record(1))
    given.run(given.store.add_token(SYSTEM, record(2), Issue(given.kid, 1)))


def test_an_expired_token_makes_room_at_the_very_millisecond_of_its_end(given: Given) -> None:
    given.run(given.store.add_token(SYSTEM, record(1, expires_at=NOW + HOUR), Issue(given.kid, 1)))
    given.clock.now = NOW + HOUR - 1
    assert given.refused(given.store.add_token(SYSTEM, record(2), Issue(given.kid, 1))).reason is Reason.TOO_MANY_TOKENS
    given.clock.now = NOW + HOUR
    given.run(given.store.add_token(SYSTEM, record(2, expires_at=NOW + 2 * HOUR), Issue(given.kid, 1)))


def test_a_suspended_actor_is_given_no_token_until_it_is_resumed(given: Given) -> None:
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    fault = given.refused(
        given.store.add_token(given.precondition(), record(1, ANN, owner=ADMIN), Issue(given.kid, PLENTY))
    )
    assert fault.reason is Reason.ACTOR_SUSPENDED
    assert given.kept(record(1)) is None
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    given.token(1)


def test_an_id_is_never_given_twice(given: Given, place: Place) -> None:
    first = given.token(1, name="first")
    before = len(place.events())
    fault = given.refused(given.store.add_token(SYSTEM, record(1, BOB, name="second"), Issue(given.kid, PLENTY)))
    assert fault.kind.code >= 500
    assert given.kept(first) == first
    assert given.total() == 1
    assert len(place.events()) == before


def test_a_refused_token_leaves_no_trace(given: Given, place: Place) -> None:
    before = place.events()
    given.refused(given.store.add_token(SYSTEM, record(1), Issue(given.kid, 0)))
    given.stale(given.store.add_token(SYSTEM, record(1), Issue("old", PLENTY)))
    assert given.kept(record(1)) is None
    assert given.total() == 0
    assert place.events() == before


def test_a_revocation_says_when_and_is_seen_at_once(given: Given) -> None:
    token = given.token(1)
    given.clock.now = NOW + 5
    assert given.revoke(token) == NOW + 5
    found = given.run(given.store.find_bearer(token.id))
    assert found is not None
    assert found.revoked_at == NOW + 5
    kept = given.kept(token)
    assert kept == token._replace(revoked_at=NOW + 5)
    assert kept.status(NOW + 5) is TokenStatus.REVOKED


@pytest.mark.parametrize("of", [ANN, BOB])
def test_a_token_is_revoked_by_its_actor_and_by_its_owner(given: Given, of: str) -> None:
    token = given.token(1, ANN, owner=BOB)
    assert given.run(given.store.revoke_token(given.precondition(of), token.id, TokenVisibility(of))) == (NOW, 1)


def test_anothers_token_and_one_that_does_not_exist_are_refused_alike(given: Given) -> None:
    token = given.token(1, ANN, owner=BOB)
    another = given.refused(given.store.revoke_token(given.precondition(EVE), token.id, TokenVisibility(EVE)))
    nobodys = given.refused(given.store.revoke_token(given.precondition(EVE), numbered_id(2), TokenVisibility(EVE)))
    assert another.reason is nobodys.reason is Reason.TOKEN_NOT_FOUND
    assert (another.message, another.details) == (nobodys.message, nobodys.details)
    assert given.kept(token) == token


def test_anothers_revoked_token_is_as_unknown_as_a_live_one(given: Given) -> None:
    token = given.token(1, ANN)
    given.revoke(token)
    fault = given.refused(given.store.revoke_token(given.precondition(EVE), token.id, TokenVisibility(EVE)))
    assert fault.reason is Reason.TOKEN_NOT_FOUND


def test_without_a_scope_an_unknown_token_is_not_found(given: Given) -> None:
    assert given.refused(given.store.revoke_token(SYSTEM, "", None)).reason is Reason.TOKEN_NOT_FOUND


@pytest.mark.parametrize("visibility", [None, TokenVisibility(ANN)])
def test_a_second_revocation_is_told_of_the_first(
    given: Given, place: Place, visibility: TokenVisibility | None
) -> None:
    token = given.token(1)
    given.revoke(token)
    before = place.events()
    given.clock.now = NOW + 1_000
    fault = given.refused(given.store.revoke_token(SYSTEM, token.id, visibility))
    assert fault.reason is Reason.ALREADY_REVOKED
    assert fault.details == {"revokedAt": NOW}
    assert given.kept(token) == token._replace(revoked_at=NOW)
    assert place.events() == before


def test_an_expired_token_can_still_be_revoked(given: Given) -> None:
    token = given.token(1, expires_at=NOW)
    assert given.revoke(token) == NOW


def test_the_totals_follow_every_creation_and_revocation(given: Given) -> None:
    tokens = [given.token(n, ANN if n % 2 else BOB, owner=EVE) for n in range(6)]
    given.revoke(tokens[1])
    given.revoke(tokens[2])
    assert given.total() == 4
    assert given.total(where(Field.ACTOR_URN, ANN)) == given.total(where(Field.ACTOR_URN, BOB)) == 2
    assert given.total(where(Field.OWNER_URN, EVE)) == 4
    assert given.total(where(Field.OWNER_URN, ANN)) == 0


def test_a_change_of_policies_does_not_touch_tokens(given: Given) -> None:
    token = given.token(1)
    given.run(given.store.add_policy(SYSTEM, policy(1, ANN)))
    assert given.kept(token) == token
