"""A read sees everything committed before it began, by whichever process."""

from dataclasses import replace

from tests.contract.given import ADMIN, ANN, BOB, OPS, PLENTY, SYSTEM, Given, all_of, key, policy, record
from tests.support.backends import NOW, Place
from watchword.domain.actors import ActorStatus
from watchword.domain.errors import Reason
from watchword.domain.filters import Condition, Field, Filter, Search
from watchword.domain.policies import root_policy
from watchword.domain.ports import Issue, Store


def test_a_created_token_is_seen_by_the_other_store_in_every_way(given: Given, other: Store) -> None:
    token = given.token(1)
    bearer = given.run(other.find_bearer(token.id))
    assert bearer is not None
    assert (bearer.token_id, bearer.actor, bearer.expires_at) == (token.id, token.actor_urn, token.expires_at)
    assert given.run(other.get_token(token.id)) == token
    assert given.run(other.search(Search())).rows == (token,)
    by_name = Filter(Field.NAME, Condition.CONTAIN, ("token",))
    assert given.run(other.search(Search(filters=(by_name,)))).rows == (token,)


def test_a_revocation_is_seen_by_the_other_store_every_time(given: Given, other: Store) -> None:
    for number in range(50):
        token = given.token(number)
        assert given.run(other.get_token(token.id)) == token
        given.revoke(token)
        bearer = given.run(other.find_bearer(token.id))
        assert bearer is not None
        assert bearer.revoked_at == NOW
        assert given.run(other.search(Search())).total == 0


def test_a_suspension_and_a_membership_are_seen_by_the_other_store(given: Given, other: Store) -> None:
    given.run(given.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    assert given.run(other.actor_snapshot(ANN)).suspended
    assert given.run(other.actor_state(ANN)).status is ActorStatus.SUSPENDED
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[ANN]))
    assert given.run(other.actor_snapshot(ANN)).groups == (OPS.urn,)
    assert given.run(other.groups(0, 10)) == (1, (replace(OPS, members=1),))
    assert given.run(other.members(OPS.urn, 0, 10)) == (1, (ANN,))


def test_a_policy_and_its_withdrawal_are_seen_by_the_other_store(given: Given, other: Store) -> None:
    given.run(given.store.add_policy(SYSTEM, policy(1, ANN)))
    seen = given.run(other.policies())
    assert policy(1, ANN) in seen.policies
    assert given.run(other.actor_snapshot(BOB)).policy_version == seen.version
    given.run(given.store.delete_policy(SYSTEM, policy(1).urn))
    assert given.run(other.policies()).policies == (root_policy(ADMIN),)


def test_a_rotated_key_is_seen_by_the_other_store(given: Given, other: Store) -> None:
    assert given.run(other.sealed_salt()) == b"sealed salt"
    given.rotate_key(3)
    assert given.run(other.keys())[0] == key(2)
    assert given.run(other.next_key()) == key(3)


def test_what_was_written_is_there_when_the_store_is_opened_again(given: Given, place: Place) -> None:
    token = given.token(1)
    given.run(given.store.close())
    again = given.run(place.open())
    assert given.run(again.get_token(token.id)) == token
    given.run(again.close())


def test_probe_commits_a_row(given: Given, place: Place, other: Store) -> None:
    for number, store in enumerate((given.store, other, given.store)):
        given.clock.now = NOW + number
        given.run(store.probe())
        assert place.probed_at() == NOW + number


def test_a_closed_store_refuses_everything_with_a_sentence(given: Given, place: Place) -> None:
    store = given.run(place.open())
    given.run(store.get_token("x"))
    given.run(store.close())
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
        assert given.refused(work).reason is Reason.STOPPING


def test_a_store_may_be_closed_twice(given: Given, place: Place) -> None:
    store = given.run(place.open())
    given.run(store.close())
    given.run(store.close())


def test_what_was_handed_in_before_the_close_is_done(given: Given, place: Place) -> None:
    store = given.run(place.open())
    work = [store.add_token(SYSTEM, record(n), Issue(given.kid, PLENTY)) for n in range(300)]
    results = given.run(all_of([*work, store.close()]))
    assert results == [None] * 301
    assert given.total() == 300
