"""Every write proves, inside its own transaction, what it was allowed by."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.given import (
    ADMIN,
    ANN,
    BOB,
    EVE,
    HOUR,
    OPS,
    PLENTY,
    SYSTEM,
    Given,
    account,
    key,
    policy,
    record,
    successor,
)
from tests.support.backends import NOW, Place
from tests.support.strategies import numbered_id
from watchword.domain.actors import ActorStatus, WritePrecondition
from watchword.domain.bulk_revocation import Selection, TokenVisibility
from watchword.domain.ports import Group, Issue, Store

Write = Callable[[Store, WritePrecondition], Coroutine[Any, Any, Any]]
Break = Callable[[Given, WritePrecondition], WritePrecondition]

LASTING = record(43, BOB, expires_at=None)

WRITES: dict[str, Write] = {
    "add_token": lambda store, precondition: store.add_token(precondition, record(50), Issue("kid-1", PLENTY)),
    "revoke_token": lambda store, precondition: store.revoke_token(precondition, numbered_id(40), None),
    "revoke_token and all minted with it": lambda store, precondition: store.revoke_token(
        precondition, numbered_id(40), None, cascade=True
    ),
    "revoke_tokens": lambda store, precondition: store.revoke_tokens(precondition, Selection(ids=(numbered_id(98),))),
    "rotate_token": lambda store, precondition: store.rotate_token(
        precondition, LASTING, successor(50, LASTING), Issue("kid-1", PLENTY)
    ),
    "note_replay": lambda store, precondition: store.note_replay(precondition, LASTING),
    "delete_account": lambda store, precondition: store.delete_account(precondition, account(1).urn),
    "add_policy": lambda store, precondition: store.add_policy(precondition, policy(50, ANN)),
    "replace_policy": lambda store, precondition: store.replace_policy(precondition, policy(40, ANN, EVE)),
    "delete_policy": lambda store, precondition: store.delete_policy(precondition, policy(40).urn),
    "add_group": lambda store, precondition: store.add_group(precondition, Group(OPS.urn + "2", "more", None)),
    "delete_group": lambda store, precondition: store.delete_group(precondition, OPS.urn),
    "change_members": lambda store, precondition: store.change_members(precondition, OPS.urn, add=[EVE]),
    "set_actor_status": lambda store, precondition: store.set_actor_status(precondition, EVE, ActorStatus.SUSPENDED),
    "rotate_key": lambda store, precondition: store.rotate_key(precondition, "kid-2", key(50)),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def _suspend(given: Given, precondition: WritePrecondition) -> WritePrecondition:
    given.run(given.store.set_actor_status(SYSTEM, precondition.actor, ActorStatus.SUSPENDED))
    return precondition


def _change_policies(given: Given, precondition: WritePrecondition) -> WritePrecondition:
    given.run(given.store.add_policy(SYSTEM, policy(30, BOB)))
    return precondition


def _change_a_group(given: Given, precondition: WritePrecondition) -> WritePrecondition:
    given.run(given.store.change_members(SYSTEM, OPS.urn, remove=[ANN]))
    return precondition


def _revoke_the_bearer(given: Given, precondition: WritePrecondition) -> WritePrecondition:
    assert precondition.bearer_id is not None
    given.run(given.store.revoke_token(SYSTEM, precondition.bearer_id, None))
    return precondition


def _let_the_bearer_expire(given: Given, precondition: WritePrecondition) -> WritePrecondition:
    given.clock.now = NOW + HOUR
    return precondition


BREAKS: dict[str, Break] = {
    "the actor is suspended": _suspend,
    "the policies are of a later version": _change_policies,
    "a group has changed": _change_a_group,
    "the policies are of an earlier version": lambda _, w: replace(w, policy_version=w.policy_version + 1),
    "the bearer is revoked": _revoke_the_bearer,
    "the bearer has expired": _let_the_bearer_expire,
    "the bearer is another's": lambda _, w: replace(w, bearer_id=numbered_id(40)),
    "the bearer is unknown": lambda _, w: replace(w, bearer_id=numbered_id(99)),
}


@pytest.fixture
def prepared(given: Given) -> Given:
    """Something for every write to work on, and a bearer of the admin's."""
    given.token(40, BOB)
    given.token(41, ADMIN)
    given.keep(LASTING)
    given.run(given.store.add_account(SYSTEM, account(1)))
    given.run(given.store.add_policy(SYSTEM, policy(40, BOB)))
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN, BOB]))
    return given


@every_write
def test_a_write_under_a_warrant_that_holds_is_done(prepared: Given, place: Place, write: Write) -> None:
    before = len(place.events())
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, record(41))))
    assert len(place.events()) == before + 1


@every_write
def test_a_write_without_a_bearer_is_done_for_a_believed_actor(prepared: Given, place: Place, write: Write) -> None:
    before = len(place.events())
    prepared.run(write(prepared.store, prepared.precondition(ADMIN)))
    assert len(place.events()) == before + 1


@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)
def test_every_write_whose_warrant_no_longer_holds_is_stale_and_changes_nothing(
    prepared: Given, place: Place, broken: Break
) -> None:
    precondition = broken(prepared, prepared.precondition(ADMIN, record(41)))
    before = _everything(prepared, place)
    for name, write in WRITES.items():
        prepared.stale(write(prepared.store, precondition))
        assert _everything(prepared, place) == before, name


@every_write
def test_the_service_itself_has_nothing_to_prove(prepared: Given, place: Place, write: Write) -> None:
    prepared.clock.now = NOW + 2 * HOUR
    before = len(place.events())
    prepared.run(write(prepared.store, SYSTEM))
    assert len(place.events()) == before + 1


@every_write
def test_a_warrant_is_good_up_to_the_last_millisecond_of_its_bearer(prepared: Given, write: Write) -> None:
    prepared.clock.now = NOW + HOUR - 1
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, record(41))))


@every_write
def test_a_bearer_that_never_ends_is_proof_at_any_time(prepared: Given, write: Write) -> None:
    bearer = prepared.token(42, ADMIN, expires_at=None)
    prepared.clock.now = NOW + 10_000 * HOUR
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, bearer)))


def test_a_token_may_revoke_itself_once(prepared: Given) -> None:
    own = prepared.precondition(ADMIN, record(41))
    assert prepared.run(prepared.store.revoke_token(own, numbered_id(41), TokenVisibility(ADMIN))) == (NOW, 1)
    prepared.stale(prepared.store.revoke_token(own, numbered_id(41), TokenVisibility(ADMIN)))


def _everything(given: Given, place: Place) -> list[Any]:
    store, run = given.store, given.run
    return [
        place.events(),
        run(store.policies()),
        run(store.groups(0, 100)),
        run(store.members(OPS.urn, 0, 100)),
        run(store.keys()),
        run(store.next_key()),
        run(store.actor_state(EVE)),
        given.search(),
        given.kept(record(40)),
        given.kept(record(50)),
        given.kept(LASTING),
        run(store.accounts(0, 100)),
    ]
