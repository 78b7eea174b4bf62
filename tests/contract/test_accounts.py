"""Service accounts; deleting one revokes its tokens, and its urn is never reused."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.harness import ADMIN, ANN, SYSTEM, StoreHarness, account, all_of, derived, record, successor, where
from tests.support.backends import NOW, StoreLocation
from watchword.access.actor_rules import ActorState
from watchword.accounts.rules import AccountPage
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault, Reason
from watchword.stores.joined import Store
from watchword.tokens.filters import Field
from watchword.tokens.rules import TokenRecord, TokenType

FIRST, SECOND_ONE = account(1), account(2)


def account_token(number: int, **fields: Any) -> TokenRecord:
    return record(number, FIRST.urn, type=TokenType.SERVICE_ACCOUNT, **fields)


@pytest.fixture
def with_account(harness: StoreHarness) -> StoreHarness:
    harness.run(harness.store.add_account(SYSTEM, FIRST))
    return harness


def test_account_is_stored_unchanged(harness: StoreHarness) -> None:
    odd = account(7, name="näme 😀 '%_\"", description="two\nlines", created_by=ANN)
    harness.run(harness.store.add_account(SYSTEM, odd))
    assert harness.run(harness.store.get_account(odd.urn)) == odd


def test_urn_of_an_account_is_used_once(with_account: StoreHarness) -> None:
    store = with_account.store
    assert with_account.fault_of(store.add_account(SYSTEM, FIRST)).reason is Reason.ALREADY_EXISTS
    with_account.run(store.delete_account(SYSTEM, FIRST.urn))
    assert with_account.fault_of(store.add_account(SYSTEM, FIRST)).reason is Reason.ALREADY_EXISTS


def test_missing_account_is_not_found(harness: StoreHarness) -> None:
    assert harness.fault_of(harness.store.get_account(FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    assert harness.fault_of(harness.store.delete_account(SYSTEM, FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    fault = harness.fault_of(harness.store.add_token(SYSTEM, account_token(1), harness.issue()))
    assert fault.reason is Reason.ACCOUNT_NOT_FOUND
    assert harness.stored(account_token(1)) is None


def test_suspended_account_cannot_get_tokens(with_account: StoreHarness) -> None:
    with_account.run(with_account.store.set_actor_status(SYSTEM, FIRST.urn, ActorStatus.SUSPENDED))
    assert with_account.run(with_account.store.get_account(FIRST.urn)) == replace(FIRST, suspended=True)
    assert (
        with_account.fault_of(with_account.store.add_token(SYSTEM, account_token(1), with_account.issue())).reason
        is Reason.ACTOR_SUSPENDED
    )
    with_account.run(with_account.store.set_actor_status(SYSTEM, FIRST.urn, ActorStatus.ACTIVE))
    assert with_account.run(with_account.store.accounts(0, 10)).rows == (FIRST,)


def test_accounts_are_sorted_by_name_and_searched_by_name_or_urn(harness: StoreHarness) -> None:
    made = [account(n, name=name) for n, name in enumerate(["Zoo", "build A", "build a", "BUILD", "100%"])]
    for one in made:
        harness.run(harness.store.add_account(SYSTEM, one))

    def listed(*asked: Any) -> tuple[int, list[str]]:
        page: AccountPage = harness.run(harness.store.accounts(*asked))
        return page.total, [row.name for row in page.rows]

    assert listed(0, 10) == (5, ["100%", "BUILD", "Zoo", "build A", "build a"])
    assert listed(1, 2) == (5, ["BUILD", "Zoo"])
    assert listed(0, 0) == (5, [])
    assert listed(0, 10, "bUiLd") == (3, ["BUILD", "build A", "build a"])
    assert listed(0, 10, "%") == (1, ["100%"])
    assert listed(0, 10, "0000000004") == (1, ["100%"])
    harness.run(harness.store.delete_account(SYSTEM, made[0].urn))
    assert listed(0, 10, "zoo") == (0, [])


def test_deleting_account_revokes_its_tokens_and_their_descendants(
    with_account: StoreHarness, location: StoreLocation
) -> None:
    tokens = [with_account.add(account_token(n)) for n in range(3)]
    with_account.revoke(tokens[0])
    child = with_account.derive(5, tokens[1], type=TokenType.SERVICE_ACCOUNT)
    with_account.rotate(6, tokens[2])
    stranger = with_account.token(9)
    with_account.clock.now = NOW + 7
    before = len(location.events())
    assert with_account.run(with_account.store.delete_account(SYSTEM, FIRST.urn)) == 4
    assert with_account.live_numbers(*tokens, child, account_token(6), stranger) == [9]
    assert with_account.total() == 1
    assert with_account.total(where(Field.ACTOR_URN, FIRST.urn)) == 0
    told = location.events()[before:]
    assert [event.action for event in told] == ["token.revoked"] * 4 + ["account.deleted"]
    assert told[-1].detail["tokens"] == 4
    assert location.problems() == []


def test_deleted_account_cannot_be_restored(with_account: StoreHarness, location: StoreLocation) -> None:
    with_account.run(with_account.store.delete_account(SYSTEM, FIRST.urn))
    assert with_account.fault_of(with_account.store.get_account(FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    assert (
        with_account.fault_of(with_account.store.delete_account(SYSTEM, FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    )
    assert (
        with_account.fault_of(with_account.store.add_token(SYSTEM, account_token(1), with_account.issue())).reason
        is Reason.ACCOUNT_NOT_FOUND
    )
    for status in ActorStatus:
        fault = with_account.fault_of(with_account.store.set_actor_status(SYSTEM, FIRST.urn, status))
        assert fault.reason is Reason.NOT_EDITABLE
    state = with_account.run(with_account.store.actor_state(FIRST.urn))
    assert state == ActorState(FIRST.urn, ActorStatus.SUSPENDED, NOW, SYSTEM.actor)
    assert with_account.run(with_account.store.actor_snapshot(FIRST.urn)).suspended
    with pytest.raises(Fault):
        with_account.run(with_account.store.add_account(SYSTEM, FIRST))
    assert location.problems() == []


def test_deleted_account_cannot_write(with_account: StoreHarness) -> None:
    bearer = with_account.add(account_token(1))
    own = with_account.precondition(FIRST.urn, bearer)
    named = with_account.precondition(FIRST.urn)
    with_account.run(with_account.store.delete_account(SYSTEM, FIRST.urn))
    for precondition in (own, named):
        with_account.assert_stale(with_account.store.add_token(precondition, record(2, ANN), with_account.issue()))
        with_account.assert_stale(with_account.store.add_account(precondition, SECOND_ONE))


def test_no_token_survives_a_concurrent_account_deletion(
    with_account: StoreHarness, other: Store, location: StoreLocation
) -> None:
    bearer = with_account.add(account_token(1))
    own, admins = with_account.precondition(FIRST.urn, bearer), with_account.precondition(ADMIN)
    stores = (with_account.store, other)
    old = [with_account.add(account_token(100 + n)) for n in range(10)]
    made = [account_token(n) for n in range(2, 40)]
    work: list[Any] = [stores[n % 2].add_token(admins, token, with_account.issue()) for n, token in enumerate(made)]
    children = [derived(n, bearer, type=TokenType.SERVICE_ACCOUNT) for n in range(50, 80)]
    work += [stores[n % 2].add_token(own, child, with_account.issue()) for n, child in enumerate(children)]
    new = [successor(200 + n, token) for n, token in enumerate(old)]
    work += [stores[n % 2].rotate_token(admins, token, new[n], with_account.issue()) for n, token in enumerate(old)]
    work.insert(30, other.delete_account(SYSTEM, FIRST.urn))
    with_account.run(all_of(work))
    assert with_account.live_numbers(bearer, *made, *children, *old, *new) == []
    assert with_account.total() == 0
    assert location.problems() == []
