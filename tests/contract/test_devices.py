"""A terminal that waits gets its token once, while its code is valid and approved."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.harness import ANN, HOUR, PLENTY, SYSTEM, Run, StoreHarness, all_of, record
from tests.support.backends import NOW, SettableClock, StoreLocation
from tests.support.strategies import numbered_id
from watchword.authority.callers import ActorStatus
from watchword.basics.errors import Fault, Reason, Stale
from watchword.basics.networks import origins_of
from watchword.signin.device_rules import (
    CODE_MILLIS,
    INTERVAL,
    KEPT,
    LONGEST_INTERVAL,
    Device,
    DeviceLimits,
    DeviceStatus,
)
from watchword.signin.session_rules import LogoutNotice, Session
from watchword.stores.joined import Store

FEW = 3
LIMITS = DeviceLimits(pending=12, of_origin=FEW, of_site=4, of_network=5, decided=8)


class DeviceDriver:
    def __init__(self, run: Run, store: Store, harness: StoreHarness) -> None:
        self.run = run
        self.store = store
        self.harness = harness

    def add(self, number: int, origin: str = "10.0.0.1", **fields: Any) -> Device:
        at = self.harness.clock.now
        device = Device(
            numbered_id(number), numbered_id(100 + number), "cli", "host", None, origin, *origins_of(origin), at, at
        )._replace(**{"ends_at": at + CODE_MILLIS, **fields})
        assert self.run(self.store.add_device(device, LIMITS))
        return device

    def refused(self, number: int, origin: str) -> Fault:
        with pytest.raises(Fault) as caught:
            self.add(number, origin)
        assert caught.value.reason is Reason.TOO_MANY_CODES
        return caught.value

    def is_open(self, device: Device) -> bool:
        return self.run(self.store.get_device(device.id)) is not None

    def session(self, device: Device, *, issuer: str | None = None) -> Session:
        """A session for the decision on this terminal."""
        at = self.harness.clock.now
        digest = f"session for {device.id}"
        session = Session(digest, ANN, None, at, at + HOUR, at, "10.0.0.1", issuer, issuer and "subject")
        self.run(self.store.add_session(session.precondition("10.0.0.1", ""), session, PLENTY, PLENTY))
        return session

    def decide(
        self, device: Device, status: DeviceStatus = DeviceStatus.APPROVED, session: Session | None = None
    ) -> Session:
        session = session or self.session(device)
        self.run(self.store.decide_device(self.harness.precondition(ANN), device, status, session.id, LIMITS))
        return session

    def redeem(self, store: Store, device: Device, number: int) -> Any:
        made = record(number, ANN)
        return store.redeem_device(device.id, self.harness.precondition(ANN), made, self.harness.issue())

    def poll(self, device: Device) -> tuple[Device, int]:
        found = self.run(self.store.poll_device(device.id))
        assert found is not None
        return found


@pytest.fixture
def devices(run: Run, store: Store, harness: StoreHarness) -> DeviceDriver:
    return DeviceDriver(run, store, harness)


def reason(error: object) -> Reason:
    assert isinstance(error, Fault), error
    return error.reason


def test_terminal_is_found_by_its_codes_until_it_is_decided(
    devices: DeviceDriver, other: Store, location: StoreLocation
) -> None:
    device = devices.add(1, scopes=("a", "b"))
    assert devices.run(other.get_device(device.id)) == device
    assert devices.run(other.find_device(device.user_code)) == device
    session = devices.decide(device)
    approved = device._replace(status=DeviceStatus.APPROVED, actor=ANN, session_id=session.id)
    assert devices.run(other.get_device(device.id)) == approved
    with pytest.raises(Fault) as caught:
        devices.run(other.find_device(device.user_code))
    assert reason(caught.value) is Reason.DEVICE_NOT_FOUND
    with pytest.raises(Fault) as caught:
        devices.decide(device, DeviceStatus.DENIED, session)
    assert reason(caught.value) is Reason.DEVICE_NOT_FOUND
    event = location.events()[-1]
    assert (event.action, event.actor, event.target) == ("device.approved", ANN, ANN)
    assert location.problems() == []


def test_concurrent_polls_get_one_token(devices: DeviceDriver, store: Store, other: Store, run: Run) -> None:
    device = devices.add(1)
    devices.decide(device)
    outcomes = run(all_of([devices.redeem((store, other)[n % 2], device, n) for n in range(8)]))
    assert outcomes.count(None) == 1
    assert {reason(one) for one in outcomes if one is not None} == {Reason.INVALID_GRANT}
    assert devices.harness.search().total == 1
    assert run(other.get_device(device.id)) is None


def test_terminal_without_a_valid_approval_gets_no_token(
    devices: DeviceDriver, store: Store, clock: SettableClock
) -> None:
    pending, denied, approved = (devices.add(number) for number in range(3))
    devices.decide(denied, DeviceStatus.DENIED)
    devices.decide(approved)
    late = devices.redeem(store, approved, 1)
    devices.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.SUSPENDED))
    with pytest.raises(Stale):
        devices.run(late)
    devices.run(store.set_actor_status(SYSTEM, ANN, ActorStatus.ACTIVE))
    clock.now = approved.ends_at
    for device in (pending, denied, approved):
        with pytest.raises(Fault) as caught:
            devices.run(devices.redeem(store, device, 2))
        assert reason(caught.value) is Reason.INVALID_GRANT
    assert devices.harness.search().total == 0


def sign_out(devices: DeviceDriver, session: Session) -> None:
    devices.run(devices.store.end_session(session.precondition("10.0.0.1", ""), session.id))


def sign_out_at_provider(devices: DeviceDriver, session: Session) -> None:
    assert session.issuer is not None
    notice = LogoutNotice(session.issuer, session.subject, None, session.created_at)
    assert devices.run(devices.store.end_sessions_by_notice(SYSTEM, notice)) == 1


def suspend_and_resume(devices: DeviceDriver, session: Session) -> None:
    for status in (ActorStatus.SUSPENDED, ActorStatus.ACTIVE):
        devices.run(devices.store.set_actor_status(SYSTEM, session.actor, status))


def offboard(devices: DeviceDriver, session: Session) -> None:
    assert devices.run(devices.store.end_sessions_of(SYSTEM, session.actor)) == 1


def let_it_expire(devices: DeviceDriver, session: Session) -> None:
    devices.harness.clock.now = session.ends_at


@pytest.mark.parametrize("end", [sign_out, sign_out_at_provider, suspend_and_resume, offboard, let_it_expire])
def test_approved_terminal_gets_no_token_after_its_session_ended(
    devices: DeviceDriver, other: Store, end: Callable[[DeviceDriver, Session], None]
) -> None:
    device = devices.add(1, ends_at=NOW + 2 * HOUR)
    session = devices.decide(device, session=devices.session(device, issuer="https://id.example.org"))
    end(devices, session)
    with pytest.raises(Fault) as caught:
        devices.run(devices.redeem(other, device, 1))
    assert reason(caught.value) is Reason.SESSION_OVER
    assert devices.harness.search().total == 0


def test_no_token_is_created_after_the_session_ended(
    devices: DeviceDriver, store: Store, other: Store, run: Run, location: StoreLocation
) -> None:
    """The end of a session waits for a token that is being created in it."""
    for number in range(2 * FEW):
        device = devices.add(number, f"10.0.{number}.1")
        session = devices.decide(device)
        end = other.end_session(session.precondition("10.0.0.1", ""), session.id)
        redeem = devices.redeem(store, device, number)
        outcomes = run(all_of([end, redeem] if number % 2 else [redeem, end]))
        assert all(one is None or reason(one) is Reason.SESSION_OVER for one in outcomes)
        assert location.events()[-1].action == "session.ended"


def test_polls_that_come_too_fast_make_the_interval_longer(
    devices: DeviceDriver, other: Store, clock: SettableClock
) -> None:
    device = devices.add(1)
    assert not devices.poll(device)[0].is_too_fast(clock.now)
    clock.now = NOW + INTERVAL - 2_000
    seen, now = devices.poll(device)
    assert seen.is_too_fast(now)
    stored = devices.run(other.get_device(device.id))
    assert stored is not None
    assert (stored.interval, stored.polled_at) == (2 * INTERVAL, NOW)
    for _ in range(20):
        devices.poll(device)
    stored = devices.run(other.get_device(device.id))
    assert stored is not None
    assert (stored.interval, stored.polled_at) == (LONGEST_INTERVAL, NOW)
    clock.now = NOW + LONGEST_INTERVAL
    seen, now = devices.poll(device)
    assert not seen.is_too_fast(now)
    assert devices.run(other.poll_device(numbered_id(50))) is None


@pytest.mark.parametrize(
    ("addresses", "another"),
    [
        (["192.0.2.1"] * 3, "192.0.2.2"),
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], "2001:db8:0:1::1"),  # a /64
        ([f"2001:db8:0:{number}::1" for number in range(4)], "2001:db8:0:100::1"),  # a /56
        ([f"2001:db8:0:{number}00::1" for number in range(5)], "2001:db8:1::1"),  # a /48
        ([f"192.0.2.{number}" for number in range(5)], "192.0.3.1"),
    ],
)
def test_undecided_terminals_are_limited_by_address_and_networks(
    devices: DeviceDriver, clock: SettableClock, addresses: list[str], another: str
) -> None:
    first, *_ = [devices.add(number, address) for number, address in enumerate(addresses)]
    fault = devices.refused(20, addresses[0])
    assert fault.details["retryAfter"] == CODE_MILLIS // 1_000
    devices.add(21, another)
    devices.decide(first, DeviceStatus.DENIED)  # decided ones count apart
    devices.add(22, addresses[0])
    devices.refused(23, addresses[0])
    clock.now += CODE_MILLIS
    devices.add(24, addresses[0])


def test_one_network_cannot_keep_others_from_starting(devices: DeviceDriver, clock: SettableClock) -> None:
    """In all, there is always room: the oldest undecided terminal of the fullest network goes."""
    crowd, people = [], []
    for number in range(6):
        clock.now += 1
        crowd.append(devices.add(number, f"2001:db8:0:{number}00::1"))
        if number == 0:
            devices.decide(crowd[0])
    for number in range(10):
        clock.now += 1
        people.append(devices.add(10 + number, f"198.51.{number}.1"))
    assert all(devices.is_open(one) for one in people)
    assert [devices.is_open(one) for one in crowd] == [True, False, False, False, True, True]


def test_last_decisions_of_an_actor_are_kept(devices: DeviceDriver, clock: SettableClock) -> None:
    decided = []
    for number in range(LIMITS.decided + 2):
        clock.now += 1
        decided.append(devices.add(number, f"198.51.{number}.1"))
        devices.decide(decided[-1], list(DeviceStatus)[1 + number % 2])
    pending = devices.add(20)
    late = devices.add(21, created_at=NOW)
    devices.decide(late)
    assert devices.is_open(late)
    assert [devices.is_open(device) for device in decided] == [False] * 3 + [True] * (LIMITS.decided - 1)
    assert devices.is_open(pending)


def test_user_code_in_use_is_not_given_twice(devices: DeviceDriver, store: Store) -> None:
    device = devices.add(1)
    again = device._replace(id=numbered_id(2))
    assert not devices.run(store.add_device(again, LIMITS))
    assert devices.run(store.get_device(again.id)) is None


def test_expired_terminals_are_purged_after_a_while(devices: DeviceDriver, store: Store, clock: SettableClock) -> None:
    old = devices.add(1)
    clock.now = NOW + CODE_MILLIS + KEPT - 1
    assert devices.run(store.purge_devices(10)) == 0
    clock.now += 1
    young = devices.add(2)
    assert devices.run(store.purge_devices(10)) == 1
    assert devices.run(store.get_device(old.id)) is None
    assert devices.run(store.get_device(young.id)) == young
    assert young.ends_at < clock.now + HOUR
