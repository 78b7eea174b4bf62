"""Rotation, interrupted at every step: whoever holds a token always holds one that works, and never two for longer than
overlap and grace.

The holder loses answers, asks again with and without a key, uses what it has in any order, forgets to use the new one;
the server is killed before, while and after it answers; hours pass. The store is read past the service, so that looking
is no use.
"""

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

from tests.life.holding import ROTATE, Held, Life
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
    """One line of tokens, from one that never ends soon, and its holder."""

    def __init__(self, server: Server, clock: SetClock) -> None:
        super().__init__()
        self.server = server
        self.clock = clock
        self.life = Life(server)
        self.hands: list[Held] = []
        self.key: str | None = None
        self.revoked = False

    @initialize()
    def begin(self) -> None:
        self.hands = [self.life.create(ADMIN, duration="ONE_YEAR")]

    @property
    def now(self) -> int:
        return int(time.time() * 1000) + self.clock.ahead * 1000

    def living(self) -> dict[str, Any]:
        """By their ids, the tokens of the line that are alive, as the store has them."""
        first = self.hands[0].id
        rows = look(self.server, FAMILY, first, first)
        return {row[0]: row for row in rows if row[3] is None and row[2] > self.now}

    def works(self) -> Held:
        """The newest one in hand that works: a holder would use that one."""
        living = self.living()
        return next(held for held in reversed(self.hands) if held.id in living)

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
            # The key's token was used or has ended since, or it came with the request of another token; or the one
            # before still has its grace.
            if refusal.reason not in {"idempotency_key_reused", "already_replaced", "rotation_under_way"}:
                raise
            self.key = None
            return
        if made["metadata"]["id"] not in {held.id for held in self.hands}:
            self.hands.append(Held(made["accessToken"], made["metadata"]))

    @rule(keyed=st.booleans(), delay=st.sampled_from([0.0, 0.002, 0.005, 0.01, 0.03]))
    def rotate_and_hear_nothing(self, keyed: bool, delay: float) -> None:
        wanted, headers = self.wanted(keyed)
        with plain_client(timeout=delay or 0.0005) as client, suppress(httpx.HTTPError):
            self.server.post(ROTATE, wanted, headers=headers, client=client)
        self.until_it_is_done_with()

    def until_it_is_done_with(self) -> None:
        """What was asked and not waited for may still be under way, and must not come between two looks. Who comes
        after it by a new connection is taken after it, and whose write is answered after that had it done, or undone.
        """
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
        before = self.living()
        accepted = self.life.lives(held)
        # It may have come to its end between the two.
        assert accepted == (held.id in before and (accepted or held.id in self.living()))
        if accepted and before[held.id][4] is not None:  # it awaited its first use
            after = self.living()
            assert after[held.id][4] is None
            replaced = [row for row in before.values() if row[0] == before[held.id][1]]
            assert all(after[row[0]][2] <= self.now + GRACE * 1000 for row in replaced if row[0] in after)

    @rule(seconds=st.sampled_from([1, GRACE + 1, OVERLAP - 60, OVERLAP + 1, 6 * OVERLAP]))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def the_holder_has_one_that_works(self) -> None:
        if self.hands and not self.revoked:
            living = self.living()
            assert any(held.id in living for held in self.hands)

    @invariant()
    def there_are_never_two_beyond_overlap_and_grace(self) -> None:
        if not self.hands:
            return
        living = list(self.living().values())
        settled = [row for row in living if row[4] is None and row[5] is None]
        waiting = [row for row in living if row[4] is not None]
        retiring = [row for row in living if row[5] is not None]
        assert len(settled) <= 1
        assert len(waiting) <= 1
        assert len(retiring) <= 1
        assert all(row[2] <= self.now + OVERLAP * 1000 + 1000 for row in waiting)
        assert all(row[2] <= row[5] + GRACE * 1000 for row in retiring)

    def teardown(self) -> None:
        """A revoke ends whatever still lives of the line."""
        if self.hands:
            self.life.revoke(self.works())
            living = self.living()
            assert not [row for row in living.values() if row[4] is not None]
            assert not any(self.life.lives(held) for held in self.hands[-1:])


def run(server: Server, clock: SetClock, examples: int, steps: int) -> None:
    class Here(Rotation):
        def __init__(self) -> None:
            super().__init__(server, clock)

    run_machine(Here, max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck))


def test_a_rotation_that_is_interrupted_never_locks_its_holder_out(server: Server, clock: SetClock) -> None:
    run(server, clock, 3, 12)


@pytest.mark.soak
def test_many_rotations_that_are_interrupted_never_lock_their_holder_out(server: Server, clock: SetClock) -> None:
    run(server, clock, 100, 40)
