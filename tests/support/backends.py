"""The stores under test. Each backend makes places; stores opened on one place share what is kept there.

A further backend is a further class here and a further word in `BACKENDS`: the contract's tests know none of them.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw

from watchword.domain.events import KeptEvent
from watchword.domain.ports import Store
from watchword.stores.sqlite import open_store, prepare
from watchword.stores.sqlite.check import check

NOW = 1_767_225_600_000


class AdjustableClock:
    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Place(Protocol):
    """Where one store's content lies."""

    clock: AdjustableClock

    async def open(self) -> Store:
        """Another store on the same content, as another process would open it."""

    def events(self) -> list[KeptEvent]:
        """The events that are committed, oldest first, read past the store."""

    def problems(self) -> list[str]:
        """What the store's own check finds wrong."""


class Backend(Protocol):
    def place(self) -> Place:
        """A new, empty place."""


class SqlitePlace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = AdjustableClock()
        prepare(path)

    async def open(self) -> Store:
        return open_store(self.path, self.clock)

    def events(self) -> list[KeptEvent]:
        # By the driver the store uses: the standard library's own copy of SQLite in one process with it would, on
        # closing the file, drop the other's locks.
        columns = "at, actor, bearer_id, action, target, peer, request_id, detail"
        with closing(apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            rows = file.execute(f"SELECT {columns} FROM events ORDER BY seq").fetchall()
        return [_event(row) for row in rows]

    def problems(self) -> list[str]:
        return [f"{law}: {problem}" for law, problem in check(self.path) if problem is not None]


def _event(row: tuple[Any, ...]) -> KeptEvent:
    at, actor, bearer_id, action, target, peer, request_id, detail = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, json.loads(detail))


class SqliteBackend:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def place(self) -> Place:
        self._made += 1
        return SqlitePlace(self._folder / f"place{self._made}" / "watchword.db")


@contextmanager
def sqlite_backend(folder: Path) -> Iterator[Backend]:
    yield SqliteBackend(folder)


BACKENDS: dict[str, Callable[[Path], Any]] = {"sqlite": sqlite_backend}
