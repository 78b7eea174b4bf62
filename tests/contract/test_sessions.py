"""A session ends with its token or at its own expiry, whichever comes first."""

from collections.abc import Callable

import pytest

from tests.contract.harness import ANN, BOB, HOUR, MINUTE, SECOND, SYSTEM, Run, StoreHarness, all_of
from tests.support.backends import NOW, SettableClock, StoreLocation
from tests.support.strategies import numbered_id
from watchword.authority.callers import ActorStatus
from watchword.authority.limits import Limits
from watchword.basics.background import BackgroundTasks, Purge
from watchword.basics.errors import Fault, Reason
from watchword.journal.events import EventSearch
from watchword.journal.preconditions import WritePrecondition
from watchword.signin.session_rules import FoundSession, Session
from watchword.stores.joined import Store
from watchword.tokens.rules import TokenRecord

FEW = 3


class SessionDriver:
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
        self.run(self.store.end_session(self.precondition(session), session.id))

    def session_events(self) -> list[tuple[str, str]]:
        found = self.run(self.store.events(EventSearch(actions=("session.started", "session.ended")))).events
        return [(event.action, event.target) for event in reversed(found)]


@pytest.fixture
def browsers(run: Run, store: Store, harness: StoreHarness) -> SessionDriver:
    return SessionDriver(run, store)


def test_session_is_found_with_its_bearer(browsers: SessionDriver, harness: StoreHarness, store: Store) -> None:
    token = harness.token(1, limits=Limits(scopes=("token:read",), networks=("10.0.0.0/8",)))
    session = browsers.sign_in(1, token)
    assert browsers.find(session) == (session, harness.run(store.find_bearer(token.id)))
    assert browsers.session_events() == [("session.started", token.id)]


def rotate_out(harness: StoreHarness, token: TokenRecord) -> None:
    harness.rotate_and_use(9, token)
    harness.clock.now += 2 * SECOND


def expire(harness: StoreHarness, token: TokenRecord) -> None:
    assert token.expires_at is not None
    harness.clock.now = token.expires_at


def suspend(harness: StoreHarness, token: TokenRecord) -> None:
    harness.run(harness.store.set_actor_status(SYSTEM, token.actor_urn, ActorStatus.SUSPENDED))


@pytest.mark.parametrize("end", [StoreHarness.revoke, expire, suspend, rotate_out])
def test_session_ends_with_its_token_in_every_process(
    browsers: SessionDriver, harness: StoreHarness, other: Store, end: Callable[[StoreHarness, TokenRecord], object]
) -> None:
    token = harness.token(1, expires_at=NOW + MINUTE)
    session = browsers.sign_in(1, token)
    elsewhere = SessionDriver(harness.run, other)
    assert browsers.is_live(session)
    assert elsewhere.is_live(session)
    end(harness, token)
    assert not elsewhere.is_live(session)
    assert not browsers.is_live(session)


def test_session_ends_with_the_parent_of_its_token(
    browsers: SessionDriver, harness: StoreHarness, other: Store
) -> None:
    parent = harness.token(1)
    session = browsers.sign_in(1, harness.derive(2, parent))
    assert browsers.is_live(session)
    harness.run(other.revoke_token(SYSTEM, parent.id, None))
    assert not browsers.is_live(session)


def test_suspension_ends_sessions_for_good(browsers: SessionDriver, harness: StoreHarness, store: Store) -> None:
    session = browsers.sign_in(1, harness.token(1))
    harness.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    harness.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    assert browsers.find(session) is None
    assert browsers.session_events()[-1] == ("session.ended", ANN)


def test_session_expires_before_a_token_without_expiry(
    browsers: SessionDriver, harness: StoreHarness, clock: SettableClock
) -> None:
    session = browsers.sign_in(1, harness.token(1, expires_at=None))
    clock.now = NOW + HOUR - 1
    assert browsers.is_live(session)
    clock.now = NOW + HOUR
    assert browsers.find(session) is None


def test_sign_out_ends_the_session_everywhere_with_one_event(
    browsers: SessionDriver, harness: StoreHarness, other: Store
) -> None:
    token = harness.token(1)
    session, another = browsers.sign_in(1, token), browsers.sign_in(2, token)
    browsers.sign_out(session)
    with pytest.raises(Fault) as caught:
        SessionDriver(harness.run, other).sign_out(session)
    assert caught.value.reason is Reason.SESSION_NOT_FOUND
    assert SessionDriver(harness.run, other).find(session) is None
    assert browsers.is_live(another)
    assert browsers.session_events() == [("session.started", token.id)] * 2 + [("session.ended", token.id)]


def test_sign_out_works_after_the_token_is_dead_or_purged(
    browsers: SessionDriver, harness: StoreHarness, clock: SettableClock
) -> None:
    token = harness.token(1)
    session, another = browsers.sign_in(1, token), browsers.sign_in(2, token)
    harness.revoke(token)
    browsers.sign_out(session)
    assert browsers.find(session) is None
    harness.run(harness.store.purge_tokens(clock.now + 1, 10))
    assert browsers.find(another) == (another, None)
    browsers.sign_out(another)
    assert browsers.find(another) is None


@pytest.mark.parametrize("with_token", [True, False])
def test_oldest_sessions_end_above_the_limit(browsers: SessionDriver, harness: StoreHarness, with_token: bool) -> None:
    token, others = (harness.token(1), harness.token(2, BOB)) if with_token else (None, None)
    apart = browsers.sign_in(100, others, BOB)
    made = [browsers.sign_in(number, token, at=NOW + number) for number in range(FEW + 2)]
    assert [browsers.find(session) is not None for session in made] == [False, False] + [True] * FEW
    assert browsers.find(apart) is not None


def test_session_limit_holds_under_concurrent_sign_ins(
    browsers: SessionDriver, harness: StoreHarness, other: Store, run: Run
) -> None:
    token = harness.token(1)
    made = [Session(numbered_id(number), ANN, token.id, NOW, NOW + HOUR) for number in range(12)]
    stores = (harness.store, other)
    outcomes = run(
        all_of(
            stores[n % 2].add_session(browsers.precondition(session), session, FEW, 100)
            for n, session in enumerate(made)
        )
    )
    assert outcomes == [None] * 12
    assert sum(browsers.is_live(session) for session in made) == FEW


@pytest.mark.parametrize("with_token", [True, False])
def test_sign_ins_per_hour_are_limited(
    browsers: SessionDriver, harness: StoreHarness, clock: SettableClock, with_token: bool
) -> None:
    token, others = (harness.token(1), harness.token(2, BOB)) if with_token else (None, None)
    browsers.an_hour = 4
    began = clock.now
    for number in range(4):
        clock.now = began + number * MINUTE
        browsers.sign_out(browsers.sign_in(number, token, at=clock.now))
    kept = browsers.session_events()
    with pytest.raises(Fault) as caught:
        browsers.sign_in(10, token)
    assert caught.value.reason is Reason.TOO_MANY_SIGN_INS
    assert 56 * 60 < caught.value.details["retryAfter"] <= 57 * 60
    assert browsers.session_events() == kept
    browsers.sign_in(11, others, BOB)  # another holder
    clock.now = began + HOUR + SECOND
    browsers.sign_in(12, token)


def test_token_and_actor_sessions_are_counted_separately(browsers: SessionDriver, harness: StoreHarness) -> None:
    first = browsers.sign_in(1, None, ANN)
    token = harness.token(1)
    made = [browsers.sign_in(2 + number, token, at=NOW + number) for number in range(FEW)]
    assert browsers.find(first) == (first, None)
    assert all(map(browsers.is_live, made))


def test_only_expired_sessions_are_purged_in_batches(
    browsers: SessionDriver, harness: StoreHarness, store: Store, clock: SettableClock, location: StoreLocation
) -> None:
    for number in range(3):
        browsers.sign_in(number, harness.token(number))
    later = browsers.sign_in(9, harness.token(9, expires_at=None), at=NOW + MINUTE)
    clock.now = NOW + HOUR
    assert harness.run(store.purge_sessions(2)) == 2
    tasks = BackgroundTasks(lambda *_: None, lambda _: None)
    harness.run(Purge({"sessions": store.purge_sessions}).purge(tasks))
    assert harness.run(store.purge_sessions(2)) == 0
    assert browsers.is_live(later)
    assert location.problems() == []
