"""Failover under load: three instances on a Patroni cluster. With confirmed reads no answer is wrong; with reads of the
primary, the checker detects the primary that was replaced without being stopped.

One instance connects through HAProxy, two to the list of all nodes. To show that the checker detects an old primary,
one of them has only that node in its URL. Rows for the documentation are in build/failover.
"""

import itertools
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.linear.checker import NO_ORDER, Violation, judge, report
from tests.linear.client import Client, Token
from tests.linear.faults import FAULTS
from tests.linear.history import History, Kind, Verdict
from tests.linear.load import Load
from tests.linear.rules import ACCEPTED_AFTER_REVOKE
from tests.linear.servers import instances
from tests.support.pages import ROOT
from tests.support.patroni import PASSWORD, USER, PatroniCluster, page_block, patroni_cluster
from tests.support.postgres import Home
from tests.support.server import Server, watchword
from tests.support.waiting import SECONDS, until

PRIMARY, CONFIRMED = "primary", "confirmed"
SETTINGS = {
    PRIMARY: {},
    CONFIRMED: dict(
        re.findall(r"^(WATCHWORD_DATABASE_(?:READS|FAILOVER))=(.*)$", page_block("properties"), re.MULTILINE)
    ),
}
BOUND = {"WATCHWORD_DATABASE_TIMEOUT": "3"}
UNANSWERED = {"store_unavailable", "outcome_unknown", "deadline", "contended"}
STALE = "agent of the primary stopped"
OLD_PRIMARY_RUNS = (STALE, "agent of the primary killed")
SURELY_WRONG = (*OLD_PRIMARY_RUNS, "agent restarted, then both killed")
"""With reads of the primary."""
MAYBE_WRONG = ("primary cut off", "primary frozen")
"""The old primary goes on until its agent stops it: a moment, before or after another is promoted."""
PROBES = 5
SWITCHOVERS, KILLS = 80, 20
ROWS = ROOT / "build/failover"
ATTEMPTS = 5
"""To start an instance: on a busy machine a check of the primary fails for a moment, by HAProxy or by its agent."""


@dataclass
class FailoverRun:
    """A load on three instances, and the faults that it went through."""

    cluster: PatroniCluster
    mode: str
    env: dict[str, str]
    servers: list[Server]
    pinned: list[Server]
    """Those that know only the node that was the primary at first, and do not recover."""
    load: Load
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def history(self) -> History:
        return self.load.history

    def strike(self, fault: str) -> None:
        """Let it happen and wait until every instance works again."""
        probe = TokenProbe(self.servers, self.history, f"{self.load.seed:08x}-{next(self._numbers)}")
        began = time.monotonic_ns()
        FAULTS[fault](self.cluster, probe)
        self.load.servers = [server for server in self.servers if server not in self.pinned]
        self.until_recovered(self.load.servers)
        self.spans.append((fault, began, time.monotonic_ns()))

    def until_recovered(self, servers: list[Server]) -> None:
        actor = f"urn:li:corpuser:steady-{self.load.seed:08x}-{next(self._numbers)}"
        with Client("steady", self.history) as client:
            for server in servers:

                def works(server: Server = server) -> bool:
                    _, token = client.create(server, actor, f"steady{next(self._numbers)}")
                    return token is not None and client.verify(server, token).verdict is Verdict.OK

                until(works, f"{server.url} works again", SECONDS)

    def judge(self) -> list[Violation]:
        """Objections; also print what was answered and write a row for each fault."""
        told = Counter(f"{c.kind.value} {c.outcome.verdict.value} {c.outcome.reason}" for c in self.history)
        print(f"{len(self.history)} calls", *sorted(told.items()), sep="\n  ")
        objections = judge(self.history)
        for row in rows(self.mode, self.history, self.spans, objections):
            print(row.text)
            row.write()
        strange = [
            call.told(self.history.zero)
            for call in self.history
            if call.outcome.verdict in {Verdict.UNKNOWN, Verdict.NOTHING} and call.outcome.reason not in UNANSWERED
        ]
        assert strange == []
        return objections


class TokenProbe:
    """Tokens of an actor that only one fault uses."""

    def __init__(self, servers: list[Server], history: History, name: str) -> None:
        self._servers = servers
        self._history = history
        self._tokens: list[Token] = []
        numbers = itertools.count()
        with Client("probe", history) as client:
            while len(self._tokens) < PROBES:
                _, token = client.create(servers[0], f"urn:li:corpuser:probe-{name}", f"probe{next(numbers)}")
                self._tokens += [] if token is None else [token]

    def revoke(self) -> None:
        with Client("probe", self._history) as client:
            for token in self._tokens:

                def is_revoked(token: Token = token) -> bool:
                    outcome = client.revoke(self._servers[0], token)
                    return outcome.verdict is Verdict.OK or outcome.reason == "already_revoked"

                until(is_revoked, f"{token.name} is revoked")

    def try_to_revoke(self) -> None:
        with Client("probe", self._history) as client:
            for token in self._tokens:
                client.revoke(self._servers[-1], token)

    def verify(self) -> None:
        with Client("probe", self._history) as client:
            for token, server in itertools.product(self._tokens, self._servers):

                def is_answered(token: Token = token, server: Server = server) -> bool:
                    return client.verify(server, token).verdict is not Verdict.NOTHING

                until(is_answered, f"{server.url} answers for {token.name}")


@dataclass(frozen=True)
class Row:
    """One line of the table: faults of one kind in one run."""

    fault: str
    mode: str
    times: int
    operations: int
    wrong: int
    no_verify: list[float]
    no_write: list[float]

    @property
    def text(self) -> str:
        return (
            f"| {self.fault} | {self.mode} | {self.times} | {self.operations:,} | {self.wrong} "
            f"| {_range(self.no_verify)} | {_range(self.no_write)} |"
        )

    def write(self) -> None:
        ROWS.mkdir(parents=True, exist_ok=True)
        name = f"{self.fault}, {self.times} times, {self.mode}".replace(" ", "-").replace(",", "")
        (ROWS / f"{name}.md").write_text(f"{self.text}\n")


def _range(seconds: list[float]) -> str:
    """The median and the longest."""
    ordered = sorted(seconds)
    middle, most = ordered[len(ordered) // 2], ordered[-1]
    return f"{middle:.1f} s" if len(ordered) == 1 else f"{middle:.1f} s, at most {most:.1f} s"


def rows(mode: str, history: History, spans: list[tuple[str, int, int]], objections: list[Violation]) -> Iterator[Row]:
    """One for each kind of fault."""
    wrong = {id(one.calls[0]): one.calls[0] for one in objections}.values()
    answered = sorted((c for c in history if c.outcome.verdict in {Verdict.OK, Verdict.REFUSED}), key=lambda c: c.end)
    verifies = [call.end for call in answered if call.kind is Kind.VERIFY]
    writes = [call.end for call in answered if call.kind.writes]
    for fault in dict.fromkeys(name for name, _, _ in spans):
        mine = [(began, ended) for name, began, ended in spans if name == fault]
        during = [call for call in history if any(a <= call.start <= b for a, b in mine)]
        yield Row(
            fault,
            mode,
            len(mine),
            len(during),
            sum(1 for call in wrong if any(a <= call.start <= b for a, b in mine)),
            [longest_gap(verifies, span) for span in mine],
            [longest_gap(writes, span) for span in mine],
        )


def longest_gap(answers: list[int], span: tuple[int, int]) -> float:
    """The most seconds between two answers within this time; 503 is none."""
    within = answers[bisect_right(answers, span[0]) : bisect_left(answers, span[1])]
    moments = [span[0], *within, span[1]]
    return max(after - before for before, after in itertools.pairwise(moments)) / 1e9


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatroniCluster]:
    with patroni_cluster(tmp_path_factory.mktemp("patroni")) as running:
        yield running


@contextmanager
def under_load(cluster: PatroniCluster, mode: str, folder: Path, *, pinned: bool = False) -> Iterator[FailoverRun]:
    """Three instances and their clients, from here to the end, then a look at the final state. A pinned instance has
    only the present primary in its URL.
    """
    cluster.until_settled()
    until(cluster.proxy_answers, "HAProxy has found the primary")
    through_proxy = {"WATCHWORD_DATABASE_URL": cluster.proxy_url}
    home = Home(cluster, folder, user=USER, password=PASSWORD)
    settings = BOUND | SETTINGS[mode]
    last = {"WATCHWORD_DATABASE_URL": cluster.leader().url()} if pinned else {}
    with instances(home, folder, settings=settings, each=[through_proxy, {}, last], attempts=ATTEMPTS) as servers:
        load = Load(servers)
        run = FailoverRun(cluster, mode, home.env | settings, servers, servers[-1:] if pinned else [], load)
        with load:
            run.until_recovered(servers)
            yield run
        load.look_back()


def assert_no_wrong_answer(run: FailoverRun) -> None:
    objections = run.judge()
    assert objections == [], report(run.history, objections)


@pytest.mark.long
def test_confirmed_reads_are_right_where_reads_of_the_primary_are_wrong(
    cluster: PatroniCluster, tmp_path: Path
) -> None:
    """One test, so that one worker starts one cluster."""
    with under_load(cluster, CONFIRMED, tmp_path / "confirmed") as run:
        confirmed = "reads are confirmed by the synchronous standbys"
        until(lambda: confirmed in watchword("doctor", env=run.env).stdout, f"doctor says: {confirmed}")
        run.strike(STALE)
    assert_no_wrong_answer(run)

    with under_load(cluster, PRIMARY, tmp_path / "primary", pinned=True) as run:
        run.strike(STALE)
    objections = run.judge()
    print(report(run.history, objections))
    assert {ACCEPTED_AFTER_REVOKE, NO_ORDER} <= {one.law for one in objections}


@pytest.mark.soak
@pytest.mark.parametrize("mode", [PRIMARY, CONFIRMED])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_causes_no_wrong_answer(cluster: PatroniCluster, tmp_path: Path, fault: str, mode: str) -> None:
    """Except with reads of the primary, where some do; the table shows how many."""
    with under_load(cluster, mode, tmp_path, pinned=mode == PRIMARY and fault in OLD_PRIMARY_RUNS) as run:
        run.strike(fault)
    objections = run.judge()
    if mode == CONFIRMED or fault not in SURELY_WRONG + MAYBE_WRONG:
        assert objections == [], report(run.history, objections)
    elif fault in SURELY_WRONG:
        assert objections != []


@pytest.mark.soak
def test_many_failovers_lose_no_revocation(cluster: PatroniCluster, tmp_path: Path) -> None:
    with under_load(cluster, CONFIRMED, tmp_path) as run:
        for number in range(SWITCHOVERS + KILLS):
            run.strike("primary killed" if number % 5 == 4 else "switchover")
    assert_no_wrong_answer(run)
