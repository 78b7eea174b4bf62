"""Service accounts: made, found, and deleted with all their tokens; a deleted one's urn stays dead."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.given import ADMIN, ANN, SYSTEM, Given, account, all_of, derived, record, successor, where
from tests.support.backends import NOW, Place
from watchword.domain.accounts import AccountPage
from watchword.domain.actors import ActorState, ActorStatus
from watchword.domain.errors import Fault, Reason
from watchword.domain.filters import Field
from watchword.domain.ports import Store
from watchword.domain.tokens import TokenRecord, TokenType

FIRST, SECOND_ONE = account(1), account(2)


def of(number: int, **fields: Any) -> TokenRecord:
    return record(number, FIRST.urn, type=TokenType.SERVICE_ACCOUNT, **fields)


@pytest.fixture
def first(given: Given) -> Given:
    given.run(given.store.add_account(SYSTEM, FIRST))
    return given


def test_an_account_is_kept_as_it_was_given(given: Given) -> None:
    odd = account(7, name="näme 😀 '%_\"", description="two\nlines", created_by=ANN)
    given.run(given.store.add_account(SYSTEM, odd))
    assert given.run(given.store.get_account(odd.urn)) == odd


def test_an_account_that_is_not_there_is_not_found(given: Given) -> None:
    assert given.refused(given.store.get_account(FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    assert given.refused(given.store.delete_account(SYSTEM, FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    fault = given.refused(given.store.add_token(SYSTEM, of(1), given.issue()))
    assert fault.reason is Reason.ACCOUNT_NOT_FOUND
    assert given.kept(of(1)) is None


def test_an_account_that_is_suspended_says_so(first: Given) -> None:
    first.run(first.store.set_actor_status(SYSTEM, FIRST.urn, ActorStatus.SUSPENDED))
    assert first.run(first.store.get_account(FIRST.urn)) == replace(FIRST, suspended=True)
    assert first.refused(first.store.add_token(SYSTEM, of(1), first.issue())).reason is Reason.ACTOR_SUSPENDED
    first.run(first.store.set_actor_status(SYSTEM, FIRST.urn, ActorStatus.ACTIVE))
    assert first.run(first.store.accounts(0, 10)).rows == (FIRST,)


def test_accounts_are_listed_by_name_and_found_by_parts_of_name_or_urn(given: Given) -> None:
    made = [account(n, name=name) for n, name in enumerate(["Zoo", "build A", "build a", "BUILD", "100%"])]
    for one in made:
        given.run(given.store.add_account(SYSTEM, one))

    def listed(*asked: Any) -> tuple[int, list[str]]:
        page: AccountPage = given.run(given.store.accounts(*asked))
        return page.total, [row.name for row in page.rows]

    assert listed(0, 10) == (5, ["100%", "BUILD", "Zoo", "build A", "build a"])
    assert listed(1, 2) == (5, ["BUILD", "Zoo"])
    assert listed(0, 0) == (5, [])
    assert listed(0, 10, "bUiLd") == (3, ["BUILD", "build A", "build a"])
    assert listed(0, 10, "%") == (1, ["100%"])
    assert listed(0, 10, "0000000004") == (1, ["100%"])
    given.run(given.store.delete_account(SYSTEM, made[0].urn))
    assert listed(0, 10, "zoo") == (0, [])


def test_with_an_account_die_all_its_tokens_and_what_was_derived_from_them(first: Given, place: Place) -> None:
    tokens = [first.keep(of(n)) for n in range(3)]
    first.revoke(tokens[0])
    child = first.derive(5, tokens[1], type=TokenType.SERVICE_ACCOUNT)
    first.rotate(6, tokens[2])
    stranger = first.token(9)
    first.clock.now = NOW + 7
    before = len(place.events())
    assert first.run(first.store.delete_account(SYSTEM, FIRST.urn)) == 4
    assert first.live(*tokens, child, of(6), stranger) == [9]
    assert first.total() == 1
    assert first.total(where(Field.ACTOR_URN, FIRST.urn)) == 0
    told = place.events()[before:]
    assert [event.action for event in told] == ["token.revoked"] * 4 + ["account.deleted"]
    assert told[-1].detail == {"tokens": 4}
    assert place.problems() == []


def test_a_deleted_account_stays_dead(first: Given, place: Place) -> None:
    first.run(first.store.delete_account(SYSTEM, FIRST.urn))
    assert first.refused(first.store.get_account(FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    assert first.refused(first.store.delete_account(SYSTEM, FIRST.urn)).reason is Reason.ACCOUNT_NOT_FOUND
    assert first.refused(first.store.add_token(SYSTEM, of(1), first.issue())).reason is Reason.ACCOUNT_NOT_FOUND
    for status in ActorStatus:
        fault = first.refused(first.store.set_actor_status(SYSTEM, FIRST.urn, status))
        assert fault.reason is Reason.NOT_EDITABLE
    state = first.run(first.store.actor_state(FIRST.urn))
    assert state == ActorState(FIRST.urn, ActorStatus.SUSPENDED, NOW, SYSTEM.actor)
    assert first.run(first.store.actor_snapshot(FIRST.urn)).suspended
    with pytest.raises(Fault):
        first.run(first.store.add_account(SYSTEM, FIRST))
    assert place.problems() == []


def test_an_account_cannot_write_once_it_is_deleted(first: Given) -> None:
    bearer = first.keep(of(1))
    own = first.precondition(FIRST.urn, bearer)
    named = first.precondition(FIRST.urn)
    first.run(first.store.delete_account(SYSTEM, FIRST.urn))
    for precondition in (own, named):
        first.stale(first.store.add_token(precondition, record(2, ANN), first.issue()))
        first.stale(first.store.add_account(precondition, SECOND_ONE))


def test_of_all_that_is_made_of_an_account_while_it_is_deleted_nothing_lives(
    first: Given, other: Store, place: Place
) -> None:
    bearer = first.keep(of(1))
    own, admins = first.precondition(FIRST.urn, bearer), first.precondition(ADMIN)
    stores = (first.store, other)
    old = [first.keep(of(100 + n)) for n in range(10)]
    made = [of(n) for n in range(2, 40)]
    work: list[Any] = [stores[n % 2].add_token(admins, token, first.issue()) for n, token in enumerate(made)]
    children = [derived(n, bearer, type=TokenType.SERVICE_ACCOUNT) for n in range(50, 80)]
    work += [stores[n % 2].add_token(own, child, first.issue()) for n, child in enumerate(children)]
    new = [successor(200 + n, token) for n, token in enumerate(old)]
    work += [stores[n % 2].rotate_token(admins, token, new[n], first.issue()) for n, token in enumerate(old)]
    work.insert(30, other.delete_account(SYSTEM, FIRST.urn))
    first.run(all_of(work))
    assert first.live(bearer, *made, *children, *old, *new) == []
    assert first.total() == 0
    assert place.problems() == []
