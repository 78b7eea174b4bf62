"""Events become deliveries in their order, once, together with the cursor; a webhook that fails stops in the end."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.harness import ADMIN, ANN, BOB, HOUR, OPS, Run, StoreHarness
from tests.support.backends import NOW, SettableClock, StoreLocation
from watchword.basics.errors import Reason
from watchword.basics.times import DAY
from watchword.journal.events import Action, Cursor, CursorLost, KeptEvent
from watchword.notices.webhook_rules import (
    CURSOR,
    MAX_QUEUE,
    Attempt,
    Delivery,
    DeliveryCounts,
    DeliveryState,
    EventFilter,
    StopReason,
    Webhook,
    WebhookState,
)
from watchword.stores.joined import Store

ME = "this worker"
OK = Attempt(NOW, 5, 200, None, "ok")
BAD = Attempt(NOW, 5, 500, None, "no")
GONE = Attempt(NOW, 5, 410, None, None)


def hook(id_: str = "a", **fields: Any) -> Webhook:
    made = Webhook(id_, id_.upper(), "https://example.com/x", EventFilter(), WebhookState.ENABLED, b"sealed", 0, ADMIN)
    return replace(made, **fields)


class Sender:
    def __init__(self, run: Run, store: Store, harness: StoreHarness) -> None:
        self.run, self.store, self.harness = run, store, harness

    def add(self, webhook: Webhook) -> Webhook:
        return self.run(self.store.add_webhook(self.harness.precondition(), webhook))

    def queue(self, holder: str = ME) -> None:
        seq = self.run(self.store.lease_cursor(CURSOR, holder, HOUR))
        assert seq is not None
        while events := self.run(self.store.events_after(seq, 1_000)):
            self.run(self.store.queue_events(holder, events))
            seq = events[-1].seq

    def waiting(self, id_: str = "a") -> tuple[Delivery, ...]:
        return self.run(self.store.waiting_deliveries(id_, 1_000))

    def types(self, id_: str = "a") -> list[str]:
        return [one.type for one in self.waiting(id_)]

    def attempt(self, attempt: Attempt, id_: str = "a", holder: str = ME) -> Webhook | None:
        return self.run(self.store.record_attempt(holder, self.waiting(id_)[0], attempt, 0.5))

    def webhook(self, id_: str = "a") -> Webhook:
        return self.run(self.store.webhook(id_))

    def replay(self, id_: str = "a", number: int | None = None) -> int:
        return self.run(self.store.replay_delivery(self.harness.precondition(), id_, number))

    def fill(self, number: int) -> None:
        event = KeptEvent(NOW, ADMIN, None, "access.denied", "here", "", "", {})
        self.run(self.store.add_events([event] * number))


@pytest.fixture
def sender(run: Run, store: Store, harness: StoreHarness) -> Sender:
    return Sender(run, store, harness)


def test_webhook_gets_each_matching_event_once_from_its_creation_on(sender: Sender, harness: StoreHarness) -> None:
    harness.token(1)
    sender.add(hook())
    sender.add(hook("b", filter=EventFilter(actions=("token.*",))))
    harness.token(2)
    assert sender.run(sender.store.has_deliveries())
    sender.queue()
    assert not sender.run(sender.store.has_deliveries())  # for others, while this one has the lease
    sender.queue()
    assert sender.types() == ["webhook.created", "webhook.created", "token.created"]
    assert sender.types("b") == ["token.created"]
    assert [one.id for one in sender.run(sender.store.due_webhooks())] == ["a", "b"]
    sender.add(hook("c"))
    sender.queue()
    assert sender.types("c") == ["webhook.created"]


def test_filters_by_actor_and_by_group_of_the_token(sender: Sender, harness: StoreHarness) -> None:
    store, run = sender.store, sender.run
    run(store.add_group(harness.precondition(), OPS))
    run(store.change_members(harness.precondition(), OPS.urn, add=[ANN]))
    sender.add(hook("actor", filter=EventFilter(actors=(ADMIN,))))
    sender.add(hook("group", filter=EventFilter(groups=(OPS.urn,))))
    of_ann, of_bob = harness.token(1, ANN), harness.token(2, BOB)
    run(store.revoke_token(harness.precondition(), of_ann.id, None))
    run(store.revoke_token(harness.precondition(), of_bob.id, None))
    sender.queue()
    assert sender.types("actor") == ["webhook.created", "webhook.created", "token.revoked", "token.revoked"]
    assert sender.types("group") == ["token.created", "token.revoked"]
    assert all(of_ann.id in one.payload for one in sender.waiting("group"))


def test_only_the_holder_of_the_lease_queues_and_records(sender: Sender, clock: SettableClock) -> None:
    sender.add(hook())
    sender.queue()
    assert sender.run(sender.store.lease_cursor(CURSOR, "another", HOUR)) is None
    clock.now = NOW + 2 * HOUR
    assert sender.run(sender.store.lease_cursor(CURSOR, "another", HOUR)) is not None
    with pytest.raises(CursorLost):
        sender.attempt(OK)
    sender.fill(1)
    events = sender.run(sender.store.events_after(0, 100))
    with pytest.raises(CursorLost):
        sender.run(sender.store.queue_events(ME, events))
    assert sender.types() == ["webhook.created"]
    assert sender.attempt(OK, holder="another") is not None
    assert sender.types() == []


def test_failures_are_retried_later_and_later_for_three_days_then_it_stops(
    sender: Sender, clock: SettableClock, location: StoreLocation
) -> None:
    sender.add(hook())
    sender.queue()
    pauses: list[int] = []
    while sender.webhook().state is WebhookState.ENABLED:
        after = sender.attempt(BAD)
        assert after is not None
        if after.state is WebhookState.ENABLED:
            assert sender.run(sender.store.due_webhooks()) == ()
            pauses.append(after.due_at - clock.now)
            clock.now = after.due_at
            sender.run(sender.store.lease_cursor(CURSOR, ME, HOUR))
            assert [one.id for one in sender.run(sender.store.due_webhooks())] == ["a"]
    assert pauses[:4] == [5_000, 10_000, 20_000, 40_000]
    assert max(pauses) == HOUR
    assert 3 * DAY <= clock.now - NOW <= 3 * DAY + HOUR
    assert sender.webhook().stop_reason is StopReason.FAILED
    assert not sender.run(sender.store.due_webhooks())
    (delivery,) = sender.waiting()
    assert len(delivery.attempts) == 20
    told = location.events()[-1]
    assert (told.action, told.target) == (Action.WEBHOOK_STOPPED.value, "a")
    assert told.detail == {"name": "A", "reason": "failed", "ownerUrn": ADMIN}
    assert sender.run(sender.store.delivery_counts()) == DeliveryCounts(1, 1, 1)
    # What happens meanwhile waits too, and a replay sends it.
    sender.queue()
    assert sender.replay() == 2
    assert sender.webhook().state is WebhookState.ENABLED
    assert sender.types() == ["webhook.created", "webhook.stopped"]


def test_answer_410_disables_it(sender: Sender, location: StoreLocation, harness: StoreHarness) -> None:
    sender.add(hook())
    sender.queue()
    sender.attempt(GONE)
    assert (sender.webhook().state, sender.webhook().stop_reason) == (WebhookState.DISABLED, StopReason.GONE)
    assert location.events()[-1].detail["reason"] == "gone"
    assert sender.run(sender.store.delivery_counts()) == DeliveryCounts(1, 1, 1)
    assert harness.fault_of(sender.store.replay_delivery(harness.precondition(), "a", None)).reason is (
        Reason.WEBHOOK_DISABLED
    )
    sender.queue()
    harness.token(1)
    sender.run(sender.store.change_webhook(harness.precondition(), "a", name=None, url=None, filter={}, enabled=True))
    harness.token(2)
    sender.queue()
    assert sender.types() == ["webhook.created", "webhook.updated", "token.created"]


def test_disabling_one_that_its_receiver_disabled_settles_it(sender: Sender, harness: StoreHarness) -> None:
    sender.add(hook())
    sender.queue()
    sender.attempt(GONE)
    sender.run(sender.store.change_webhook(harness.precondition(), "a", name=None, url=None, filter={}, enabled=False))
    assert (sender.webhook().state, sender.webhook().stop_reason) == (WebhookState.DISABLED, None)
    assert sender.run(sender.store.delivery_counts()) == DeliveryCounts(0, 0, 0)


def test_full_queue_stops_it_and_counts_what_had_no_room(sender: Sender, harness: StoreHarness) -> None:
    sender.add(hook(filter=EventFilter(actions=("access.denied",))))
    sender.fill(MAX_QUEUE + 2)
    sender.queue()
    found = sender.webhook()
    assert (found.state, found.stop_reason) == (WebhookState.STOPPED, StopReason.QUEUE_FULL)
    assert (found.waiting, found.dropped) == (MAX_QUEUE, 2)
    sender.replay()
    assert sender.webhook().dropped == 2
    # A replay since a time finds no room for them, and says where to go on.
    by, replay = harness.precondition(), sender.store.replay_events
    queued, position = sender.run(replay(by, "a", NOW - 1, Cursor(NOW - 1, -1), 2 * MAX_QUEUE))
    assert (queued, position is None) == (0, False)
    assert sender.webhook().dropped == 0
    sender.attempt(OK)
    assert position is not None
    assert sender.run(replay(by, "a", NOW - 1, position, 100)) == (1, Cursor(NOW, position.seq + 1))


def test_replay_sends_a_delivery_or_the_events_since_a_time_again(
    sender: Sender, harness: StoreHarness, clock: SettableClock, location: StoreLocation
) -> None:
    sender.add(hook(filter=EventFilter(actions=("token.created",))))
    harness.token(1)
    clock.now = NOW + 1
    harness.token(2)
    sender.queue()
    first, second = sender.waiting()
    sender.attempt(OK)
    sender.attempt(OK)
    assert sender.replay(number=first.number) == 1
    assert sender.waiting()[0].message == first.message
    queued, more = sender.run(sender.store.replay_events(harness.precondition(), "a", NOW, Cursor(NOW, -1), 100))
    assert (queued, more) == (1, None)  # the first waits already
    assert [one.message for one in sender.waiting()] == [first.message, second.message]
    assert [one.payload for one in sender.waiting()] == [first.payload, second.payload]
    assert harness.fault_of(sender.store.replay_delivery(harness.precondition(), "a", 99)).reason is (
        Reason.DELIVERY_NOT_FOUND
    )
    assert {event.detail.get("since") for event in location.events() if event.action == "webhook.replayed"} == {
        None,
        NOW,
    }


def test_changes_write_their_events_without_path_and_secret(
    sender: Sender, harness: StoreHarness, location: StoreLocation
) -> None:
    sender.add(hook())
    store, by = sender.store, harness.precondition()
    changed = sender.run(store.change_webhook(by, "a", name="New", url=None, filter={}, enabled=False))
    assert (changed.name, changed.state) == ("New", WebhookState.DISABLED)
    rotated = sender.run(store.rotate_webhook(by, "a", b"sealed again", HOUR))
    assert (rotated.sealed_secret, rotated.sealed_previous) == (b"sealed again", b"sealed")
    assert rotated.previous_until == NOW + HOUR
    sender.run(store.delete_webhook(by, "a"))
    assert harness.fault_of(store.webhook("a")).reason is Reason.WEBHOOK_NOT_FOUND
    told = [event for event in location.events() if event.action.startswith("webhook.")]
    assert [event.action for event in told] == [
        f"webhook.{word}" for word in ("created", "updated", "secret_rotated", "deleted")
    ]
    assert "/x" not in str(told)
    assert "sealed" not in str(told)


def test_old_and_surplus_deliveries_are_pruned(sender: Sender, clock: SettableClock) -> None:
    sender.add(hook())
    sender.queue()
    assert sender.run(sender.store.last_deliveries(["a"])) == {}
    sender.attempt(OK)
    assert sender.run(sender.store.last_deliveries(["a", "other"])) == {"a": NOW}
    prune = sender.store.prune_deliveries
    assert sender.run(prune(NOW, 100)) == 0
    page = sender.run(sender.store.deliveries("a", DeliveryState.DELIVERED, None, 10))
    assert [one.attempts for one in page.deliveries] == [(OK,)]
    assert sender.run(prune(NOW + 1, 100)) == 1
    assert sender.run(sender.store.deliveries("a", None, None, 10)).deliveries == ()
    sender.fill(2)
    sender.queue()
    assert sender.run(prune(NOW + 1, 100)) == 2
    assert sender.webhook().dropped == 2
