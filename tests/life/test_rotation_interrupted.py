"""Interrupted rotation: the holder always has a working token, and never two for longer than overlap and grace period.
The holder loses answers, retries with and without a key, uses its tokens in any order; the server is killed before,
during and after its answer; hours pass. The test reads the store directly, because a request would use a token."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.life.holding import ROTATE, HeldToken, LifecycleClient
from tests.support.clock import SetClock
from tests.support.properties import run_machine
from tests.support.server import ADMIN, SET_STATUS, GraphQLRefused, Server, plain_client
from tests.support.store_file import assert_sound, look

OVERLAP, GRACE = 600, 60
FAMILY = "SELECT id, replaces, expires_at, revoked_at, grace, replaced_at FROM tokens WHERE id = ? OR root = ?"


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> SetClock:
    return SetClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def server(clock: SetClock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("rotation"), env=clock.env) as running:
        yield running
        assert_sound(running)


class Rotation(RuleBasedStateMachine):
    """One chain of tokens and its holder."""

    def __init__(self, server: Server, clock: SetClock) -> None:
        super().__init__()
        self.server = server
        self.clock = clock
        self.life = LifecycleClient(server)
        self.hands: list[HeldToken] = []
        self.key: str | None = None
        self.revoked = False

    @initialize()
    def begin(self) -> None:
        self.hands = [self.life.create(ADMIN, duration="ONE_YEAR")]

    @property
    def now(self) -> int:
        return int(time.time() * 1000) + self.clock.ahead * 1000

    def live_tokens(self) -> dict[str, Any]:
        """The live tokens of the chain by id, from the store."""
        first = self.hands[0].id
        rows = look(self.server, FAMILY, first, first)
        return {row[0]: row for row in rows if row[3] is None and row[2] > self.now}

    def works(self) -> HeldToken:
        """The newest working token, which a holder would use."""
        live_tokens = self.live_tokens()
        return next(held for held in reversed(self.hands) if held.id in live_tokens)

    def wanted(self, keyed: bool) -> tuple[dict[str, Any], dict[str, str]]:
        if not keyed:
            self.key = None
        elif self.key is None:
            self.key = secrets.token_hex(8)
        held = self.works()
        wanted = {"id": held.id, "overlap": f"PT{OVERLAP}S", "grace": f"PT{GRACE}S"}
        headers = {"Authorization": f"Bearer {held.token}"}
        return wanted, headers if self.key is None else {**headers, "Idempotency-Key": self.key}

    @rule(keyed=st.booleans())
    def rotate(self, keyed: bool) -> None:
        wanted, headers = self.wanted(keyed)
        try:
            made = self.server.ask(ROTATE, wanted, headers=headers)["made"]
        except GraphQLRefused as refusal:
            # The key's token was used, has expired or belongs to another request; or the previous token is in its
            # grace period.
            if refusal.reason not in {"idempotency_key_reused", "already_replaced", "rotation_under_way"}:
                raise
            self.key = None
            return
        if made["metadata"]["id"] not in {held.id for held in self.hands}:
            self.hands.append(HeldToken(made["accessToken"], made["metadata"]))

    @rule(keyed=st.booleans(), delay=st.sampled_from([0.0, 0.002, 0.005, 0.01, 0.03]))
    def rotate_and_lose_the_answer(self, keyed: bool, delay: float) -> None:
        wanted, headers = self.wanted(keyed)
        with plain_client(timeout=delay or 0.0005) as client, suppress(httpx.HTTPError):
            self.server.post(ROTATE, wanted, headers=headers, client=client)
        self.wait_until_processed()

    def wait_until_processed(self) -> None:
        """An abandoned request may still run. A later request on a new connection is accepted after it, and a later
        write is done after it."""
        for _ in range(3):
            with plain_client() as client:
                self.server.ask(SET_STATUS, {"urn": f"{ADMIN}-after", "status": "ACTIVE"}, actor=ADMIN, client=client)

    @rule(keyed=st.booleans(), delay=st.sampled_from([0.0, 0.003, 0.006, 0.01, 0.02]))
    def rotate_while_the_server_is_killed(self, keyed: bool, delay: float) -> None:
        wanted, headers = self.wanted(keyed)

        def ask() -> None:
            with plain_client(timeout=10) as client, suppress(httpx.HTTPError):
                self.server.post(ROTATE, wanted, headers=headers, client=client)

        self.killed_during(ask, delay)

    @rule(which=st.integers(0, 5), delay=st.sampled_from([0.0, 0.003, 0.006, 0.01]))
    def use_while_the_server_is_killed(self, which: int, delay: float) -> None:
        held = self.hands[-1 - which % len(self.hands)]

        def use() -> None:
            with plain_client(timeout=10) as client, suppress(httpx.HTTPError):
                self.server.verify(held.token, client)

        self.killed_during(use, delay)

    def killed_during(self, deed: Callable[[], None], delay: float) -> None:
        thread = threading.Thread(target=deed)
        thread.start()
        time.sleep(delay)
        self.server.kill()
        thread.join()
        self.server.start()

    @rule(which=st.integers(0, 5))
    def use(self, which: int) -> None:
        held = self.hands[-1 - which % len(self.hands)]
        before = self.live_tokens()
        accepted = self.life.is_accepted(held)
        # It may have expired between the two.
        assert accepted == (held.id in before and (accepted or held.id in self.live_tokens()))
        if accepted and before[held.id][4] is not None:  # its first use was pending
            after = self.live_tokens()
            assert after[held.id][4] is None
            replaced = [row for row in before.values() if row[0] == before[held.id][1]]
            assert all(after[row[0]][2] <= self.now + GRACE * 1000 for row in replaced if row[0] in after)

    @rule(seconds=st.sampled_from([1, GRACE + 1, OVERLAP - 60, OVERLAP + 1, 6 * OVERLAP]))
    def advance_time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def holder_has_a_working_token(self) -> None:
        if self.hands and not self.revoked:
            live_tokens = self.live_tokens()
            assert any(held.id in live_tokens for held in self.hands)

    @invariant()
    def never_two_tokens_beyond_overlap_and_grace(self) -> None:
        if not self.hands:
            return
        live_tokens = list(self.live_tokens().values())
        settled = [row for row in live_tokens if row[4] is None and row[5] is None]
        waiting = [row for row in live_tokens if row[4] is not None]
        retiring = [row for row in live_tokens if row[5] is not None]
        assert len(settled) <= 1
        assert len(waiting) <= 1
        assert len(retiring) <= 1
        assert all(row[2] <= self.now + OVERLAP * 1000 + 1000 for row in waiting)
        assert all(row[2] <= row[5] + GRACE * 1000 for row in retiring)

    def teardown(self) -> None:
        """A revocation ends every live token of the chain."""
        if self.hands:
            self.life.revoke(self.works())
            live_tokens = self.live_tokens()
            assert not [row for row in live_tokens.values() if row[4] is not None]
            assert not any(self.life.is_accepted(held) for held in self.hands[-1:])


def run(server: Server, clock: SetClock, examples: int, steps: int) -> None:
    class Here(Rotation):
        def __init__(self) -> None:
            super().__init__(server, clock)

    run_machine(Here, max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck))


def test_interrupted_rotation_never_locks_out_the_holder(server: Server, clock: SetClock) -> None:
    run(server, clock, 3, 12)


@pytest.mark.soak
def test_many_interrupted_rotations_never_lock_out_the_holder(server: Server, clock: SetClock) -> None:
    run(server, clock, 30, 40)
