"""Every write checks its precondition in its own transaction."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.harness import (
    ADMIN,
    ANN,
    BOB,
    EVE,
    HOUR,
    OPS,
    PLENTY,
    SYSTEM,
    StoreHarness,
    account,
    key,
    policy,
    record,
    successor,
)
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.access.group_rules import Group
from watchword.authority.callers import ActorStatus
from watchword.journal.preconditions import WritePrecondition
from watchword.stores.joined import Store
from watchword.tokens.bulk_revocation import Selection, TokenVisibility
from watchword.tokens.rules import Issue

Write = Callable[[Store, WritePrecondition], Coroutine[Any, Any, Any]]
Break = Callable[[StoreHarness, WritePrecondition], WritePrecondition]

LASTING = record(43, BOB, expires_at=None)

WRITES: dict[str, Write] = {
    "add_token": lambda store, precondition: store.add_token(precondition, record(50), Issue("kid-1", PLENTY)),
    "update_token": lambda store, precondition: store.update_token(
        precondition, numbered_id(40), None, name="other", description=None
    ),
    "revoke_token": lambda store, precondition: store.revoke_token(precondition, numbered_id(40), None),
    "revoke_token with cascade": lambda store, precondition: store.revoke_token(
        precondition, numbered_id(40), None, cascade=True
    ),
    "revoke_tokens": lambda store, precondition: store.revoke_tokens(precondition, Selection(ids=(LASTING.id,))),
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
    "replace_next": lambda store, precondition: store.replace_next(precondition, "kid-2", key(50)),
    "rotate_key": lambda store, precondition: store.rotate_key(precondition, "kid-2", key(50)),
}
every_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def _suspend(harness: StoreHarness, precondition: WritePrecondition) -> WritePrecondition:
    harness.run(harness.store.set_actor_status(SYSTEM, precondition.actor, ActorStatus.SUSPENDED))
    return precondition


def _change_policies(harness: StoreHarness, precondition: WritePrecondition) -> WritePrecondition:
    harness.run(harness.store.add_policy(SYSTEM, policy(30, BOB)))
    return precondition


def _change_a_group(harness: StoreHarness, precondition: WritePrecondition) -> WritePrecondition:
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, remove=[ANN]))
    return precondition


def _revoke_the_bearer(harness: StoreHarness, precondition: WritePrecondition) -> WritePrecondition:
    assert precondition.bearer_id is not None
    harness.run(harness.store.revoke_token(SYSTEM, precondition.bearer_id, None))
    return precondition


def _let_the_bearer_expire(harness: StoreHarness, precondition: WritePrecondition) -> WritePrecondition:
    harness.clock.now = NOW + HOUR
    return precondition


BREAKS: dict[str, Break] = {
    "actor is suspended": _suspend,
    "policies changed": _change_policies,
    "group changed": _change_a_group,
    "policy version is in the future": lambda _, w: replace(w, policy_version=w.policy_version + 1),
    "bearer is revoked": _revoke_the_bearer,
    "bearer has expired": _let_the_bearer_expire,
    "bearer is of another actor": lambda _, w: replace(w, bearer_id=numbered_id(40)),
    "bearer is unknown": lambda _, w: replace(w, bearer_id=numbered_id(99)),
}


@pytest.fixture
def prepared(harness: StoreHarness) -> StoreHarness:
    """Data for every write, and a bearer token of the admin."""
    harness.token(40, BOB)
    harness.token(41, ADMIN)
    harness.add(LASTING)
    harness.run(harness.store.add_account(SYSTEM, account(1)))
    harness.run(harness.store.add_policy(SYSTEM, policy(40, BOB)))
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN, BOB]))
    return harness


@every_write
def test_write_with_a_valid_precondition_is_done(prepared: StoreHarness, location: StoreLocation, write: Write) -> None:
    before = _number_of_changes(location)
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, record(41))))
    assert _number_of_changes(location) == before + 1


@every_write
def test_write_without_a_bearer_is_done_for_a_trusted_actor(
    prepared: StoreHarness, location: StoreLocation, write: Write
) -> None:
    before = _number_of_changes(location)
    prepared.run(write(prepared.store, prepared.precondition(ADMIN)))
    assert _number_of_changes(location) == before + 1


@pytest.mark.parametrize("broken", BREAKS.values(), ids=BREAKS)
def test_write_with_a_stale_precondition_changes_nothing(
    prepared: StoreHarness, location: StoreLocation, broken: Break
) -> None:
    precondition = broken(prepared, prepared.precondition(ADMIN, record(41)))
    before = _snapshot(prepared, location)
    for name, write in WRITES.items():
        prepared.assert_stale(write(prepared.store, precondition))
        assert _snapshot(prepared, location) == before, name


@every_write
def test_system_write_needs_no_precondition(prepared: StoreHarness, location: StoreLocation, write: Write) -> None:
    prepared.clock.now = NOW + 2 * HOUR
    before = _number_of_changes(location)
    prepared.run(write(prepared.store, SYSTEM))
    assert _number_of_changes(location) == before + 1


@every_write
def test_bearer_is_valid_until_its_last_millisecond(prepared: StoreHarness, write: Write) -> None:
    prepared.clock.now = NOW + HOUR - 1
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, record(41))))


@every_write
def test_bearer_without_expiry_is_always_valid(prepared: StoreHarness, write: Write) -> None:
    bearer = prepared.token(42, ADMIN, expires_at=None)
    prepared.clock.now = NOW + 10_000 * HOUR
    prepared.run(write(prepared.store, prepared.precondition(ADMIN, bearer)))


def test_token_can_revoke_itself_once(prepared: StoreHarness) -> None:
    own = prepared.precondition(ADMIN, record(41))
    assert prepared.run(prepared.store.revoke_token(own, numbered_id(41), TokenVisibility(ADMIN))) == (NOW, 1)
    prepared.assert_stale(prepared.store.revoke_token(own, numbered_id(41), TokenVisibility(ADMIN)))


def _number_of_changes(location: StoreLocation) -> int:
    """Without the summary of a bulk revocation."""
    return sum(event.action != "tokens.revoked" for event in location.events())


def _snapshot(harness: StoreHarness, location: StoreLocation) -> list[Any]:
    store, run = harness.store, harness.run
    return [
        location.events(),
        run(store.policies()),
        run(store.groups(0, 100)),
        run(store.members(OPS.urn, 0, 100)),
        run(store.keys()),
        run(store.next_key()),
        run(store.actor_state(EVE)),
        harness.search(),
        harness.stored(record(40)),
        harness.stored(record(50)),
        harness.stored(LASTING),
        run(store.accounts(0, 100)),
    ]
