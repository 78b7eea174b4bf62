"""What a truncation on the embedded index takes: the engine's process, held and let go; memory and disk, at most."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import psutil

from bench.contenders import SERVER_CORE, Contender, is_engine, is_tracker

LOOK_SECONDS = 0.25
MIB = 1024 * 1024
KEPT_PAGES = 1_000
"""Free ones, which the engine keeps for what is written next."""


class EngineProcess:
    """The one process of the index: where it may run, and whether it does."""

    def __init__(self, contender: Contender) -> None:
        deadline = time.monotonic() + 30
        while not (found := [process for process in contender.processes() if is_engine(process)]):
            if time.monotonic() > deadline:
                raise SystemExit("The server has no process for its search index.")
            time.sleep(0.05)
        self.process = found[0]

    def on_the_servers_core(self) -> None:
        self.process.cpu_affinity([int(SERVER_CORE)])

    def on_any_core(self) -> None:
        self.process.cpu_affinity([*range(os.cpu_count() or 1)])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is done in the index meanwhile."""
        self.process.suspend()
        try:
            yield
        finally:
            self.process.resume()


class IndexFile:
    """The index's file, read beside the server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def copy_from(self, filled: Path) -> None:
        """On disk before anything is measured."""
        shutil.copyfile(filled, self._path)
        self._path.chmod(0o600)
        os.sync()

    def rows_done(self) -> int:
        """By all tasks so far."""
        return int(self._ask("SELECT ifnull(sum(deleted), 0) FROM tasks"))

    def rows(self, name: str) -> int:
        return int(self._ask("SELECT rows FROM indices WHERE name = :name", {"name": name}))

    def has_tasks(self) -> bool:
        """On a task."""
        return bool(self._ask("SELECT count(*) FROM tasks WHERE ended_at IS NULL"))

    def is_compacted(self) -> bool:
        """Free pages were given back."""
        return bool(self._ask("PRAGMA freelist_count") <= KEPT_PAGES)

    def size(self) -> int:
        """With its log."""
        files = (self._path, self._path.with_name(self._path.name + "-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _ask(self, query: str, bound: dict[str, str] | None = None) -> Any:
        with closing(apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            file.set_busy_timeout(10_000)
            return file.execute(query, bound or {}).get


class Most:
    """Looks four times a second at what the server's processes have in memory, and at its index on disk."""

    def __init__(self, contender: Contender, file: IndexFile) -> None:
        self.resident: dict[str, float] = {}
        """MiB at most: of each process, and of all of them at one moment."""
        self.disk = 0.0
        self._contender = contender
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        roles = {process.pid: _role(process, number) for number, process in enumerate(self._contender.processes())}
        while not self._over.wait(LOOK_SECONDS):
            now = {}
            for process in self._contender.processes():
                try:
                    now[roles.setdefault(process.pid, f"another {process.pid}")] = process.memory_info().rss / MIB
                except psutil.NoSuchProcess:
                    continue
            now["together"] = sum(now.values())
            for role, resident in now.items():
                self.resident[role] = max(resident, self.resident.get(role, 0.0))
            self.disk = max(self.disk, self._file.size() / MIB)


def _role(process: psutil.Process, number: int) -> str:
    if number == 0:
        return "main"
    if is_engine(process):
        return "engine"
    return "tracker" if is_tracker(process) else f"worker {number}"
