"""Readers of events with a cursor: in order, none skipped, one reader at a time."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from json import loads

import psycopg
import pytest

from tests.contract.harness import ANN, MINUTE, Run, StoreHarness
from tests.support.backends import NOW, PostgresBackend, PostgresLocation, StoreLocation
from tests.support.postgres import DEBIAN, SharedClusters
from watchword.journal.events import MAX_PAGE_BYTES, CursorLost, KeptEvent
from watchword.notices.webhook_rules import CURSOR, EventFilter, Webhook, WebhookState
from watchword.stores.joined import Store

ADD = """
INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
VALUES (0, '', NULL, 'a', %s, '', '', '{}')"""


def event(target: str, **detail: str) -> KeptEvent:
    return KeptEvent(NOW, ANN, None, "access.denied", target, "127.0.0.1", "request-1", detail)


def add(run: Run, store: Store, *targets: str) -> None:
    for target in targets:
        run(store.add_events([event(target)]))


def read(run: Run, store: Store, seq: int = 0, most: int = 100) -> list[str]:
    return [one.target for one in run(store.events_after(seq, most))]


def test_events_come_in_order_after_a_number(run: Run, store: Store, location: StoreLocation) -> None:
    assert run(store.last_event()) == 0
    assert read(run, store) == []
    add(run, store, "one", "two", "three")
    first, *_ = run(store.events_after(0, 1))
    assert first == KeptEvent(**{name: getattr(location.events()[0], name) for name in _FIELDS}, seq=first.seq)
    assert read(run, store, first.seq) == ["two", "three"]
    assert read(run, store, first.seq, 1) == ["two"]
    assert read(run, store, run(store.last_event())) == []


_FIELDS = ("at", "actor", "bearer_id", "action", "target", "peer", "request_id", "detail")


def test_page_of_large_events_ends_early(run: Run, store: Store) -> None:
    for target in "abc":
        run(store.add_events([event(target, text="x" * (MAX_PAGE_BYTES * 2 // 3))]))
    assert read(run, store) == ["a"]


def test_pruned_numbers_hold_nothing_up(run: Run, store: Store) -> None:
    add(run, store, "one", "two")
    assert run(store.prune_events(NOW + 1, 100)) == 2
    add(run, store, "three")
    assert read(run, store) == ["three"]


def test_cursor_begins_at_the_end_and_has_one_holder(harness: StoreHarness, other: Store) -> None:
    run, store = harness.run, harness.store
    last = run(store.last_event())
    assert last > 0
    assert run(store.lease_cursor("a", "one", MINUTE)) == last
    assert run(other.lease_cursor("a", "two", MINUTE)) is None
    assert run(other.lease_cursor("b", "two", MINUTE)) == last
    run(store.move_cursor("a", "one", last + 5))
    assert run(store.lease_cursor("a", "one", MINUTE)) == last + 5
    for holder, seq in (("two", last + 9), ("one", last + 5)):
        with pytest.raises(CursorLost):
            run(other.move_cursor("a", holder, seq))
    run(store.release_cursor("a", "one"))
    assert run(other.lease_cursor("a", "two", MINUTE)) == last + 5


def test_expired_lease_moves_nothing_and_is_free(harness: StoreHarness, other: Store) -> None:
    run, store = harness.run, harness.store
    last = run(store.lease_cursor("a", "one", MINUTE)) or 0
    harness.clock.now = NOW + MINUTE
    with pytest.raises(CursorLost):
        run(store.move_cursor("a", "one", last + 1))
    assert run(other.lease_cursor("a", "two", MINUTE)) == last


@pytest.fixture
def postgres_location(
    shared_clusters: SharedClusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PostgresLocation]:
    backend = PostgresBackend(shared_clusters.apart(DEBIAN), tmp_path_factory.mktemp("keys"))
    location = backend.location()
    assert isinstance(location, PostgresLocation)
    yield location
    backend.release()


@contextmanager
def writer(location: PostgresLocation) -> Iterator[psycopg.Connection]:
    """A transaction that is open, with an id, and has written no event yet."""
    with closing(location.home.connect()) as connection:
        connection.autocommit = False
        connection.execute("SELECT pg_current_xact_id()")
        yield connection


def test_reader_waits_for_a_running_transaction(run: Run, postgres_location: PostgresLocation) -> None:
    store = run(postgres_location.open())
    add(run, store, "before")
    with writer(postgres_location) as late:
        late.execute(ADD, ("late",))
        add(run, store, "later")
        assert read(run, store) == ["before"]
        late.commit()
    assert read(run, store) == ["before", "late", "later"]
    with writer(postgres_location) as undone:
        undone.execute(ADD, ("undone",))
        add(run, store, "last")
        assert read(run, store)[3:] == []
        undone.rollback()
    assert read(run, store)[3:] == ["last"]
    run(store.close())


def test_number_and_transaction_id_may_come_in_another_order(run: Run, postgres_location: PostgresLocation) -> None:
    """The first to begin writes last and commits first."""
    store = run(postgres_location.open())
    with writer(postgres_location) as early, writer(postgres_location) as late:
        late.execute(ADD, ("one",))
        early.execute(ADD, ("two",))
        early.commit()
        assert read(run, store) == []
        late.commit()
    assert read(run, store) == ["one", "two"]
    run(store.close())


def test_new_readers_get_what_is_committed_late(run: Run, postgres_location: PostgresLocation) -> None:
    store = run(postgres_location.open())
    harness = StoreHarness(run, store, postgres_location.clock)
    harness.first_start()
    webhook = Webhook("a", "A", "https://example.com/", EventFilter(), WebhookState.ENABLED, b"sealed", 0, ANN)
    add(run, store, "old")
    last = run(store.last_event())
    with writer(postgres_location) as late:
        late.execute(ADD, ["late"])
        add(run, store, "early")
        run(store.add_webhook(harness.precondition(), webhook))
        assert run(store.lease_cursor("mail", "me", MINUTE)) == last
        late.commit()
    seq = run(store.lease_cursor(CURSOR, "me", MINUTE))
    assert seq is not None
    run(store.queue_events("me", run(store.events_after(seq, 100))))
    queued = [loads(one.payload)["data"]["target"]["id"] for one in run(store.waiting_deliveries("a", 100))]
    assert queued == ["late", "early", "a"]
    run(store.close())


def test_other_transactions_hold_nothing_up(run: Run, postgres_location: PostgresLocation) -> None:
    """One that reads events, and one that has written elsewhere."""
    store = run(postgres_location.open())
    add(run, store, "pruned", "one")
    postgres_location.home.look("DELETE FROM events WHERE target = 'pruned'")
    with writer(postgres_location) as reading, writer(postgres_location) as writing:
        reading.execute("SELECT * FROM events")
        writing.execute("UPDATE state SET events_since = events_since")
        assert read(run, store) == ["one"]
    run(store.close())


def test_reader_beside_many_writers_skips_none(run: Run, store: Store, other: Store) -> None:
    """Read all while others write: each event is read once, in the order of the numbers."""

    async def both() -> list[KeptEvent]:
        names = iter(range(200))

        async def write() -> None:
            for name in names:
                await other.add_events([event(f"{name}"), event(f"{name} too")])

        writers = asyncio.gather(*(write() for _ in range(8)))
        seen: list[KeptEvent] = []
        while not writers.done() or len(seen) < 400:
            seen += await store.events_after(seen[-1].seq if seen else 0, 50)
            await asyncio.sleep(0)
        await writers
        return seen

    seen = run(asyncio.wait_for(both(), 60))
    assert sorted(one.target for one in seen) == sorted(f"{name}{end}" for name in range(200) for end in ("", " too"))
    assert [one.seq for one in seen] == sorted({one.seq for one in seen})
