"""Sessions: read with the token they were opened with, and over when either is."""

from collections.abc import Callable

import pytest

from tests.contract.given import ANN, BOB, HOUR, MINUTE, SECOND, SYSTEM, Given, Run, all_of
from tests.support.backends import NOW, Hand, Place
from tests.support.strategies import numbered_id
from watchword.domain.actors import ActorStatus, WritePrecondition
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import EventSearch
from watchword.domain.ports import Store
from watchword.domain.sessions import FoundSession, Session
from watchword.domain.token_limits import Limits
from watchword.domain.tokens import TokenRecord
from watchword.service.background import Purge

FEW = 3


class Browsers:
    """Sessions by number, in a store."""

    def __init__(self, run: Run, store: Store) -> None:
        self.run = run
        self.store = store
        self.an_hour = 100

    def sign_in(self, number: int, token: TokenRecord | None, actor: str = ANN, at: int = NOW) -> Session:
        actor, token_id = (actor, None) if token is None else (token.actor_urn, token.id)
        session = Session(numbered_id(number), actor, token_id, at, at + HOUR)
        self.run(self.store.add_session(self.precondition(session), session, FEW, self.an_hour))
        return session

    def precondition(self, session: Session) -> WritePrecondition:
        return session.precondition("127.0.0.1", "request-1")

    def find(self, session: Session) -> FoundSession | None:
        return self.run(self.store.find_session(session.id))

    def is_live(self, session: Session) -> bool:
        found = self.find(session)
        bearer = None if found is None else found.bearer
        return bearer is not None and not bearer.has_ended and not bearer.suspended

    def sign_out(self, session: Session) -> None:
        self.run(self.store.end_session(self.precondition(session), session))

    def events(self) -> list[tuple[str, str]]:
        found = self.run(self.store.events(EventSearch(actions=("session.started", "session.ended")))).events
        return [(event.action, event.target) for event in reversed(found)]


@pytest.fixture
def browsers(run: Run, store: Store, given: Given) -> Browsers:
    return Browsers(run, store)


def test_a_session_is_found_with_just_what_a_verification_of_its_token_finds(
    browsers: Browsers, given: Given, store: Store
) -> None:
    token = given.token(1, limits=Limits(scopes=("token:read",), networks=("10.0.0.0/8",)))
    session = browsers.sign_in(1, token)
    assert browsers.find(session) == (session, given.run(store.find_bearer(token.id)))
    assert browsers.events() == [("session.started", token.id)]


def replace(given: Given, token: TokenRecord) -> None:
    given.succeed(9, token)
    given.clock.now += 2 * SECOND


def expire(given: Given, token: TokenRecord) -> None:
    assert token.expires_at is not None
    given.clock.now = token.expires_at


def suspend(given: Given, token: TokenRecord) -> None:
    given.run(given.store.set_actor_status(SYSTEM, token.actor_urn, ActorStatus.SUSPENDED))


@pytest.mark.parametrize("end", [Given.revoke, expire, suspend, replace])
def test_it_dies_with_its_token_for_every_process(
    browsers: Browsers, given: Given, other: Store, end: Callable[[Given, TokenRecord], object]
) -> None:
    token = given.token(1, expires_at=NOW + MINUTE)
    session = browsers.sign_in(1, token)
    elsewhere = Browsers(given.run, other)
    assert browsers.is_live(session)
    assert elsewhere.is_live(session)
    end(given, token)
    assert not elsewhere.is_live(session)
    assert not browsers.is_live(session)


def test_it_dies_with_the_token_that_its_own_was_derived_from(browsers: Browsers, given: Given, other: Store) -> None:
    parent = given.token(1)
    session = browsers.sign_in(1, given.derive(2, parent))
    assert browsers.is_live(session)
    given.run(other.revoke_token(SYSTEM, parent.id, None))
    assert not browsers.is_live(session)


def test_it_comes_back_when_its_actor_does(browsers: Browsers, given: Given, store: Store) -> None:
    session = browsers.sign_in(1, given.token(1))
    given.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    given.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    assert browsers.is_live(session)


def test_it_is_over_at_its_own_end_though_its_token_lives_on(browsers: Browsers, given: Given, clock: Hand) -> None:
    session = browsers.sign_in(1, given.token(1, expires_at=None))
    clock.now = NOW + HOUR - 1
    assert browsers.is_live(session)
    clock.now = NOW + HOUR
    assert browsers.find(session) is None


def test_a_sign_out_ends_it_for_every_process_and_leaves_one_event(
    browsers: Browsers, given: Given, other: Store
) -> None:
    token = given.token(1)
    session, another = browsers.sign_in(1, token), browsers.sign_in(2, token)
    browsers.sign_out(session)
    Browsers(given.run, other).sign_out(session)
    assert Browsers(given.run, other).find(session) is None
    assert browsers.is_live(another)
    assert browsers.events() == [("session.started", token.id)] * 2 + [("session.ended", token.id)]


def test_it_can_be_signed_out_when_its_token_is_dead_or_gone(browsers: Browsers, given: Given, clock: Hand) -> None:
    token = given.token(1)
    session, another = browsers.sign_in(1, token), browsers.sign_in(2, token)
    given.revoke(token)
    browsers.sign_out(session)
    assert browsers.find(session) is None
    given.run(given.store.purge_tokens(clock.now + 1, 10))
    assert browsers.find(another) == (another, None)
    browsers.sign_out(another)
    assert browsers.find(another) is None


@pytest.mark.parametrize("with_token", [True, False])
def test_of_too_many_of_one_holder_the_oldest_end(browsers: Browsers, given: Given, with_token: bool) -> None:
    token, others = (given.token(1), given.token(2, BOB)) if with_token else (None, None)
    apart = browsers.sign_in(100, others, BOB)
    made = [browsers.sign_in(number, token, at=NOW + number) for number in range(FEW + 2)]
    assert [browsers.find(session) is not None for session in made] == [False, False] + [True] * FEW
    assert browsers.find(apart) is not None


def test_of_those_that_sign_in_at_once_no_more_stay_than_may(
    browsers: Browsers, given: Given, other: Store, run: Run
) -> None:
    token = given.token(1)
    made = [Session(numbered_id(number), ANN, token.id, NOW, NOW + HOUR) for number in range(12)]
    stores = (given.store, other)
    outcomes = run(
        all_of(
            stores[n % 2].add_session(browsers.precondition(session), session, FEW, 100)
            for n, session in enumerate(made)
        )
    )
    assert outcomes == [None] * 12
    assert sum(browsers.is_live(session) for session in made) == FEW


@pytest.mark.parametrize("with_token", [True, False])
def test_sign_ins_of_one_holder_within_an_hour_are_bounded_though_each_is_signed_out(
    browsers: Browsers, given: Given, clock: Hand, with_token: bool
) -> None:
    token, others = (given.token(1), given.token(2, BOB)) if with_token else (None, None)
    browsers.an_hour = 4
    began = clock.now
    for number in range(4):
        clock.now = began + number * MINUTE
        browsers.sign_out(browsers.sign_in(number, token, at=clock.now))
    kept = browsers.events()
    with pytest.raises(Fault) as caught:
        browsers.sign_in(10, token)
    assert caught.value.reason is Reason.TOO_MANY_SIGN_INS
    assert 56 * 60 < caught.value.details["retryAfter"] <= 57 * 60
    assert browsers.events() == kept
    browsers.sign_in(11, others, BOB)  # of another holder
    clock.now = began + HOUR + SECOND
    browsers.sign_in(12, token)


def test_sessions_of_a_token_and_of_a_chosen_actor_do_not_crowd_each_other_out(
    browsers: Browsers, given: Given
) -> None:
    first = browsers.sign_in(1, None, ANN)
    token = given.token(1)
    made = [browsers.sign_in(2 + number, token, at=NOW + number) for number in range(FEW)]
    assert browsers.find(first) == (first, None)
    assert all(map(browsers.is_live, made))


def test_those_that_are_over_are_purged_a_few_at_a_time_and_no_others(
    browsers: Browsers, given: Given, store: Store, clock: Hand, place: Place
) -> None:
    for number in range(3):
        browsers.sign_in(number, given.token(number))
    later = browsers.sign_in(9, given.token(9, expires_at=None), at=NOW + MINUTE)
    clock.now = NOW + HOUR
    assert given.run(store.purge_sessions(2)) == 2
    given.run(Purge(store, clock, token_days=90, event_days=90).purge())
    assert given.run(store.purge_sessions(2)) == 0
    assert browsers.is_live(later)
    assert place.problems() == []
