"""Each token gets one notice per threshold before it expires: late rather than never, and once on any number of
instances.
"""

from typing import Any

from tests.contract.harness import ADMIN, ANN, BOB, SECOND, SYSTEM, StoreHarness, account, all_of, record
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.basics.times import DAY
from watchword.stores.joined import Store
from watchword.tokens.expiry_jobs import LEASE_MILLIS, ExpiryNotices
from watchword.tokens.rules import TokenType

THRESHOLDS = (30, 7, 1)


def notices(location: StoreLocation) -> list[tuple[str, Any]]:
    """The ids and days of the events, oldest first."""
    return [(event.target, event.detail["days"]) for event in location.events() if event.action == "token.expiring"]


def look(harness: StoreHarness, *stores: Store) -> int:
    """Each of these stores looks once, at the same time."""
    passes = [
        ExpiryNotices(store, THRESHOLDS, f"instance {number}", rests=0).run_once()
        for number, store in enumerate(stores or (harness.store,))
    ]
    done = harness.run(all_of(passes))
    assert [one for one in done if isinstance(one, Exception)] == []
    return sum(done)


def test_each_threshold_has_one_event(harness: StoreHarness, location: StoreLocation, other: Store) -> None:
    """The notices are taken in turn by instances that start and stop."""
    end = NOW + 90 * DAY
    token = harness.token(1, ANN, owner=BOB, expires_at=end)
    for left in (60 * DAY, 30 * DAY + 1, 30 * DAY, 29 * DAY, 7 * DAY, DAY + 1, DAY, SECOND, 0, -DAY):
        harness.clock.now = end - left
        look(harness, harness.store, other)
        harness.clock.now += LEASE_MILLIS + 1  # an instance that was killed keeps its lease for so long
        look(harness, other)
    assert notices(location) == [(token.id, 30), (token.id, 7), (token.id, 1)]
    (first, *_) = [event for event in location.events() if event.action == "token.expiring"]
    assert first.detail == {"name": token.name, "actorUrn": ANN, "ownerUrn": BOB, "days": 30, "expiresAt": end}


def test_after_a_pause_the_nearest_threshold_has_its_event(harness: StoreHarness, location: StoreLocation) -> None:
    token = harness.token(1, expires_at=NOW + 90 * DAY)
    harness.clock.now = NOW + 88 * DAY
    assert look(harness) == 1
    harness.clock.now = NOW + 89 * DAY + SECOND
    assert look(harness) == 1
    assert notices(location) == [(token.id, 7), (token.id, 1)]


def test_token_gets_only_thresholds_below_its_lifetime(harness: StoreHarness, location: StoreLocation) -> None:
    week, month = harness.token(1, expires_at=NOW + 7 * DAY), harness.token(2, expires_at=NOW + 30 * DAY)
    harness.token(3, expires_at=NOW + DAY)
    harness.token(4, expires_at=None)
    look(harness)
    assert notices(location) == []
    harness.clock.now = NOW + 6 * DAY
    look(harness)
    harness.clock.now = NOW + 23 * DAY
    look(harness)
    assert notices(location) == [(week.id, 1), (month.id, 7)]


def test_revoked_replaced_derived_and_suspended_tokens_get_none(harness: StoreHarness, location: StoreLocation) -> None:
    end = NOW + 20 * DAY
    harness.revoke(harness.token(1, expires_at=end))
    old = harness.token(2, expires_at=end)
    # An unused successor leaves the notice to the token it would replace.
    waiting = harness.rotate(3, old, expires_at=end, full_end=end + DAY)
    parent = harness.token(4, expires_at=end)
    harness.derive(5, parent)
    harness.token(6, BOB, expires_at=end)
    harness.run(harness.store.set_actor_status(SYSTEM, BOB, ActorStatus.SUSPENDED))
    harness.clock.now = end - 7 * DAY
    look(harness)
    assert sorted(notices(location)) == sorted([(old.id, 7), (parent.id, 7)])
    harness.use_first(waiting)
    harness.run(harness.store.set_actor_status(SYSTEM, BOB, ActorStatus.ACTIVE))
    harness.clock.now = end - DAY
    look(harness)
    # The replaced one has ended; its successor ends in two days.
    expected = [(old.id, 7), (parent.id, 7), (parent.id, 1), (waiting.id, 7), (record(6).id, 1)]
    assert sorted(notices(location)) == sorted(expected)


def test_event_names_the_owner_of_a_service_account(harness: StoreHarness, location: StoreLocation) -> None:
    robot = account(1, created_by=BOB)
    harness.run(harness.store.add_account(SYSTEM, robot))
    harness.token(1, robot.urn, owner=ADMIN, type=TokenType.SERVICE_ACCOUNT, expires_at=NOW + 8 * DAY)
    harness.clock.now = NOW + 2 * DAY
    look(harness)
    (event,) = [event for event in location.events() if event.action == "token.expiring"]
    assert event.detail["accountOwnerUrn"] == BOB


def test_many_tokens_with_the_same_expiry_have_one_event_each(
    harness: StoreHarness, location: StoreLocation, monkeypatch: Any
) -> None:
    monkeypatch.setattr("watchword.tokens.expiry_jobs.PAGE", 7)
    monkeypatch.setattr("watchword.tokens.expiry_jobs.BATCH", 3)
    made = [harness.token(number, expires_at=NOW + 8 * DAY + number // 10) for number in range(23)]
    harness.clock.now = NOW + 2 * DAY
    assert look(harness) == 23
    assert look(harness) == 0
    assert sorted(notices(location)) == sorted((token.id, 7) for token in made)
    harness.clock.now = NOW + 90 * DAY
    harness.run(harness.store.purge_tokens(NOW + 80 * DAY, 100))
    assert location.problems() == []
