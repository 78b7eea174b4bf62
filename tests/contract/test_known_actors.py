"""The actors that are known, page by page, from whatever the store has of them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.contract.given import ADMIN, ANN, BOB, EVE, OPS, SYSTEM, Given, policy
from tests.support.backends import Place
from tests.support.strategies import numbered_id
from watchword.domain.accounts import ACCOUNT_PREFIX, ServiceAccount
from watchword.domain.actors import (
    MAX_GROUPS_SHOWN,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorState,
    ActorStatus,
    KnownActor,
)
from watchword.domain.names import GROUP_PREFIX
from watchword.domain.policies import PolicyState
from watchword.domain.ports import Group
from watchword.domain.sessions import Session


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


def test_what_an_actor_holds_is_counted_and_whether_anything_is_known_of_it(given: Given) -> None:
    def holdings(urn: str) -> ActorHoldings:
        return given.run(given.store.actor_holdings(urn))

    given.token(1, ANN)
    given.token(2, ANN, expires_at=given.clock.now + 10)
    given.token(3, ANN, owner=BOB, expires_at=None)
    given.revoke(given.token(4, ANN))
    for number, end in ((1, 20), (2, 5)):
        session = Session(numbered_id(number), ANN, None, given.clock.now, given.clock.now + end)
        given.run(given.store.add_session(session.precondition("peer", "request"), session, 20, 100))
    assert holdings(ANN) == ActorHoldings(live_tokens=3, sessions=2, known=True)
    given.clock.now += 10
    assert holdings(ANN) == ActorHoldings(live_tokens=2, sessions=1, known=True)
    assert holdings(BOB) == holdings(ADMIN) == ActorHoldings(live_tokens=0, sessions=0, known=True)
    assert holdings(EVE) == ActorHoldings(live_tokens=0, sessions=0, known=False)
    given.run(given.store.set_actor_status(SYSTEM, EVE, ActorStatus.SUSPENDED))
    assert holdings(EVE) == ActorHoldings(live_tokens=0, sessions=0, known=False)
    assert given.run(given.store.suspended_among([ANN, BOB, EVE])) == {EVE}


def test_the_sessions_of_an_actor_end_together_and_one_event_tells_how_many(given: Given, place: Place) -> None:
    for number, actor, end in ((1, ANN, 20), (2, ANN, 20), (3, ANN, 5), (4, BOB, 20)):
        session = Session(numbered_id(number), actor, None, given.clock.now, given.clock.now + end)
        given.run(given.store.add_session(session.precondition("peer", "request"), session, 20, 100))
    given.clock.now += 10
    assert given.run(given.store.end_sessions_of(given.precondition(), ANN)) == 2
    assert [given.run(given.store.actor_holdings(urn)).sessions for urn in (ANN, BOB)] == [0, 1]
    last = place.events()[-1]
    assert (last.action, last.target, last.detail["sessions"]) == ("session.ended", ANN, 2)
    before = place.events()
    assert given.run(given.store.end_sessions_of(given.precondition(), ANN)) == 0
    assert place.events() == before


def test_the_accounts_that_an_actor_made_are_found_until_they_are_deleted(given: Given) -> None:
    made = [f"{ACCOUNT_PREFIX}00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
    for urn, creator in zip(made, (ANN, ANN, BOB), strict=True):
        given.run(given.store.add_account(SYSTEM, ServiceAccount(urn, "n", None, given.clock.now, creator)))
    assert [one.urn for one in given.run(given.store.accounts_of(ANN, 10))] == made[:2]
    assert [one.urn for one in given.run(given.store.accounts_of(ANN, 1))] == made[:1]
    given.run(given.store.delete_account(SYSTEM, made[0]))
    assert [one.urn for one in given.run(given.store.accounts_of(ANN, 10))] == made[1:2]


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
