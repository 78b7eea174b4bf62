"""The event log: newest first, filtered, paged by cursor, pruned from the oldest."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, BOB, Run, StoreHarness
from tests.support.backends import NOW, SettableClock, StoreLocation
from tests.support.search_reference import event_matches
from watchword.journal.events import Action, Cursor, EventSearch, KeptEvent
from watchword.stores.joined import Store

WHO = (ADMIN, ANN, BOB)
WHAT = tuple(action.value for action in (Action.TOKEN_CREATED, Action.ACCESS_DENIED, Action.POLICY_DELETED))
WHICH = ("a", "b", "urn:li:corpuser:ann", "ä'%_")
TIMES = st.integers(NOW, NOW + 5)


def some(words: tuple[str, ...]) -> Any:
    return st.lists(st.sampled_from(words), max_size=2, unique=True).map(tuple)


DETAILS = st.none() | st.integers(0, 9) | st.text(max_size=3) | st.sampled_from(WHO) | some(WHO).map(list)
EVENTS = st.lists(
    st.builds(
        KeptEvent,
        at=TIMES,
        actor=st.sampled_from(WHO),
        bearer_id=st.none() | st.just("an id"),
        action=st.sampled_from(WHAT),
        target=st.sampled_from(WHICH),
        peer=st.just("127.0.0.1"),
        request_id=st.just("r"),
        detail=st.dictionaries(
            st.sampled_from(("x", "ü")),
            st.none() | st.integers(0, 9) | st.text(max_size=3) | some(WHO).map(list) | st.sampled_from(WHO),
        ),
    ),
    max_size=30,
)


SEARCHES = st.builds(
    EventSearch,
    count=st.integers(1, 10),
    actors=some(WHO),
    actions=some(WHAT),
    targets=some(WHICH),
    since=st.none() | TIMES,
    until=st.none() | TIMES,
    about=some(WHO),
)


def newest_first(events: list[KeptEvent]) -> list[KeptEvent]:
    return sorted(events, key=lambda event: (event.at, event.seq), reverse=True)


class TestReading:
    @given(events=EVENTS, search=SEARCHES)
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    def test_events_match_the_reference_page_by_page(
        self, run: Run, store: Store, events: list[KeptEvent], search: EventSearch
    ) -> None:
        everything = _replace_events(run, store, events)
        expected = [event for event in newest_first(everything) if event_matches(search, event)]
        found: list[KeptEvent] = []
        more = True
        while more:
            page, more = run(store.events(search))
            assert len(page) == search.count if more else len(page) <= search.count
            found += page
            search = replace(search, after=Cursor(page[-1].at, page[-1].seq)) if more else search
        assert found == expected
        for most in (5, 100):
            assert run(store.count_events(search, most)) == min(most, len(expected))

    def test_new_events_do_not_shift_pages(self, run: Run, store: Store, clock: SettableClock) -> None:
        run(store.add_events([_event(at=NOW + number) for number in range(6)]))
        first = run(store.events(EventSearch(count=3))).events
        run(store.add_events([_event(at=NOW + 100)]))
        second = run(store.events(EventSearch(count=3, after=Cursor(first[-1].at, first[-1].seq)))).events
        assert [event.at - NOW for event in (*first, *second)] == [5, 4, 3, 2, 1, 0]

    def test_large_page_ends_early_and_has_more(self, run: Run, store: Store) -> None:
        run(store.add_events([_event(at=NOW + number, detail={"x": "y" * 700_000}) for number in range(4)]))
        seen: list[int] = []
        after = None
        while True:
            page, more = run(store.events(EventSearch(count=4, after=after)))
            assert len(page) == 1
            seen.append(page[0].at - NOW)
            after = Cursor(page[0].at, page[0].seq)
            if not more:
                break
        assert seen == [3, 2, 1, 0]

    def test_events_of_another_process_are_visible(self, run: Run, store: Store, other: Store) -> None:
        run(other.add_events([_event()]))
        assert [event.target for event in run(store.events(EventSearch())).events] == ["a"]


class TestPruning:
    def test_prune_removes_the_oldest_up_to_the_limit(self, run: Run, store: Store) -> None:
        run(store.add_events([_event(at=NOW + number) for number in (3, 1, 2, 0, 9)]))
        assert run(store.prune_events(NOW + 4, 3)) == 3
        assert [event.at - NOW for event in run(store.events(EventSearch())).events] == [9, 3]
        assert run(store.prune_events(NOW + 4, 3)) == 1
        assert run(store.prune_events(NOW + 4, 3)) == 0
        assert [event.at - NOW for event in run(store.events(EventSearch())).events] == [9]

    def test_prune_keeps_the_store_consistent(self, harness: StoreHarness, location: StoreLocation) -> None:
        token = harness.token(1)
        harness.revoke(token)
        harness.clock.now = NOW + 1_000
        harness.revoke(harness.token(2))
        harness.run(harness.store.prune_events(NOW + 500, 100))
        assert [event.action for event in location.events()] == ["token.created", "token.revoked"]
        assert location.problems() == []


def _event(**fields: Any) -> KeptEvent:
    made = KeptEvent(NOW, ADMIN, None, Action.ACCESS_DENIED.value, "a", "127.0.0.1", "r", {})
    return replace(made, **fields)


def _replace_events(run: Run, store: Store, events: list[KeptEvent]) -> list[KeptEvent]:
    """Replace all events; return them with their sequence numbers."""
    run(store.prune_events(NOW + 1_000_000, 10_000))
    run(store.add_events(events))
    everything = list(run(store.events(EventSearch(count=1_000))).events)
    by_number = sorted(everything, key=lambda event: event.seq)
    assert [replace(event, seq=0) for event in by_number] == events
    return everything


def test_newest_events_are_counted_by_time(run: Run, store: Store) -> None:
    made = [
        KeptEvent(NOW + at, ADMIN, None, action, "x", "127.0.0.1", "r", {})
        for at, action in ((0, WHAT[0]), (9, WHAT[0]), (10, WHAT[0]), (10, WHAT[1]), (25, WHAT[1]))
    ]
    run(store.add_events(made))
    search = EventSearch(count=100, since=NOW, until=NOW + 30)
    assert sorted(tuple(one) for one in run(store.count_events_by_time(search, 10))) == sorted(
        [
            (NOW, WHAT[0], 2, NOW),
            (NOW + 10, WHAT[0], 1, NOW + 10),
            (NOW + 10, WHAT[1], 1, NOW + 10),
            (NOW + 20, WHAT[1], 1, NOW + 25),
        ]
    )
    newest = run(store.count_events_by_time(replace(search, count=1), 10))
    assert sum(one.total for one in newest) == 2
