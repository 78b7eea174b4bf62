"""An operation that keeps the last rows of each urn, through `kill -9` of the server."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.operations.copies import MakeServer
from tests.support.indexed import Index, Rows, Series, index_of
from tests.support.nodes import SharedNodes
from tests.support.server import ADMIN
from tests.support.store_file import change_store, look
from tests.support.waiting import until
from watchword.index.rules import OperationProgress

URNS = 400
"""More than a page of a cluster has."""


@pytest.fixture(params=["embedded", "opensearch-2"])
def index(request: pytest.FixtureRequest, shared_nodes: SharedNodes) -> Iterator[Index]:
    with index_of(request.param, shared_nodes) as found:
        yield found


def test_killed_operation_continues_and_keeps_the_last_rows_of_each_urn(make_server: MakeServer, index: Index) -> None:
    """Rules alone can ask for this, so the test gives the plan of a finished operation other values."""
    server = make_server(*index.flags, "--index-rate", "400")
    series = Series(server, index, server.create(ADMIN)["accessToken"])
    start = time.time_ns() // 1_000_000 - 1_000_000
    rows: Rows = {
        f"{urn}-{n}": {"urn": f"urn:{urn:03}", "timestampMillis": start - n} for urn in range(URNS) for n in range(5)
    }
    series.load(rows)
    task = series.truncate(0, batchSize=50)
    assert series.over(task)["state"] == "DONE"
    server.stop()
    [(stored,)] = look(server, "SELECT plan FROM operations")
    plan = json.loads(stored) | {"until": start, "keep_last": 2, "rows": 5 * URNS, "rows_to_delete": 3 * URNS}
    again = "UPDATE operations SET plan = ?, work = ?, state = 'PLANNED', held_until = 0, finished_at = NULL"
    change_store(server, again, json.dumps(plan), json.dumps(OperationProgress().packed()))

    server.start()
    until(lambda: series.operation(task)["rowsDone"] > 0, "it is under way")
    server.kill()
    [(state, finished)] = look(server, "SELECT state, finished_at FROM operations")
    assert (state, finished) == ("RUNNING", None)
    change_store(server, "UPDATE operations SET held_until = 0")
    server.start()
    done = series.over(task)
    assert done["state"] == "DONE", done
    assert done["postCheck"] == {"passed": True, "rows": 2 * URNS, "rowsLeft": 0, "expected": None}
    assert len(done["tasks"]) <= 2
    assert series.rows() == {f"{urn}-{n}": rows[f"{urn}-{n}"] for urn in range(URNS) for n in range(2)}
