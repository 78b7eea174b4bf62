"""What is known of the uses of tokens: when last, how often, from where."""

from collections.abc import Coroutine
from typing import Any

from tests.contract.given import ANN, Given, all_of
from tests.support.backends import NOW, Place
from tests.support.strategies import numbered_id
from watchword.domain.ports import Store, Use

NEAR, FAR = "10.0.0.0/24", "2001:db8::/56"


def test_uses_are_added_up_and_the_time_is_never_moved_back(given: Given) -> None:
    one, two = given.token(1), given.token(2)
    given.run(given.store.record_uses({one.id: Use(NOW + 5, 3, NEAR), two.id: Use(NOW + 1, 1, NEAR)}))
    given.run(given.store.record_uses({one.id: Use(NOW + 3, 4, NEAR), two.id: Use(NOW + 7, 1, NEAR)}))
    assert given.kept(one) == one._replace(last_used_at=NOW + 5, use_count=7, last_network=NEAR)
    assert given.kept(two) == two._replace(last_used_at=NOW + 7, use_count=2, last_network=NEAR)


def test_the_network_is_that_of_the_latest_use_whoever_tells_of_it_last(given: Given, other: Store) -> None:
    token = given.token(1)
    given.run(given.store.record_uses({token.id: Use(NOW + 5, 1, FAR)}))
    given.run(other.record_uses({token.id: Use(NOW + 4, 1, NEAR)}))
    kept = given.kept(token)
    assert kept is not None
    assert (kept.last_used_at, kept.last_network, kept.use_count) == (NOW + 5, FAR, 2)


def test_uses_of_unknown_tokens_are_left_out(given: Given) -> None:
    token = given.token(1)
    given.run(given.store.record_uses({numbered_id(7): Use(NOW, 1, NEAR), token.id: Use(NOW, 1, NEAR)}))
    assert given.kept(token) == token._replace(last_used_at=NOW, use_count=1, last_network=NEAR)
    assert given.total() == 1
    given.run(given.store.record_uses({}))


def test_a_use_noted_after_the_revocation_changes_nothing_else(given: Given, place: Place) -> None:
    token = given.token(1)
    given.revoke(token)
    before = place.events()
    given.run(given.store.record_uses({token.id: Use(NOW + 1, 1, NEAR)}))
    assert given.kept(token) == token._replace(revoked_at=NOW, last_used_at=NOW + 1, use_count=1, last_network=NEAR)
    assert place.events() == before


def test_of_uses_that_two_processes_note_at_once_none_is_lost(given: Given, other: Store, place: Place) -> None:
    tokens = [given.token(n, ANN) for n in range(20)]

    def note(store: Store, turn: int) -> Coroutine[Any, Any, Any]:
        order = tokens if turn % 2 else tokens[::-1]
        return store.record_uses({token.id: Use(NOW + turn, 1, NEAR) for token in order})

    stores = (given.store, other)
    work = [note(stores[turn % 2], turn) for turn in range(20)]
    work += [stores[n % 2].revoke_token(given.precondition(), tokens[n].id, None) for n in range(5)]
    assert [found for found in given.run(all_of(work)) if isinstance(found, Exception)] == []
    assert {(kept.use_count, kept.last_used_at) for token in tokens if (kept := given.kept(token))} == {(20, NOW + 19)}
    assert place.problems() == []
