"""Contenders: servers that are started on one core, asked, and stopped. A Watchword starts on a store of some size."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from bench.cases import CREATE
from bench.population import Holder, Population
from tests.support.preloaded import without_settings
from watchword.index.embedded.process import PROCESS_NAME

ROOT = Path(__file__).resolve().parent.parent
SERVER_CORE, LOAD_CORE = "0", "1"
START_SECONDS = 30.0
STOP_SECONDS = 40.0
ADMIN = "urn:li:corpuser:admin"

BARE, BARE_RSGI, WATCHWORD = "bare", "bare-rsgi", "watchword"
ON_DATABASE, ONE_BY_ONE, SWITCHED = "watchword-postgres", "watchword-postgres-single", "watchword-switched"
PAUSING = "watchword-pausing"

LET_ALL = "mutation ($input: PolicyUpdateInput!) { createPolicy(input: $input) }"
_EVERYONE = {
    "type": "PLATFORM",
    "name": "everyone has tokens",
    "state": "ACTIVE",
    "privileges": ["GENERATE_PERSONAL_ACCESS_TOKENS"],
    "actors": {"allUsers": True},
}


class Contender:
    """`size` is None for a bare one, which keeps nothing. `beside` are processes whose work is its work too."""

    def __init__(
        self,
        name: str,
        folder: Path,
        population: Population,
        size: int | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        cores: str = SERVER_CORE,
        label: str = "",
        beside: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self.shown = label or name
        self.size = size
        self.population = population
        self.root = population.callers[0]
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._log = folder / "log"
        self._settings = settings or {}
        self._cores = cores
        self._beside = beside
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_bare(self) -> bool:
        """Whether it answers any path, with as many bytes as the path says."""
        return self.size is None

    @property
    def key(self) -> tuple[str, int | None]:
        """The label in the report."""
        return self.shown, self.size

    @property
    def label(self) -> str:
        return self.shown if self.size is None else f"{self.shown}, {self.size:,} tokens"

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "bench.serve", self.name, str(self.port), str(self._folder / "data")]
        return [*words, *(f"{name}={value}" for name, value in self._settings.items())]

    def environment(self) -> dict[str, str]:
        return without_settings()

    def __enter__(self) -> Self:
        command = ["taskset", "-c", self._cores, *self.command()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._await_answer()
            self.admit()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Ask it to stop; end the whole group when it does not."""
        process = self._process
        assert process is not None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def cpu_seconds(self) -> float:
        """What its processes have used so far: steadier than a rate where neighbours want the core too. Without those
        of the search index and for outgoing requests, which serve no caller and give way.
        """
        answering = [one for one in self.processes() if not (is_engine(one) or is_outbound(one))]
        return cpu_seconds(answering) + self._beside()

    def outbound_seconds(self) -> float:
        """Of the processes for outgoing requests."""
        return cpu_seconds([one for one in self.processes() if is_outbound(one)])

    def resident_mib(self) -> list[float]:
        """What each worker has in memory."""
        return [one.memory_info().rss / 1024**2 for one in self.workers()]

    def workers(self) -> list[psutil.Process]:
        main, *others = self.processes()
        own = [one for one in others if one.ppid() == main.pid]
        return [one for one in own if not (is_engine(one) or is_tracker(one) or is_outbound(one))]

    def processes(self) -> list[psutil.Process]:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        return [main, *main.children(recursive=True)]

    def admit(self) -> None:
        """Everyone may have tokens, and the root actor has one."""
        if not self.name.startswith(WATCHWORD):
            return
        self.ask(LET_ALL, {"input": _EVERYONE})
        wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_DAY", "name": "bench"}
        self.root = Holder(ADMIN, self.ask(CREATE, {"input": wanted})["createAccessToken"]["accessToken"])

    def ask(self, query: str, variables: Mapping[str, Any]) -> Any:
        """What the root actor is answered; setting up is not measured."""
        answer = httpx.post(
            f"{self.url}/api/graphql",
            json={"query": query, "variables": variables},
            headers={"X-Service-Actor": ADMIN},
            timeout=30,
        ).json()
        assert "errors" not in answer, answer
        return answer["data"]

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                httpx.get(self.url, timeout=5)
            except httpx.TransportError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{self.label} did not start:\n{self._log.read_text()}") from None
                time.sleep(0.05)
            else:
                return


def is_engine(process: psutil.Process) -> bool:
    """Whether it is the embedded search index's own."""
    return process.name() == PROCESS_NAME


def is_outbound(process: psutil.Process) -> bool:
    """Whether it sends webhooks and asks identity providers."""
    try:
        return "watchword.outbound.process" in process.cmdline()
    except psutil.NoSuchProcess:  # it ends when it is idle
        return False


def is_tracker(process: psutil.Process) -> bool:
    """Whether it is the one that Python starts to look after what processes share."""
    return "resource_tracker" in " ".join(process.cmdline())


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    used = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a database's helpers come and go
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
