"""Real search nodes, run by `scripts/search-node`: one of a kind shared by a whole test run, or one of a test's own.

No node outlives the run: each is told to die with the process in which pytest itself runs, however that ends.
"""

import fcntl
import functools
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.server import plain_client
from tests.support.system import missing
from tests.support.waiting import SECONDS, until

KINDS = ("opensearch-2", "opensearch-3", "elasticsearch-7")
KINDS_IN_TURN = (KINDS[0], *(pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS[1:]))
"""For tests that start nodes of their own, which costs: the others in the soak alone."""
SCRIPT = ROOT / "scripts/search-node"

_run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@functools.cache
def fetch(kind: str) -> None:
    """Have its jars; skips, or fails when strict, where they cannot be had."""
    done = subprocess.run([sys.executable, str(SCRIPT), "fetch", kind], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing(f"needs scripts/search-node fetch {kind}: {done.stderr.strip()[-500:]}")


def unique_prefix() -> str:
    """A prefix for the names of indices that nobody else uses."""
    return f"t{uuid.uuid4().hex[:12]}"


class Client:
    """What tests say to a node."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self.http = plain_client(url, SECONDS)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that is no error."""
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def settle(self) -> None:
        """Wait until every primary shard serves, which takes a moment after a restart."""
        self.ask("GET", f"/_cluster/health?wait_for_status=yellow&timeout={SECONDS / 2:g}s")

    def finished(self, task: str) -> Any:
        """What `_tasks/<id>` says once the task is over."""
        until(lambda: bool(self.ask("GET", f"/_tasks/{task}")["completed"]), f"task {task} is over")
        return self.ask("GET", f"/_tasks/{task}")

    def drop(self, prefix: str) -> None:
        """Remove every index whose name begins so."""
        self.ask("DELETE", f"/{prefix}*")

    def close(self) -> None:
        self.http.close()


class Node(Client):
    """A node of a test's own. Starting it again keeps folder and port."""

    def __init__(self, kind: str, folder: Path | None, out: Path, dies_with: int = _run) -> None:
        fetch(kind)
        self.port = free_port()
        super().__init__(kind, f"http://127.0.0.1:{self.port}")
        self.out = out
        self._command = [sys.executable, str(SCRIPT), "run", kind, "--port", str(self.port)]
        self._command += ["--die-with", str(dies_with)] + ([] if folder is None else ["--folder", str(folder)])
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str, settled: bool = True) -> Self:
        """Start it, with more lines of settings, and wait until it answers; and, unless told otherwise, until its
        shards do.
        """
        command = [*self._command, *(f"--set={line}" for line in settings)]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        process = self.process
        until(
            lambda: b" listens at " in self.out.read_bytes() or process.poll() is not None,
            f"{self.kind} answers",
            SECONDS,
        )
        assert process.poll() is None, f"{self.kind} did not start:\n{self.out.read_text()}"
        if settled:
            self.settle()
        return self

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """`SIGSTOP`: once this returns it takes connections, in the kernel, and answers none."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        # The signal is delivered in time, not at once: its last thread has stopped when the kernel reports it.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self._signal(how)
            self.resume()  # a paused one would not hear anything but SIGKILL
            self.process.wait(SECONDS)
            self.process = None

    def _signal(self, which: signal.Signals) -> None:
        assert self.process is not None, f"{self.kind} does not run"
        self.process.send_signal(which)


@contextmanager
def own_node(kind: str, folder: Path) -> Iterator[Node]:
    """A node that a test may kill, pause and start again; its data and log stay in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    node = Node(kind, folder / "node", folder / "node.out")
    try:
        yield node.start()
    finally:
        node.stop()
        node.close()


class SharedNodes:
    """The run's nodes: whichever worker first needs one starts it, and it serves them all until the run ends."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        base = factory.getbasetemp()
        self._folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        self._known: dict[str, Client] = {}

    def of(self, kind: str) -> Client:
        if kind not in self._known:
            fetch(kind)
            self._known[kind] = self._find_or_start(kind)
        return self._known[kind]

    def _find_or_start(self, kind: str) -> Client:
        said = self._folder / f"{kind}.url"
        with (self._folder / f"{kind}.turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not said.exists():
                node = Node(kind, None, self._folder / f"{kind}.out").start()
                _started.append(node)
                said.write_text(node.url)
        return Client(kind, said.read_text())

    def close(self) -> None:
        for client in self._known.values():
            client.close()


_started: list[Node] = []  # held to the end: they are ended by the run's end, not by their objects'
