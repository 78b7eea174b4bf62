"""Sign-ins of people in each store: identity, groups and sessions, in one transaction."""

import pytest

from tests.contract.harness import ANN, BOB, HOUR, Run, StoreHarness
from tests.support.backends import NOW, StoreLocation
from tests.support.strategies import numbered_id
from watchword.access.group_rules import Group
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY
from watchword.signin.session_rules import Identity, LogoutNotice, Person, Session
from watchword.stores.joined import Store

ISSUER = "https://id.example"
STAFF, OPS = "urn:li:corpGroup:staff", "urn:li:corpGroup:ops"


class People:
    def __init__(self, run: Run, store: Store, harness: StoreHarness) -> None:
        self.run, self.store, self.harness = run, store, harness
        self._number = 0

    def sign_in(self, subject: str, actor: str, *groups: str, sid: str | None = None) -> Session:
        self._number += 1
        now = self.harness.clock.now
        person = Person(actor, Identity(ISSUER, subject), sid, {}, frozenset(groups))
        session = Session(numbered_id(self._number), actor, None, now, now + HOUR, now, "peer", ISSUER, subject, sid)
        precondition = session.precondition("peer", "request")
        self.run(self.store.sign_in(precondition, person, session, 20, 100))
        return session

    def is_live(self, session: Session) -> bool:
        return self.run(self.store.find_session(session.id)) is not None

    def groups(self, actor: str) -> tuple[str, ...]:
        return self.run(self.store.actor_snapshot(actor)).groups

    def reason(self, subject: str, actor: str) -> Reason:
        with pytest.raises(Fault) as caught:
            self.sign_in(subject, actor)
        return caught.value.reason


@pytest.fixture
def people(run: Run, store: Store, harness: StoreHarness) -> People:
    return People(run, store, harness)


def test_first_sign_in_links_person_and_actor_in_both_directions(people: People, location: StoreLocation) -> None:
    people.sign_in("one", ANN)
    people.sign_in("one", ANN)
    assert people.reason("two", ANN) is Reason.SIGN_IN_REFUSED
    assert people.reason("one", BOB) is Reason.SIGN_IN_REFUSED
    membership = people.run(people.store.membership(ANN))
    assert membership.linked is not None
    assert (membership.linked.identity, membership.linked.signed_in_at) == (Identity(ISSUER, "one"), NOW)
    assert people.run(people.store.membership(BOB)).linked is None
    assert location.problems() == []


def test_linking_another_person_ends_what_the_one_before_had(people: People, harness: StoreHarness) -> None:
    session = people.sign_in("one", ANN, STAFF)
    harness.run(people.store.link_actor(harness.precondition(), ANN, Identity(ISSUER, "two")))
    assert not people.is_live(session)
    assert people.groups(ANN) == ()
    assert people.reason("one", ANN) is Reason.SIGN_IN_REFUSED
    people.sign_in("two", ANN)
    with pytest.raises(Fault) as caught:
        harness.run(people.store.link_actor(harness.precondition(), BOB, Identity(ISSUER, "two")))
    assert caught.value.reason is Reason.IDENTITY_LINKED
    harness.run(people.store.link_actor(harness.precondition(), ANN, None))
    people.sign_in("one", ANN)


def test_linking_another_person_writes_an_event_for_everything_that_ends(
    people: People, harness: StoreHarness, location: StoreLocation
) -> None:
    people.sign_in("one", ANN, STAFF)
    people.sign_in("one", ANN, STAFF)
    before = len(location.events())
    harness.run(people.store.link_actor(harness.precondition(), ANN, Identity(ISSUER, "two")))
    told = {event.action: (event.target, event.detail) for event in location.events()[before:]}
    assert told == {
        "session.ended": (ANN, {"actorUrn": ANN, "sessions": 2}),
        "actor.groups_changed": (ANN, {"removed": [STAFF]}),
        "actor.linked": (ANN, {"issuer": ISSUER, "sessions": 2, "approvals": 0}),
    }


def test_each_sign_in_replaces_the_external_groups_and_no_others(
    people: People, harness: StoreHarness, location: StoreLocation
) -> None:
    store, run = people.store, harness.run
    run(store.add_group(harness.precondition(), Group(OPS, "Ops", None)))
    run(store.change_members(harness.precondition(), OPS, add=[ANN]))
    before = run(store.actor_snapshot(ANN)).policy_version
    people.sign_in("one", ANN, STAFF, OPS)
    assert sorted(people.groups(ANN)) == [OPS, STAFF]
    after = run(store.actor_snapshot(ANN)).policy_version
    assert after > before
    people.sign_in("one", ANN, STAFF)
    assert run(store.actor_snapshot(ANN)).policy_version == after  # nothing changed
    people.sign_in("two", BOB, OPS)
    assert people.groups(BOB) == ()  # a group made here has the members chosen here
    people.sign_in("one", ANN)
    assert people.groups(ANN) == (OPS,)
    people.sign_in("two", BOB, STAFF)
    with pytest.raises(Fault) as caught:
        run(store.add_group(harness.precondition(), Group(STAFF, "Staff", None)))
    assert caught.value.reason is Reason.ALREADY_EXISTS
    assert location.problems() == []
    assert run(store.leave_groups(harness.precondition(), ANN)) == (OPS,)
    run(store.change_members(harness.precondition(), OPS, add=[ANN]))
    run(store.delete_group(harness.precondition(), OPS))
    assert people.groups(ANN) == ()
    assert location.problems() == []


def test_groups_are_dropped_after_a_time_without_a_sign_in(people: People, harness: StoreHarness) -> None:
    people.sign_in("one", ANN, STAFF)
    harness.clock.now += 2 * DAY
    people.sign_in("two", BOB, STAFF)
    assert harness.run(people.store.drop_external_groups(harness.clock.now - DAY, 10)) == 1
    assert (people.groups(ANN), people.groups(BOB)) == ((), (STAFF,))
    assert harness.run(people.store.drop_external_groups(harness.clock.now - DAY, 10)) == 0


def test_notice_of_logout_ends_the_sessions_it_names_that_began_before(people: People, harness: StoreHarness) -> None:
    first, second = people.sign_in("one", ANN, sid="a"), people.sign_in("one", ANN, sid="b")
    other = people.sign_in("two", BOB, sid="a2")

    def end(subject: str | None, sid: str | None, at: int, issuer: str = ISSUER) -> int:
        notice = LogoutNotice(issuer, subject, sid, at)
        return harness.run(people.store.end_sessions_by_notice(harness.precondition(), notice))

    assert end("one", "a", NOW - 1) == 0
    assert end("one", None, NOW, "https://other.example") == 0
    assert end(None, "a", NOW) == 1
    assert [people.is_live(session) for session in (first, second, other)] == [False, True, True]
    assert end("one", None, NOW) == 1
    assert people.is_live(other)


def test_sessions_of_an_actor_are_listed_and_ended_by_id(people: People, harness: StoreHarness) -> None:
    first = people.sign_in("one", ANN)
    harness.clock.now += 10
    second = people.sign_in("one", ANN)
    store = people.store
    assert [s.id for s in harness.run(store.sessions(ANN, 0, 0, 10)).sessions] == [second.id, first.id]
    harness.run(store.touch_session(first.id, NOW + 20))
    page = harness.run(store.sessions(ANN, NOW + 15, 0, 10))
    assert (page.total, [s.id for s in page.sessions]) == (1, [first.id])
    people.sign_in("two", BOB)
    page = harness.run(store.sessions(None, 0, 1, 1))
    assert (page.total, len(page.sessions)) == (3, 1)
    assert {s.actor for s in harness.run(store.sessions(None, 0, 0, 10)).sessions} == {ANN, BOB}
    with pytest.raises(Fault) as caught:
        harness.run(store.end_session(harness.precondition(), first.id, BOB))
    assert caught.value.reason is Reason.SESSION_NOT_FOUND
    harness.run(store.end_session(harness.precondition(), first.id, ANN))
    assert not people.is_live(first)
