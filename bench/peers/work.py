"""Work: the requests of one row for a peer, and the expected responses."""

import base64
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx

from bench.contenders import LOAD_CORE
from bench.load import CONNECTIONS, Measured, wrk
from bench.peers.processes import NotInstalled

VERIFY, LIST, CREATE, REVOKE = ROWS = ("verify", "list of 100", "create", "revoke")
"""In the order in which they are asked: what is created is revoked, so that a store stays of its size."""
TOKENS, OWNERS = 10_000, 100
FILLED = 2 * TOKENS
"""Requests made ready to have that many answers, for the last in flight are not waited for."""
SLICE_SECONDS = 8
LISTED = TOKENS // OWNERS
MOST_A_SECOND = 10_000
"""Requests made ready; they are sent again from the beginning where that is allowed."""


@dataclass(frozen=True, slots=True)
class Ask:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    def line(self, host: str) -> str:
        """The whole request, as `load.lua` reads it."""
        length = {"Content-Length": str(len(self.body.encode()))} if self.body or self.method == "POST" else {}
        headers = {"Host": host, **self.headers, **length}
        words = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\1".join([*words, "", self.body])


@dataclass(frozen=True, slots=True)
class Work:
    asks: Callable[[], Iterable[Ask]]
    """As many as there are; they may be without end."""
    status: int
    words: str = ""
    """What stands in every right body."""
    look: int = 1
    """Every how many-th answer is looked at under load; 0 leaves it to `wrk`, which counts statuses from 400 on."""
    kept: str = ""
    """A Lua pattern for what is kept of each answer."""
    keep: Callable[[list[str]], None] | None = None
    once: bool = False
    """Whether each may be sent only once."""
    over: Callable[[int], None] | None = None
    """Gets the number of sent requests."""


class Contender:
    """A server that runs, with ten thousand live tokens of a hundred owners in it. `differs` says where its work is not
    Watchword's: by row, or as a whole under no name.
    """

    def __init__(self, name: str, url: str, differs: Mapping[str, str], cpu_seconds: Callable[[], float]) -> None:
        self.name = name
        self.url = url
        self.differs = differs
        self.cpu_seconds = cpu_seconds
        self.works: dict[str, Work] = {}
        """By row; one that it cannot do is not there."""
        self.tokens: int | None = TOKENS
        """Live ones, that are verified."""
        self.made: deque[str] = deque()
        """What was created and not yet revoked."""

    def ended(self, sent: int) -> None:
        for _ in range(sent):
            self.made.popleft()


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def form(path: str, headers: Mapping[str, str], **fields: str) -> Ask:
    """A POST of a form, as OAuth has them."""
    typed = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    return Ask("POST", path, typed, urlencode(fields))


def prove(contender: Contender, row: str) -> float:
    """Ask once and look at the answer; what it ends is accounted for. Returns the seconds that it took."""
    work = contender.works[row]
    ask = next(iter(work.asks()))
    answer = httpx.request(
        ask.method, contender.url + ask.path, headers=dict(ask.headers), content=ask.body, timeout=60
    )
    if answer.status_code != work.status or work.words not in answer.text:
        raise SystemExit(f"{contender.name}, {row}: {answer.status_code} {answer.text[:2000]}")
    if work.over is not None:
        work.over(1)
    return answer.elapsed.total_seconds()


def measure(contender: Contender, row: str, seconds: int) -> Measured:
    """The load of one row for so long, and what it cost."""
    work = contender.works[row]
    before = contender.cpu_seconds()
    counted, kept = _load(contender.url, work, work.asks(), seconds)
    used = contender.cpu_seconds() - before
    if work.keep is not None:
        work.keep(kept)
    if work.over is not None:
        work.over(counted["sent"])
    return Measured(
        per_second=counted["requests"] / counted["microseconds"] * 1_000_000,
        cpu_us=used / counted["requests"] * 1_000_000,
        p50_ms=counted["p50_us"] / 1000,
        p99_ms=counted["p99_us"] / 1000,
    )


def gather(url: str, work: Work, seconds: int, *, least: int = TOKENS) -> list[str]:
    """What is kept of the answers to requests that are sent once: how a peer's own API fills it. Where the time is over
    before, those that came, if they are enough. `wrk` takes all the time that it is given, so it gets little at once.
    """
    asks, sent, kept = [*work.asks()], 0, list[str]()
    deadline = time.monotonic() + seconds
    while len(kept) < TOKENS and sent < len(asks) and time.monotonic() < deadline:
        try:
            counted, more = _load(url, work, asks[sent:], SLICE_SECONDS)
        except SystemExit as wrong:  # which would end the run of all others too
            raise NotInstalled(str(wrong)) from None
        sent += counted["sent"]
        kept += more
    if len(kept) < least:
        raise NotInstalled(f"It made {len(kept):,} of {TOKENS:,} tokens in {seconds} seconds.")
    return kept[:TOKENS]


def _load(url: str, work: Work, asks: Iterable[Ask], seconds: int) -> tuple[dict[str, int], list[str]]:
    host = urlsplit(url).netloc
    with tempfile.TemporaryDirectory(prefix="watchword-load-") as folder:
        requests, kept = Path(folder, "requests"), Path(folder, "kept")
        with requests.open("w") as file:
            file.writelines(f"{ask.line(host)}\n" for ask in itertools.islice(asks, seconds * MOST_A_SECOND))
        counted = wrk(
            url,
            seconds,
            CONNECTIONS,
            LOAD_CORE,
            BENCH_REQUESTS=str(requests),
            BENCH_WHOLE="1",
            BENCH_LOOK=str(work.look),
            BENCH_STATUS=str(work.status),
            BENCH_EXPECT=work.words,
            BENCH_ONCE="1" if work.once else "0",
            BENCH_KEEP=str(kept) if work.kept else "",
            BENCH_KEPT=work.kept,
        )
        return counted, kept.read_text().split() if work.kept else []
