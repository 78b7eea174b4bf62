"""Rejections become events. Excess ones are counted instead of stored."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.harness import ADMIN, ANN, BOB, HOUR, Run
from tests.support.backends import NOW, AdjustableClock
from watchword.authority.callers import ActorSnapshot, Caller
from watchword.authority.privileges import Privilege, denied
from watchword.authority.rejections_service import MAX_ORIGINS, MAX_TOKENS, RECORDED_IN_ALL, RejectionLog
from watchword.basics.errors import Fault, Reason, Subject
from watchword.basics.names import UNKNOWN_ACTOR
from watchword.basics.times import DAY
from watchword.journal.day_counts import DayCounter, day_of
from watchword.journal.events import EventSearch, KeptEvent
from watchword.stores.joined import Store

BAD = Fault(Reason.INVALID_TOKEN, "no")


@pytest.fixture
def rejections(store: Store, clock: AdjustableClock) -> RejectionLog:
    return RejectionLog(store, clock)


def fail(rejections: RejectionLog, peer: str = "192.0.2.1", times: int = 1, fault: Fault = BAD) -> None:
    for _ in range(times):
        rejections.record_failed_authentication(peer, "r", "/auth", fault)


def dead_token_fault(token_id: str, reason: Reason = Reason.TOKEN_REVOKED) -> Fault:
    return Fault(reason, "no", subject=Subject(ANN, token_id))


def deny(rejections: RejectionLog, actor: str, times: int = 1) -> None:
    caller = Caller(actor, ActorSnapshot(False, (), 1), None, "192.0.2.9", "r")
    for _ in range(times):
        rejections.record_denial(caller, "listAccessTokens", denied(Privilege.MANAGE_ACCESS_TOKENS))


def stored_events(run: Run, store: Store) -> list[KeptEvent]:
    return list(run(store.events(EventSearch(count=10_000))).events)


def rejection_count(events: list[KeptEvent]) -> int:
    """The number of rejections that these events represent."""
    return sum(1 + event.detail.get("leftOut", 0) for event in events)


class TestFailedAuthentication:
    def test_failed_authentication_names_peer_target_and_reason(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        fail(rejections)
        run(rejections.flush())
        (event,) = stored_events(run, store)
        assert (event.actor, event.bearer_id, event.target, event.peer) == (UNKNOWN_ACTOR, None, "/auth", "192.0.2.1")
        assert event.detail == {"reason": "invalid_token"}

    def test_flush_waits_for_a_running_flush(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        async def second() -> list[KeptEvent]:
            first = asyncio.ensure_future(rejections.flush())
            await asyncio.sleep(0)
            await rejections.flush()
            found = (await store.events(EventSearch(count=10))).events
            await first
            return list(found)

        fail(rejections)
        assert len(run(second())) == 1

    def test_failed_authentication_with_a_dead_token_names_token_and_actor(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        fail(rejections, fault=Fault(Reason.TOKEN_REVOKED, "no", subject=Subject(ANN, "its id")))
        run(rejections.flush())
        (event,) = stored_events(run, store)
        assert (event.actor, event.bearer_id, event.detail) == (ANN, "its id", {"reason": "token_revoked"})

    def test_missing_credential_is_not_recorded(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        fail(rejections, fault=Fault(Reason.MISSING_CREDENTIAL, "no"))
        fail(rejections, fault=Fault(Reason.STORE_UNAVAILABLE, "no"))
        run(rejections.close())
        assert stored_events(run, store) == []


class TestRecordingLimit:
    def test_limit_per_peer_counts_the_rest(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        fail(rejections, times=100_000)
        run(rejections.close())
        events = stored_events(run, store)
        assert len(events) < 40
        assert rejection_count(events) == 100_000

    def test_rejections_are_counted_by_day_with_those_left_out(
        self, run: Run, store: Store, rejections: RejectionLog, clock: AdjustableClock
    ) -> None:
        fail(rejections, times=1_000)
        clock.now = NOW + DAY
        fail(rejections, times=2)
        fail(rejections, fault=dead_token_fault("stolen"))
        deny(rejections, BOB, times=50)
        run(rejections.close())
        today = day_of(NOW)
        failed = run(store.day_counts(DayCounter.FAILED_AUTHENTICATIONS, today))
        assert failed == {today: 1_000, today + 1: 3}
        assert run(store.day_counts(DayCounter.DENIALS, today)) == {today + 1: 50}

    def test_rejections_after_the_twentieth_are_recorded_when_their_number_has_doubled(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        fail(rejections, times=100)
        run(rejections.close())
        left_out = [event.detail.get("leftOut", 0) for event in stored_events(run, store)]
        assert left_out == [19, 39, 19, *[0] * 20]

    def test_noise_does_not_hide_a_revoked_token(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        fail(rejections, times=1_000)
        fail(rejections, fault=Fault(Reason.TOKEN_REVOKED, "no", subject=Subject(ANN, "its id")))
        run(rejections.flush())
        assert [event.bearer_id for event in stored_events(run, store) if event.actor == ANN] == ["its id"]

    def test_first_rejection_of_each_token_and_reason_is_recorded(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        for number in range(2_000):
            fail(rejections, peer=f"10.0.{number >> 8}.{number & 255}", fault=dead_token_fault("noise"))
        fail(rejections, fault=dead_token_fault("stolen"), times=1_000)
        fail(rejections, fault=dead_token_fault("stolen", Reason.TOKEN_EXPIRED))
        run(rejections.close())
        reasons = {e.detail["reason"] for e in stored_events(run, store) if e.bearer_id == "stolen"}
        assert reasons == {"token_revoked", "token_expired"}
        assert rejection_count(stored_events(run, store)) == 3_001

    def test_dead_token_is_recorded_once_a_day_across_restarts(
        self, run: Run, store: Store, clock: AdjustableClock
    ) -> None:
        for hours in (0, 1, 23):
            clock.now = NOW + hours * HOUR
            for rejections in (RejectionLog(store, clock), RejectionLog(store, clock)):
                fail(rejections, fault=dead_token_fault("stolen"))
                run(rejections.close())
        assert [event.at for event in stored_events(run, store)] == [NOW]
        clock.now = NOW + 24 * HOUR
        fail(rejections, fault=dead_token_fault("stolen"))
        run(rejections.flush())
        assert [event.at for event in stored_events(run, store)] == [NOW + 24 * HOUR, NOW]

    def test_noise_does_not_hide_a_dead_token_on_the_next_day(
        self, run: Run, store: Store, rejections: RejectionLog, clock: AdjustableClock
    ) -> None:
        for day in range(2):
            clock.now = NOW + day * DAY
            for number in range(RECORDED_IN_ALL + 1):
                fail(rejections, peer=f"10.0.{number >> 8}.{number & 255}", fault=dead_token_fault("noise"))
            fail(rejections, fault=dead_token_fault("stolen"), times=2)
            run(rejections.flush())
        assert [e.at for e in stored_events(run, store) if e.bearer_id == "stolen"] == [NOW + DAY, NOW]

    def test_limit_holds_for_more_tokens_than_the_cache(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        ids = [f"dead {number}" for number in range(MAX_TOKENS + 10)]
        for _ in range(2):
            for token_id in ids:
                fail(rejections, fault=dead_token_fault(token_id))
                if token_id in (ids[MAX_TOKENS // 2], ids[-1]):
                    run(rejections.flush())
        tokens = [str(event.bearer_id) for event in run(store.events(EventSearch(count=2 * MAX_TOKENS))).events]
        assert sorted(tokens) == sorted(ids)

    def test_limit_is_per_peer_and_per_actor(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        fail(rejections, times=1_000)
        deny(rejections, ANN, times=1_000)
        fail(rejections, peer="192.0.2.2")
        deny(rejections, BOB)
        run(rejections.flush())
        seen = [(event.actor, event.peer) for event in stored_events(run, store)]
        assert (UNKNOWN_ACTOR, "192.0.2.2") in seen
        assert (BOB, "192.0.2.9") in seen

    def test_ipv6_network_counts_as_one_peer(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        for number in range(5_000):
            fail(rejections, peer=f"2001:db8::{number:x}")
        run(rejections.close())
        assert len(stored_events(run, store)) < 40

    def test_failed_authentications_do_not_crowd_out_denials(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        for number in range(5_000):
            fail(rejections, peer=f"10.0.{number >> 8}.{number & 255}")
        deny(rejections, ANN, times=3)
        run(rejections.flush())
        assert [event.actor for event in stored_events(run, store) if event.action == "access.denied"] == [ANN] * 3

    def test_total_limit_holds_for_many_peers(self, run: Run, store: Store, rejections: RejectionLog) -> None:
        peers = 10_000
        for number in range(peers):
            fail(rejections, peer=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", times=2)
        run(rejections.close())
        events = stored_events(run, store)
        assert len(events) <= RECORDED_IN_ALL + MAX_ORIGINS + 1
        assert rejection_count(events) == 2 * peers

    def test_origins_beyond_five_hundred_are_counted_together(
        self, run: Run, store: Store, rejections: RejectionLog
    ) -> None:
        peers = [f"10.0.{number >> 8}.{number & 255}" for number in range(502)]
        for peer in peers:
            fail(rejections, peer=peer)
        run(rejections.close())
        assert {event.peer for event in stored_events(run, store)} == {*peers[:500], "many"}

    def test_limit_resets_every_hour(
        self, run: Run, store: Store, rejections: RejectionLog, clock: AdjustableClock
    ) -> None:
        fail(rejections, times=20)
        clock.now = NOW + HOUR
        fail(rejections, times=20)
        run(rejections.flush())
        assert [event.detail for event in stored_events(run, store)] == [{"reason": "invalid_token"}] * 40

    @given(steps=st.lists(st.tuples(st.sampled_from((ANN, BOB, ADMIN)), st.integers(1, 200), st.integers(0, HOUR))))
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
    def test_every_rejection_is_counted(
        self, run: Run, store: Store, clock: AdjustableClock, steps: list[tuple[str, int, int]]
    ) -> None:
        before = rejection_count(stored_events(run, store))
        rejections = RejectionLog(store, clock)
        for actor, times, pause in steps:
            deny(rejections, actor, times)
            clock.now += pause
        run(rejections.close())
        assert rejection_count(stored_events(run, store)) - before == sum(times for _, times, _ in steps)
        run(store.prune_events(clock.now + 1, 10_000))
