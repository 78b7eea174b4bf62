"""A read sees every commit that ended before it began, by any process."""

from dataclasses import replace

from tests.contract.harness import ADMIN, ANN, BOB, OPS, PLENTY, SYSTEM, StoreHarness, all_of, key, policy, record
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.authority.policies import root_policy
from watchword.basics.errors import Reason
from watchword.stores.joined import Store
from watchword.tokens.filters import Condition, Field, Filter, Search
from watchword.tokens.rules import Issue


def test_created_token_is_visible_to_the_other_store(harness: StoreHarness, other: Store) -> None:
    token = harness.token(1)
    bearer = harness.run(other.find_bearer(token.id))
    assert bearer is not None
    assert (bearer.token_id, bearer.actor, bearer.expires_at) == (token.id, token.actor_urn, token.expires_at)
    assert harness.run(other.get_token(token.id)) == token
    assert harness.run(other.search(Search())).rows == (token,)
    by_name = Filter(Field.NAME, Condition.CONTAIN, ("token",))
    assert harness.run(other.search(Search(filters=(by_name,)))).rows == (token,)


def test_revocation_is_visible_to_the_other_store(harness: StoreHarness, other: Store) -> None:
    for number in range(50):
        token = harness.token(number)
        assert harness.run(other.get_token(token.id)) == token
        harness.revoke(token)
        bearer = harness.run(other.find_bearer(token.id))
        assert bearer is not None
        assert bearer.revoked_at == NOW
        assert harness.run(other.search(Search())).total == 0


def test_suspension_and_membership_are_visible_to_the_other_store(harness: StoreHarness, other: Store) -> None:
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    assert harness.run(other.actor_snapshot(ANN)).suspended
    assert harness.run(other.actor_state(ANN)).status is ActorStatus.SUSPENDED
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    assert harness.run(other.actor_snapshot(ANN)).groups == (OPS.urn,)
    assert harness.run(other.groups(0, 10)) == (1, (replace(OPS, members=1),))
    assert harness.run(other.members(OPS.urn, 0, 10)) == (1, (ANN,))


def test_policy_changes_are_visible_to_the_other_store(harness: StoreHarness, other: Store) -> None:
    harness.run(harness.store.add_policy(SYSTEM, policy(1, ANN)))
    seen = harness.run(other.policies())
    assert policy(1, ANN) in seen.policies
    assert harness.run(other.actor_snapshot(BOB)).policy_version == seen.version
    harness.run(harness.store.delete_policy(SYSTEM, policy(1).urn))
    assert harness.run(other.policies()).policies == (root_policy(ADMIN),)


def test_rotated_key_is_visible_to_the_other_store(harness: StoreHarness, other: Store) -> None:
    assert harness.run(other.sealed_salt()) == b"sealed salt"
    harness.rotate_key(3)
    assert harness.run(other.keys())[0] == key(2)
    assert harness.run(other.next_key()) == key(3)


def test_data_survives_reopening(harness: StoreHarness, location: StoreLocation) -> None:
    token = harness.token(1)
    harness.run(harness.store.close())
    again = harness.run(location.open())
    assert harness.run(again.get_token(token.id)) == token
    harness.run(again.close())


def test_probe_commits_a_row(harness: StoreHarness, location: StoreLocation, other: Store) -> None:
    for number, store in enumerate((harness.store, other, harness.store)):
        harness.clock.now = NOW + number
        harness.run(store.probe())
        assert location.probed_at() == NOW + number


def test_closed_store_rejects_every_call(harness: StoreHarness, location: StoreLocation) -> None:
    store = harness.run(location.open())
    harness.run(store.get_token("x"))
    harness.run(store.close())
    for work in (
        store.probe(),
        store.revoke_token(SYSTEM, "x", None),
        store.get_token("x"),
        store.find_bearer("x"),
        store.policies(),
        store.search(Search()),
        store.search(Search(filters=(Filter(Field.NAME, Condition.CONTAIN, ("x",)),))),
        store.groups(0, 1),
    ):
        assert harness.fault_of(work).reason is Reason.STOPPING


def test_close_twice_is_allowed(harness: StoreHarness, location: StoreLocation) -> None:
    store = harness.run(location.open())
    harness.run(store.close())
    harness.run(store.close())


def test_queued_writes_finish_before_close(harness: StoreHarness, location: StoreLocation) -> None:
    store = harness.run(location.open())
    work = [store.add_token(SYSTEM, record(n), Issue(harness.kid, PLENTY)) for n in range(300)]
    results = harness.run(all_of([*work, store.close()]))
    assert results == [None] * 301
    assert harness.total() == 300
