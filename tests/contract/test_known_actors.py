"""The actors that are known, page by page, from whatever the store has of them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.contract.given import ADMIN, ANN, BOB, EVE, OPS, SYSTEM, Given, policy
from tests.support.strategies import numbered_id
from watchword.domain.actors import MAX_GROUPS_SHOWN, ActorPage, ActorSearch, ActorState, ActorStatus, KnownActor
from watchword.domain.policies import PolicyState
from watchword.domain.ports import Group
from watchword.domain.urns import GROUP_PREFIX


def known(given: Given, **fields: object) -> ActorPage:
    return given.run(given.store.known_actors(replace(ActorSearch(count=1_000), **fields)))  # type: ignore[arg-type]


def urns(given: Given, **fields: object) -> list[str]:
    return [actor.state.urn for actor in known(given, **fields).actors]


def test_whoever_has_a_token_a_status_a_group_or_a_policy_is_known_once(given: Given) -> None:
    assert urns(given) == [ADMIN]  # by the root policy
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=[EVE]))
    given.run(given.store.add_policy(SYSTEM, policy(1, BOB, ADMIN, state=PolicyState.INACTIVE)))
    given.token(1, ANN)
    given.token(2, ANN, owner="urn:li:corpuser:somebody")
    given.run(given.store.set_actor_status(SYSTEM, BOB, ActorStatus.SUSPENDED))
    assert known(given) == ActorPage(
        (
            KnownActor(ActorState(ADMIN, ActorStatus.ACTIVE), 0),
            KnownActor(ActorState(ANN, ActorStatus.ACTIVE), 2),
            KnownActor(ActorState(BOB, ActorStatus.SUSPENDED, given.clock.now, SYSTEM.actor), 0),
            KnownActor(ActorState(EVE, ActorStatus.ACTIVE), 0, (OPS.urn,)),
        ),
        more=False,
    )


def test_only_the_suspended_are_shown_where_they_alone_are_asked_for(given: Given) -> None:
    for actor in (ANN, BOB, EVE):
        given.run(given.store.set_actor_status(SYSTEM, actor, ActorStatus.SUSPENDED))
    given.run(given.store.set_actor_status(SYSTEM, BOB, ActorStatus.ACTIVE))
    assert urns(given, only_suspended=True) == [ANN, EVE]
    assert urns(given, only_suspended=True, count=1, after=ANN) == [EVE]
    assert urns(given) == [ADMIN, ANN, BOB, EVE]


def test_an_actor_of_many_groups_shows_the_first_of_them(given: Given) -> None:
    made = [f"{GROUP_PREFIX}g{number:03}" for number in range(MAX_GROUPS_SHOWN + 1)]
    for urn in made:
        given.run(given.store.add_group(SYSTEM, Group(urn, urn, None)))
        given.run(given.store.change_members(SYSTEM, urn, add=[ANN]))
    (found,) = [actor for actor in known(given).actors if actor.state.urn == ANN]
    assert found.groups == tuple(made[:MAX_GROUPS_SHOWN])


@pytest.fixture
def crowd(given: Given) -> list[str]:
    """Actors known by one thing or another, some by several."""
    names = ["a", "ab", "abc", "ab~", "ac", "B", "b", "ba"]
    made = [f"urn:li:corpuser:{name}" for name in names] + ["urn:li:zoo:a", "urn:a:b"]
    given.run(given.store.add_group(SYSTEM, OPS))
    given.run(given.store.change_members(SYSTEM, OPS.urn, add=made[::3]))
    given.run(given.store.add_policy(SYSTEM, policy(1, *made[1::3])))
    for number, urn in enumerate(made):
        if number % 3 == 2 or number % 2:
            given.token(number, urn, id=numbered_id(number))
    return sorted([*made, ADMIN])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@drawn(
    prefix=st.sampled_from(["", "urn:", "urn:li:corpuser:", "urn:li:corpuser:a", "urn:li:corpuser:ab", "urn:x", "ü"]),
    count=st.integers(1, 12),
)
def test_pages_have_each_actor_with_the_prefix_once_and_in_order(
    given: Given, crowd: list[str], prefix: str, count: int
) -> None:
    found: list[str] = []
    search = ActorSearch(count=count, prefix=prefix)
    while True:
        page = given.run(given.store.known_actors(search))
        assert len(page.actors) == count or not page.more
        found += [actor.state.urn for actor in page.actors]
        if not page.more:
            break
        search = replace(search, after=found[-1])
    assert found == [urn for urn in crowd if urn.startswith(prefix)]
