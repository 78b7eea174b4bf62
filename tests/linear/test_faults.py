"""Faults under load on three instances with one PostgreSQL: no answer is wrong, only faulty parts fail to answer, and
every instance recovers soon."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil
import psycopg
import pytest

from tests.linear.checker import judge, report
from tests.linear.client import LOST, Client, Token
from tests.linear.history import NEVER, Call, History, Outcome, Verdict, refused
from tests.linear.load import Load
from tests.linear.servers import instances, stopped
from tests.support.postgres import Cluster, Home, own_cluster
from tests.support.server import Server
from tests.support.waiting import until

RECOVERY = 60.0
"""Seconds after the store answers again within which every instance does; a quiet machine needs a tenth of one."""
SETTLED = 2.0
"""Seconds from when all of them are right again, in which what was under way before is answered."""
BOUND = 5
"""Seconds of one request: more than a busy machine stops anybody for, as a rule."""
PAUSED, STOPPED, ENDED, BETWEEN = BOUND + 3.0, 12.0, 3.0, 1.0
QUEUED = 20
PAUSE = 0.02
AWAY = {"store_unavailable", "outcome_unknown", "deadline"}
"""What an instance says of itself while the store is away."""
AT_ANY_TIME = {"contended"}
LET_GO = 2.0 * BOUND
"""Seconds within which the database has ended what a stopped instance was just writing, and whoever waited for that was
answered: twice the bound of one request.
"""


Span = tuple[int, int]


@dataclass
class InstanceTrio:
    """Three instances and their own database server."""

    cluster: Cluster
    servers: list[Server]


@dataclass
class Run:
    """A load, its faults and their times."""

    trio: InstanceTrio
    load: Load
    steady: Token
    away: list[Span] = field(default_factory=list)
    """From when to when answers may be missing."""
    struck: list[tuple[str, Span]] = field(default_factory=list)
    """From when to when answers of one instance may be missing, which was stopped or killed."""

    @property
    def history(self) -> History:
        return self.load.history

    @contextmanager
    def store_unavailable(self) -> Iterator[None]:
        """A store outage; afterwards every instance must recover soon."""
        began = time.monotonic_ns()
        yield
        until(self._store_answers, "the store answers again")
        back = time.monotonic_ns()
        with ThreadPoolExecutor(len(self.trio.servers)) as threads:
            took = list(threads.map(lambda server: self._recovered(server, back), self.trio.servers))
        self.away.append((began, time.monotonic_ns() + int(SETTLED * 1e9)))
        print("right again after", *(f"{seconds:.3f}" for seconds in took), "s")

    def _store_answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            return bool(self.trio.cluster.ask("SELECT 1"))
        return False

    def _recovered(self, server: Server, back: int) -> float:
        deadline = back + int(RECOVERY * 1e9)
        accepts = creates = False
        with Client("steady", self.history) as client:
            while not (accepts and creates):
                accepts = accepts or client.verify(server, self.steady).verdict is Verdict.OK
                name = f"steady{time.monotonic_ns()}"
                creates = creates or client.create(server, self.steady.actor, name)[0].verdict is Verdict.OK
                is_right = accepts and creates
                assert is_right or time.monotonic_ns() < deadline, f"{server.url} not right: {accepts=} {creates=}"
                time.sleep(0.01)
        return (time.monotonic_ns() - back) / 1e9

    def check(self) -> None:
        told = Counter(f"{c.kind.value} {c.outcome.verdict.value} {c.outcome.reason}" for c in self.history)
        print(f"{len(self.history)} calls", *sorted(told.items()), sep="\n  ")
        objections = judge(self.history)
        assert objections == [], report(self.history, objections)
        zero = self.history.zero
        missing = [call.told(zero) for call in self.history if not self._is_answered(call)]
        assert missing == [], "\n".join(missing[:20])

    def _is_answered(self, call: Call) -> bool:
        """Answered, or unanswered for a reason allowed at that time."""
        if call.outcome.verdict not in {Verdict.UNKNOWN, Verdict.NOTHING} or call.outcome.reason in AT_ANY_TIME:
            return True
        struck = any(url == call.instance and overlap(call, span) for url, span in self.struck)
        if call.outcome.reason.startswith(LOST):
            return struck
        return call.outcome.reason in AWAY and (struck or any(overlap(call, span) for span in self.away))

    def unanswered(self) -> list[Call]:
        return self.history.where(lambda c: c.outcome.reason in AWAY)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceTrio]:
    folder = tmp_path_factory.mktemp("trio")
    bound = {"WATCHWORD_DATABASE_TIMEOUT": str(BOUND)}
    with own_cluster(folder) as cluster, instances(Home(cluster, folder), folder, settings=bound) as servers:
        yield InstanceTrio(cluster, servers)


@pytest.fixture
def run(trio: InstanceTrio) -> Iterator[Run]:
    """Load from here to the end of the test, then the final state and the check."""
    load = Load(trio.servers, pause=PAUSE)
    with Client("first", load.history) as client:
        _, steady = client.create(trio.servers[0], f"urn:li:corpuser:steady-{load.seed:08x}", "steady")
    assert steady is not None
    made = Run(trio, load, steady)
    with load:
        time.sleep(BETWEEN)
        yield made
        time.sleep(BETWEEN)
    load.look_back()
    made.check()


@pytest.fixture(params=[1, pytest.param(15, marks=pytest.mark.soak)], ids="{} times".format)
def rounds(request: pytest.FixtureRequest) -> range:
    return range(request.param)


def test_paused_store_causes_no_wrong_answer(run: Run, rounds: range) -> None:
    for _ in rounds:
        with run.store_unavailable():
            run.trio.cluster.pause()
            paused = time.monotonic_ns()
            time.sleep(PAUSED)
            goes_on = time.monotonic_ns()
            run.trio.cluster.resume()
        meanwhile = run.history.where(lambda c, a=paused, b=goes_on: a < c.start and c.end < b)  # type: ignore[misc]
        assert {c.outcome.verdict for c in meanwhile} <= {Verdict.UNKNOWN, Verdict.NOTHING}
    assert run.unanswered()


def test_store_restart_causes_no_wrong_answer(run: Run, rounds: range) -> None:
    for number in rounds:
        with run.store_unavailable():
            run.trio.cluster.restart(immediate=number % 2 == 1)


def test_terminated_store_connections_cause_no_wrong_answer(run: Run, rounds: range) -> None:
    for _ in rounds:
        with run.store_unavailable():
            over, ended = time.monotonic() + ENDED, 0
            while time.monotonic() < over or ended < QUEUED:
                ended += run.trio.cluster.terminate_backends(some=2)
                time.sleep(0.1)


def test_instance_paused_across_a_revoke_rejects_the_token_when_resumed(run: Run, rounds: range) -> None:
    here, there = run.trio.servers[:2]
    for number in rounds:
        began = time.monotonic_ns()
        tokens = made(run, there, f"queue{number}")
        with ThreadPoolExecutor(2 * QUEUED) as threads:
            run.load.avoided.add(here.url)
            with stopped(here):
                stop = time.monotonic_ns()
                run.away.append((stop, stop + int(LET_GO * 1e9)))
                until_it_goes_on = time.monotonic() + STOPPED
                before = [threads.submit(verify_once, run, here, token) for token in tokens]
                until(lambda: waiting_at(here) >= QUEUED, "as many wait in its queue")
                revoked(run, there, tokens)
                after = [threads.submit(verify_once, run, here, token) for token in tokens]
                time.sleep(max(0.0, until_it_goes_on - time.monotonic()))
            assert {verdict.result() for verdict in after} == {refused("token_revoked")}
            assert len([verdict.result() for verdict in before]) == QUEUED
            run.load.avoided.clear()
        run.struck.append((here.url, (began, time.monotonic_ns())))


def test_killed_and_restarted_instance_causes_no_wrong_answer(run: Run, rounds: range) -> None:
    for number in rounds:
        server = run.trio.servers[number % len(run.trio.servers)]
        # Clients notice a dead connection when they next use it.
        run.struck.append((server.url, (time.monotonic_ns(), NEVER)))
        server.kill()
        time.sleep(BETWEEN / 2)
        server.start()
        time.sleep(BETWEEN / 2)


def overlap(call: Call, span: Span) -> bool:
    return call.start <= span[1] and call.end >= span[0]


def made(run: Run, server: Server, name: str) -> list[Token]:
    """Tokens of an actor that only this test uses."""
    actor = f"urn:li:corpuser:{name}-{run.load.seed:08x}"
    tokens: list[Token] = []
    with Client("maker", run.history) as client:
        for number in itertools.count():
            outcome, token = client.create(server, actor, f"{name}.{number}")
            assert token is not None or outcome.reason in AT_ANY_TIME, outcome
            tokens += [] if token is None else [token]
            if len(tokens) == QUEUED:
                break
    return tokens


def revoked(run: Run, server: Server, tokens: list[Token]) -> None:
    with Client("revoker", run.history) as client:
        for token in tokens:
            while (outcome := client.revoke(server, token)).verdict is not Verdict.OK:
                assert outcome.reason in AT_ANY_TIME | {"store_unavailable"}, outcome  # the run knows the duration


def verify_once(run: Run, server: Server, token: Token) -> Outcome:
    """On its own connection."""
    with Client("queue", run.history) as client:
        return client.verify(server, token)


def waiting_at(server: Server) -> int:
    """The number of this process's connections to it."""
    ends = psutil.Process().net_connections("tcp")
    return sum(1 for end in ends if end.raddr and end.raddr.port == server.port and end.status == "ESTABLISHED")
