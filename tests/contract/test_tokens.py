import pytest

from tests.contract.harness import ADMIN, ANN, BOB, EVE, HOUR, OPS, PLENTY, SYSTEM, StoreHarness, policy, record, where
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.authority.callers import ActorSnapshot, ActorStatus
from watchword.basics.errors import Reason
from watchword.tokens.bulk_revocation import TokenVisibility
from watchword.tokens.filters import Field
from watchword.tokens.rules import Issue, TokenStatus


def test_token_is_stored_unchanged(harness: StoreHarness) -> None:
    odd = record(
        1,
        ANN,
        owner=BOB,
        name="näme 😀 '%_\"",
        description="two\nlines",
        created_at=1,
        expires_at=None,
        created_with=numbered_id(9),
    )
    harness.add(odd)
    assert harness.stored(odd) == odd
    found = harness.run(harness.store.find_bearer(odd.id))
    assert found is not None
    assert (found.token_id, found.actor, found.expires_at, found.revoked_at) == (odd.id, odd.actor_urn, None, None)


def test_unknown_id_is_not_found(harness: StoreHarness) -> None:
    harness.token(1)
    assert harness.run(harness.store.get_token(numbered_id(2))) is None
    assert harness.run(harness.store.find_bearer(numbered_id(2))) is None
    assert harness.run(harness.store.find_bearer("")) is None


def test_token_ids_are_case_sensitive(harness: StoreHarness) -> None:
    token = harness.token(1)
    assert harness.run(harness.store.get_token(token.id.swapcase())) is None


def test_bearer_includes_its_actor_snapshot(harness: StoreHarness) -> None:
    token = harness.token(1, ANN, owner=BOB)
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    found = harness.run(harness.store.find_bearer(token.id))
    assert found is not None
    assert found.snapshot.suspended
    assert found.snapshot.groups == (OPS.urn,)
    assert found.snapshot == harness.run(harness.store.actor_snapshot(ANN))
    assert not harness.run(harness.store.actor_snapshot(BOB)).suspended


def test_unknown_actor_is_active_without_groups(harness: StoreHarness) -> None:
    version = harness.run(harness.store.policies()).version
    assert harness.run(harness.store.actor_snapshot(EVE)) == ActorSnapshot(
        suspended=False, groups=(), policy_version=version
    )


@pytest.mark.parametrize("kid", ["kid-1", "never heard of", ""])
def test_token_signed_with_a_retired_key_is_stale(harness: StoreHarness, kid: str) -> None:
    harness.rotate_key(3)
    harness.assert_stale(harness.store.add_token(SYSTEM, record(1), Issue(kid, PLENTY)))
    assert harness.stored(record(1)) is None
    harness.run(harness.store.add_token(SYSTEM, record(1), Issue("kid-2", PLENTY)))


def test_live_tokens_per_actor_are_limited(harness: StoreHarness) -> None:
    harness.run(harness.store.add_token(SYSTEM, record(1), Issue(harness.kid, 2)))
    harness.run(harness.store.add_token(SYSTEM, record(2, expires_at=None), Issue(harness.kid, 2)))
    fault = harness.fault_of(harness.store.add_token(SYSTEM, record(3), Issue(harness.kid, 2)))
    assert fault.reason is Reason.TOO_MANY_TOKENS
    assert "2 live tokens" in fault.message
    assert harness.stored(record(3)) is None
    harness.run(harness.store.add_token(SYSTEM, record(3, BOB), Issue(harness.kid, 2)))


def test_tokens_for_other_actors_do_not_count(harness: StoreHarness) -> None:
    harness.run(harness.store.add_token(SYSTEM, record(1, BOB, owner=ANN), Issue(harness.kid, 1)))
    harness.run(harness.store.add_token(SYSTEM, record(2, ANN), Issue(harness.kid, 1)))


def test_revoked_token_frees_its_slot(harness: StoreHarness) -> None:
    harness.run(harness.store.add_token(SYSTEM, record(1), Issue(harness.kid, 1)))
    harness.revoke(record(1))
    harness.run(harness.store.add_token(SYSTEM, record(2), Issue(harness.kid, 1)))


def test_expired_token_frees_its_slot_at_the_exact_millisecond(harness: StoreHarness) -> None:
    harness.run(harness.store.add_token(SYSTEM, record(1, expires_at=NOW + HOUR), Issue(harness.kid, 1)))
    harness.clock.now = NOW + HOUR - 1
    assert (
        harness.fault_of(harness.store.add_token(SYSTEM, record(2), Issue(harness.kid, 1))).reason
        is Reason.TOO_MANY_TOKENS
    )
    harness.clock.now = NOW + HOUR
    harness.run(harness.store.add_token(SYSTEM, record(2, expires_at=NOW + 2 * HOUR), Issue(harness.kid, 1)))


def test_suspended_actor_gets_no_token(harness: StoreHarness) -> None:
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    fault = harness.fault_of(
        harness.store.add_token(harness.precondition(), record(1, ANN, owner=ADMIN), Issue(harness.kid, PLENTY))
    )
    assert fault.reason is Reason.ACTOR_SUSPENDED
    assert harness.stored(record(1)) is None
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    harness.token(1)


def test_duplicate_token_id_is_rejected(harness: StoreHarness, location: StoreLocation) -> None:
    first = harness.token(1, name="first")
    before = len(location.events())
    fault = harness.fault_of(harness.store.add_token(SYSTEM, record(1, BOB, name="second"), Issue(harness.kid, PLENTY)))
    assert fault.kind.code >= 500
    assert harness.stored(first) == first
    assert harness.total() == 1
    assert len(location.events()) == before


def test_rejected_token_is_not_stored(harness: StoreHarness, location: StoreLocation) -> None:
    before = location.events()
    harness.fault_of(harness.store.add_token(SYSTEM, record(1), Issue(harness.kid, 0)))
    harness.assert_stale(harness.store.add_token(SYSTEM, record(1), Issue("old", PLENTY)))
    assert harness.stored(record(1)) is None
    assert harness.total() == 0
    assert location.events() == before


def test_revocation_returns_its_time_and_is_visible_immediately(harness: StoreHarness) -> None:
    token = harness.token(1)
    harness.clock.now = NOW + 5
    assert harness.revoke(token) == NOW + 5
    found = harness.run(harness.store.find_bearer(token.id))
    assert found is not None
    assert found.revoked_at == NOW + 5
    kept = harness.stored(token)
    assert kept == token._replace(revoked_at=NOW + 5)
    assert kept.status(NOW + 5) is TokenStatus.REVOKED


@pytest.mark.parametrize("of", [ANN, BOB])
def test_actor_and_owner_can_revoke_a_token(harness: StoreHarness, of: str) -> None:
    token = harness.token(1, ANN, owner=BOB)
    assert harness.run(harness.store.revoke_token(harness.precondition(of), token.id, TokenVisibility(of))) == (NOW, 1)


def test_others_token_is_rejected_like_a_missing_one(harness: StoreHarness) -> None:
    token = harness.token(1, ANN, owner=BOB)
    another = harness.fault_of(harness.store.revoke_token(harness.precondition(EVE), token.id, TokenVisibility(EVE)))
    nobodys = harness.fault_of(
        harness.store.revoke_token(harness.precondition(EVE), numbered_id(2), TokenVisibility(EVE))
    )
    assert another.reason is nobodys.reason is Reason.TOKEN_NOT_FOUND
    assert (another.message, another.details) == (nobodys.message, nobodys.details)
    assert harness.stored(token) == token


def test_others_revoked_token_is_not_found(harness: StoreHarness) -> None:
    token = harness.token(1, ANN)
    harness.revoke(token)
    fault = harness.fault_of(harness.store.revoke_token(harness.precondition(EVE), token.id, TokenVisibility(EVE)))
    assert fault.reason is Reason.TOKEN_NOT_FOUND


def test_unknown_token_is_not_found_without_visibility_limits(harness: StoreHarness) -> None:
    assert harness.fault_of(harness.store.revoke_token(SYSTEM, "", None)).reason is Reason.TOKEN_NOT_FOUND


@pytest.mark.parametrize("visibility", [None, TokenVisibility(ANN)])
def test_repeated_revocation_returns_the_first_time(
    harness: StoreHarness, location: StoreLocation, visibility: TokenVisibility | None
) -> None:
    token = harness.token(1)
    harness.revoke(token)
    before = location.events()
    harness.clock.now = NOW + 1_000
    fault = harness.fault_of(harness.store.revoke_token(SYSTEM, token.id, visibility))
    assert fault.reason is Reason.ALREADY_REVOKED
    assert fault.details == {"revokedAt": NOW}
    assert harness.stored(token) == token._replace(revoked_at=NOW)
    assert location.events() == before


def test_expired_token_can_be_revoked(harness: StoreHarness) -> None:
    token = harness.token(1, expires_at=NOW)
    assert harness.revoke(token) == NOW


def test_totals_follow_creation_and_revocation(harness: StoreHarness) -> None:
    tokens = [harness.token(n, ANN if n % 2 else BOB, owner=EVE) for n in range(6)]
    harness.revoke(tokens[1])
    harness.revoke(tokens[2])
    assert harness.total() == 4
    assert harness.total(where(Field.ACTOR_URN, ANN)) == harness.total(where(Field.ACTOR_URN, BOB)) == 2
    assert harness.total(where(Field.OWNER_URN, EVE)) == 4
    assert harness.total(where(Field.OWNER_URN, ANN)) == 0


def test_policy_change_does_not_change_tokens(harness: StoreHarness) -> None:
    token = harness.token(1)
    harness.run(harness.store.add_policy(SYSTEM, policy(1, ANN)))
    assert harness.stored(token) == token
