"""The search engines under test. A place is where the indices of one test lie; what happens past the port goes there.

A further engine is a further word in `ENGINES`: the contract's tests know none of them. It is made from pytest's
factory of folders, once for all tests of a process, and makes places with unique names.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

from tests.support.engine_nodes import NODE_ENGINES
from watchword.database.sqlite.file import transaction
from watchword.index.embedded.engine import EmbeddedIndex, find_index, open_engine, put_rows
from watchword.index.embedded.index_file import connect
from watchword.index.embedded.process import EngineProcess
from watchword.index.engine import Engine
from watchword.index.indices import Row

Source = dict[str, Any]


class IndexLocation(Protocol):
    """Where the indices of one test lie, reached past the engine. What is done here is acknowledged on return."""

    def name(self, word: str) -> str:
        """A name for an index that no other test uses, always the same for the same word."""

    async def open(self) -> Engine:
        """Another engine on the same indices, as another process would open it."""

    def put(self, index: str, row_id: str, source: Source) -> bool:
        """Add or replace a row; whether it was taken."""

    def remove(self, index: str, row_id: str) -> None: ...

    def rows(self, name: str) -> dict[str, Source]:
        """Everything that is there now, by id."""

    def alias(self, name: str, index: str) -> bool:
        """Let the name lead to the index, beside others it leads to; whether the engine has aliases."""


class Backend(Protocol):
    def place(self) -> IndexLocation:
        """A new, empty place."""


Make = Callable[[pytest.TempPathFactory], AbstractContextManager[Backend]]


class EmbeddedPlace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._prefix = f"t{uuid.uuid4().hex[:12]}"

    def name(self, word: str) -> str:
        return f"{self._prefix}_{word}"

    async def open(self) -> Engine:
        return open_engine(self.path)

    def put(self, index: str, row_id: str, source: Source) -> bool:
        with closing(connect(self.path)) as file:
            row = Row(json.dumps(source).encode(), row_id)
            with transaction(file):
                put_rows(file, found(file, index), [row])
        return True

    def remove(self, index: str, row_id: str) -> None:
        with closing(connect(self.path)) as file:
            bound = (found(file, index).number, row_id)
            file.execute("DELETE FROM documents WHERE index_number = ? AND id = ?", bound)

    def rows(self, name: str) -> dict[str, Source]:
        query = "SELECT d.id, d.source FROM documents d JOIN indices i ON i.number = d.index_number WHERE i.name = ?"
        with closing(connect(self.path)) as file:
            rows: Any = file.execute(query, (name,))
            return {row_id: json.loads(source) for row_id, source in rows}

    def alias(self, name: str, index: str) -> bool:
        return False


def found(file: apsw.Connection, name: str) -> EmbeddedIndex:
    index = find_index(file, name)
    assert index is not None, f"there is no index {name}"
    return index


class EmbeddedBackend:
    def __init__(self, path: Path) -> None:
        self._path = path

    def place(self) -> IndexLocation:
        return EmbeddedPlace(self._path)


@contextmanager
def embedded(folders: pytest.TempPathFactory) -> Iterator[Backend]:
    """One file for all places, with the one process that works on it."""
    path = folders.mktemp("embedded") / "index.db"
    with EngineProcess(path):
        yield EmbeddedBackend(path)


ENGINES: dict[str, Make] = {"embedded": embedded, **NODE_ENGINES}
