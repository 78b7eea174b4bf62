"""Servers with a search index, embedded or a real node, and what tests put into it and read from it past the server."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol

import apsw

from tests.support.nodes import SharedNodes, unique_prefix
from tests.support.server import ADMIN, Server
from tests.support.traffic import rows_of
from tests.support.waiting import until
from watchword.index.embedded.engine import open_engine as open_embedded
from watchword.index.engine import Engine
from watchword.index.indices import Row

DAY = 86_400_000
OPERATION = """query ($id: String!) { operation(id: $id) { id state percent rowsDone rowsToDo note error attempts
  sourceIndex targetIndex tasks { id purpose completed } postCheck { passed rows rowsLeft expected }
  plan { strategy rows rowsToDelete } cancelRequestedBy } }"""
CANCEL = "mutation ($id: String!) { cancelOperation(id: $id) { id state } }"
OVER = ("DONE", "FAILED", "CANCELLED")

Rows = dict[str, dict[str, Any]]
Make = Callable[..., Server]


class Index(Protocol):
    """Where a server's rows are."""

    flags: tuple[str, ...]
    """What a server is started with to use it."""
    prefix: str

    def open(self, server: Server) -> Engine: ...

    def rows(self, server: Server, name: str) -> Rows:
        """What the index of this name holds, by id; KeyError where there is none."""


class EmbeddedIndex:
    flags: tuple[str, ...] = ()
    prefix = ""

    def open(self, server: Server) -> Engine:
        return open_embedded(server.data_dir / "index.db")

    def rows(self, server: Server, name: str) -> Rows:
        path = server.data_dir / "index.db"
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            file.set_busy_timeout(10_000)
            number = file.execute("SELECT number FROM indices WHERE name = ?", (name,)).get
            if number is None:
                raise KeyError(name)
            found = file.execute("SELECT id, source FROM documents WHERE index_number = ?", (number,))
            return {one: json.loads(source) for one, source in found}


class NodeIndex:
    def __init__(self, url: str) -> None:
        self.url = url
        self.prefix = unique_prefix()
        self.flags: tuple[str, ...] = ("--index-url", url, "--index-prefix", self.prefix)

    def open(self, server: Server) -> Engine:
        from watchword.index.opensearch.engine import open_engine as open_node

        return open_node((self.url,), user=None, password=None, api_key=None, ca_file=None, verify_tls=True, timeout=10)

    def rows(self, server: Server, name: str) -> Rows:
        return rows_of(self.url, name)


@contextmanager
def index_of(kind: str, nodes: SharedNodes) -> Iterator[Index]:
    if kind == "embedded":
        yield EmbeddedIndex()
        return
    node = nodes.of(kind)
    index = NodeIndex(node.url)
    yield index
    node.drop(index.prefix)


class Series:
    """A time series of its own on a server: made, asked about, truncated."""

    def __init__(
        self, server: Server, index: Index, token: str, aspect: str | None = None, entity: str = "dataset"
    ) -> None:
        self.server = server
        self.entity = entity
        self.index = index
        self.token = token
        self.aspect = aspect or f"a{uuid.uuid4().hex[:10]}"
        head = f"{index.prefix}_" if index.prefix else ""
        self.name = f"{head}{entity}_{self.aspect.lower()}aspect_v1"

    def load(self, rows: Mapping[str, dict[str, Any]]) -> None:
        async def write() -> None:
            engine = self.index.open(self.server)
            try:
                await engine.make(self.name)
                await engine.write(self.name, [Row(json.dumps(what).encode(), one) for one, what in rows.items()])
            finally:
                await engine.close()

        asyncio.run(write())

    def rows(self) -> Rows:
        return self.index.rows(self.server, self.name)

    def asked(self, until: int, **fields: Any) -> dict[str, Any]:
        return {"entityType": self.entity, "aspect": self.aspect, "endTimeMillis": until, **fields}

    def plan(self, until: int, **fields: Any) -> str:
        answer = self.server.operate("truncateTimeseriesAspect", self.asked(until, **fields), token=self.token)
        assert answer.status_code == 200, answer.text
        summary: str = answer.json()["value"]
        return summary

    def truncate(self, until: int, **fields: Any) -> str:
        """Begin; returns the id."""
        return self.plan(until, dryRun=False, **fields)

    def truncate_nothing(self) -> str:
        """The id of an operation that found nothing to do."""
        self.load({"row": {"timestampMillis": DAY}})
        task = self.truncate(0)
        self.over(task)
        return task

    def operation(self, task: str) -> Any:
        return self.server.ask(OPERATION, {"id": task}, actor=ADMIN)["operation"]

    def over(self, task: str, seconds: float = 120) -> Any:
        """The operation, once it is over."""
        until(lambda: self.operation(task)["state"] in OVER, f"{task} is over", seconds)
        return self.operation(task)


def times(count: int, start: int, step: int = DAY, **members: Any) -> Rows:
    """Rows a day apart, going back from `start`."""
    return {f"row-{n}": {"timestampMillis": start - n * step, "urn": f"urn:{n}", **members} for n in range(count)}
