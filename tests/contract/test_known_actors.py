"""Listing known actors page by page."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, BOB, EVE, OPS, SYSTEM, StoreHarness, policy
from tests.support.backends import StoreLocation
from tests.support.strategies import numbered_id
from watchword.access.actor_rules import (
    MAX_GROUPS_SHOWN,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorState,
    KnownActor,
    ProfileField,
)
from watchword.access.group_rules import Group
from watchword.accounts.rules import ServiceAccount
from watchword.authority.callers import ActorStatus
from watchword.authority.policies import PolicyState
from watchword.basics.names import ACCOUNT_PREFIX, GROUP_PREFIX
from watchword.signin.session_rules import Session


def known(harness: StoreHarness, **fields: object) -> ActorPage:
    return harness.run(harness.store.known_actors(replace(ActorSearch(count=1_000), **fields)))  # type: ignore[arg-type]


def urns(harness: StoreHarness, **fields: object) -> list[str]:
    return [actor.state.urn for actor in known(harness, **fields).actors]


def test_actor_is_known_by_token_status_group_or_policy(harness: StoreHarness) -> None:
    assert urns(harness) == [ADMIN]  # from the root policy
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=[EVE]))
    harness.run(harness.store.add_policy(SYSTEM, policy(1, BOB, ADMIN, state=PolicyState.INACTIVE)))
    harness.token(1, ANN)
    harness.token(2, ANN, owner="urn:li:corpuser:somebody", expires_at=None)
    harness.token(3, ANN, expires_at=harness.clock.now)
    harness.revoke(harness.token(4, ANN))
    harness.token(5, BOB)
    harness.run(harness.store.set_actor_status(SYSTEM, BOB, ActorStatus.SUSPENDED))
    assert known(harness) == ActorPage(
        (
            KnownActor(ActorState(ADMIN, ActorStatus.ACTIVE), 0),
            KnownActor(ActorState(ANN, ActorStatus.ACTIVE), 2),
            KnownActor(ActorState(BOB, ActorStatus.SUSPENDED, harness.clock.now, SYSTEM.actor), 0),
            KnownActor(ActorState(EVE, ActorStatus.ACTIVE), 0, (OPS.urn,)),
        ),
        more=False,
    )


def test_known_actors_are_found_by_urn_name_and_address(harness: StoreHarness) -> None:
    profile = {ProfileField.DISPLAY_NAME: "Ann Éxample", ProfileField.EMAIL: "ann@corp.example"}
    harness.run(harness.store.set_profile(SYSTEM, ANN, profile))
    harness.token(1, BOB)
    harness.run(harness.store.set_actor_status(SYSTEM, BOB, ActorStatus.SUSPENDED))
    for query, found in (("éxam", [ANN]), ("CORP.ex", [ANN]), (BOB[-3:].upper(), [BOB]), ("nothing", [])):
        assert urns(harness, query=query) == found, query
    assert urns(harness, query="corpuser") == sorted([ADMIN, ANN, BOB])
    assert urns(harness, query="corpuser", only_suspended=True) == [BOB]
    page = known(harness, query="corpuser", count=1)
    assert (page.more, [one.state.urn for one in page.actors]) == (True, sorted([ADMIN, ANN, BOB])[:1])


def test_actor_holdings_count_tokens_and_sessions(harness: StoreHarness) -> None:
    def holdings(urn: str) -> ActorHoldings:
        return harness.run(harness.store.actor_holdings(urn))

    harness.token(1, ANN)
    harness.token(2, ANN, expires_at=harness.clock.now + 10)
    harness.token(3, ANN, owner=BOB, expires_at=None)
    harness.revoke(harness.token(4, ANN))
    for number, end in ((1, 20), (2, 5)):
        session = Session(numbered_id(number), ANN, None, harness.clock.now, harness.clock.now + end)
        harness.run(harness.store.add_session(session.precondition("peer", "request"), session, 20, 100))
    assert holdings(ANN) == ActorHoldings(live_tokens=3, sessions=2, known=True)
    harness.clock.now += 10
    assert holdings(ANN) == ActorHoldings(live_tokens=2, sessions=1, known=True)
    assert holdings(BOB) == holdings(ADMIN) == ActorHoldings(live_tokens=0, sessions=0, known=True)
    assert holdings(EVE) == ActorHoldings(live_tokens=0, sessions=0, known=False)
    harness.run(harness.store.set_actor_status(SYSTEM, EVE, ActorStatus.SUSPENDED))
    assert holdings(EVE) == ActorHoldings(live_tokens=0, sessions=0, known=False)
    harness.run(harness.store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    assert holdings(ANN) == ActorHoldings(live_tokens=0, sessions=0, known=True, suspended_tokens=2)
    assert harness.run(harness.store.suspended_among([ANN, BOB, EVE])) == {ANN, EVE}


def test_ending_an_actors_sessions_writes_one_event(harness: StoreHarness, location: StoreLocation) -> None:
    for number, actor, end in ((1, ANN, 20), (2, ANN, 20), (3, ANN, 5), (4, BOB, 20)):
        session = Session(numbered_id(number), actor, None, harness.clock.now, harness.clock.now + end)
        harness.run(harness.store.add_session(session.precondition("peer", "request"), session, 20, 100))
    harness.clock.now += 10
    assert harness.run(harness.store.end_sessions_of(harness.precondition(), ANN)) == 2
    assert [harness.run(harness.store.actor_holdings(urn)).sessions for urn in (ANN, BOB)] == [0, 1]
    last = location.events()[-1]
    assert (last.action, last.target, last.detail["sessions"]) == ("session.ended", ANN, 2)
    before = location.events()
    assert harness.run(harness.store.end_sessions_of(harness.precondition(), ANN)) == 0
    assert location.events() == before


def test_accounts_of_an_actor_are_listed_until_deleted(harness: StoreHarness) -> None:
    made = [f"{ACCOUNT_PREFIX}00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
    for urn, creator in zip(made, (ANN, ANN, BOB), strict=True):
        harness.run(harness.store.add_account(SYSTEM, ServiceAccount(urn, "n", None, harness.clock.now, creator)))
    assert [one.urn for one in harness.run(harness.store.accounts_of(ANN, 10))] == made[:2]
    assert [one.urn for one in harness.run(harness.store.accounts_of(ANN, 1))] == made[:1]
    harness.run(harness.store.delete_account(SYSTEM, made[0]))
    assert [one.urn for one in harness.run(harness.store.accounts_of(ANN, 10))] == made[1:2]


def test_suspended_filter_lists_only_suspended_actors(harness: StoreHarness) -> None:
    for actor in (ANN, BOB, EVE):
        harness.run(harness.store.set_actor_status(SYSTEM, actor, ActorStatus.SUSPENDED))
    harness.run(harness.store.set_actor_status(SYSTEM, BOB, ActorStatus.ACTIVE))
    assert urns(harness, only_suspended=True) == [ANN, EVE]
    assert urns(harness, only_suspended=True, count=1, after=ANN) == [EVE]
    assert urns(harness) == [ADMIN, ANN, BOB, EVE]


def test_actor_in_many_groups_shows_the_first_ones(harness: StoreHarness) -> None:
    made = [f"{GROUP_PREFIX}g{number:03}" for number in range(MAX_GROUPS_SHOWN + 1)]
    for urn in made:
        harness.run(harness.store.add_group(SYSTEM, Group(urn, urn, None)))
        harness.run(harness.store.change_members(SYSTEM, urn, add=[ANN]))
    (found,) = [actor for actor in known(harness).actors if actor.state.urn == ANN]
    assert found.groups == tuple(made[:MAX_GROUPS_SHOWN])


@pytest.fixture
def crowd(harness: StoreHarness) -> list[str]:
    """Actors known by tokens, groups or policies, some by several."""
    names = ["a", "ab", "abc", "ab~", "ac", "B", "b", "ba"]
    made = [f"urn:li:corpuser:{name}" for name in names] + ["urn:li:zoo:a", "urn:a:b"]
    harness.run(harness.store.add_group(SYSTEM, OPS))
    harness.run(harness.store.change_members(SYSTEM, OPS.urn, add=made[::3]))
    harness.run(harness.store.add_policy(SYSTEM, policy(1, *made[1::3])))
    for number, urn in enumerate(made):
        if number % 3 == 2 or number % 2:
            harness.token(number, urn, id=numbered_id(number))
    return sorted([*made, ADMIN])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prefix=st.sampled_from(["", "urn:", "urn:li:corpuser:", "urn:li:corpuser:a", "urn:li:corpuser:ab", "urn:x", "ü"]),
    count=st.integers(1, 12),
)
def test_actor_pages_are_complete_and_sorted(harness: StoreHarness, crowd: list[str], prefix: str, count: int) -> None:
    found: list[str] = []
    search = ActorSearch(count=count, prefix=prefix)
    while True:
        page = harness.run(harness.store.known_actors(search))
        assert len(page.actors) == count or not page.more
        found += [actor.state.urn for actor in page.actors]
        if not page.more:
            break
        search = replace(search, after=found[-1])
    assert found == [urn for urn in crowd if urn.startswith(prefix)]
