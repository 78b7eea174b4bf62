"""DataHub's garbage collection, unmodified, by way of the gateway prefix: expired tokens, and old rows of the five
aspects, on the embedded index and on a real node.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import client_env, datahub
from tests.support.indexed import CANCEL, DAY, EmbeddedIndex, Index, Series, index_of, times
from tests.support.nodes import SharedNodes
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store
from tests.support.waiting import until
from watchword.index.indices import DATAHUB_GC_SERIES, DATAHUB_SERIES

ALICE = "urn:li:corpuser:alice"
KEPT_DAYS = 30
# As DataHub names them, with the number of old rows out of twenty: both truncation strategies occur.
ASPECTS = (
    ("dataset", "operation", 16),
    ("dataset", "datasetusagestatistics", 4),
    ("chart", "chartUsageStatistics", 20),
    ("dashboard", "dashboardUsageStatistics", 0),
    ("query", "queryusagestatistics", 11),
)
OPERATIONS = (
    "{ operations { total operations { id state plan { indexName strategy rowsToDelete } postCheck { passed } } } }"
)

# Everything except tokens and time series is off.
CONFIG: dict[str, Any] = {
    "cleanup_expired_tokens": True,
    "dataprocess_cleanup": {"enabled": False},
    "soft_deleted_entities_cleanup": {"enabled": False},
    "execution_request_cleanup": {"enabled": False},
    "query_cleanup": {"enabled": False},
}


EMBEDDED, NODE = "embedded", "opensearch-2"
ON_BOTH = (EMBEDDED, NODE)
# Its start takes longer than the test, so the second engine is tested in the soak.
ON_EMBEDDED_FIRST = (EMBEDDED, pytest.param(NODE, marks=pytest.mark.soak))
ON_NODE_FIRST = (pytest.param(EMBEDDED, marks=pytest.mark.soak), NODE)


@pytest.fixture
def index(request: pytest.FixtureRequest, shared_nodes: SharedNodes) -> Iterator[Index]:
    with index_of(request.param, shared_nodes) as found:
        yield found


class Collected:
    """The output of one run."""

    def __init__(self, home: Path, server: Server, **config: Any) -> None:
        home.mkdir()
        recipe = {
            "source": {"type": "datahub-gc", "config": CONFIG | config},
            "sink": {"type": "console"},
            "datahub_api": {"server": f"{server.url}/gms", "token": "${TOKEN}"},
        }
        (home / "recipe.json").write_text(json.dumps(recipe))
        token = server.create(ADMIN)["accessToken"]
        ran = datahub(home, "ingest", "run", "-c", "recipe.json", "--report-to", "report.json", TOKEN=token)
        self.code = ran.returncode
        self.said = ran.stdout + ran.stderr
        self.report = json.loads((home / "report.json").read_text())["source"]["report"]

    def assert_whole(self) -> None:
        assert self.code == 0, self.said
        assert self.report["failures"] == []
        assert self.report["warnings"] == []


def some_tokens(server: Server) -> tuple[set[str], set[str]]:
    """Return the ids of expired and of other tokens."""
    expired = {server.create(ADMIN, of=ALICE, name=f"expired {n}")["metadata"]["id"] for n in range(23)}
    for token_id in expired:
        change_store(server, "UPDATE tokens SET expires_at = created_at + 1 WHERE id = ?", token_id)
    live = {server.create(ADMIN, of=ALICE)["metadata"]["id"] for _ in range(3)}
    endless = {server.create(ADMIN, of=ALICE, duration="NO_EXPIRY")["metadata"]["id"] for _ in range(3)}
    return expired, live | endless


def ids(server: Server, status: str) -> set[str]:
    filters = [{"field": "actorUrn", "value": ALICE}, {"field": "status", "value": status}]
    return {row["id"] for row in server.tokens(filters=filters, count=100)["tokens"]}


def now(server: Server) -> int:
    """Return the server's time."""
    made: int = server.create(ADMIN)["metadata"]["createdAt"]
    return made


def all_over(server: Server) -> Any:
    """Return all operations once none is running."""

    def listed() -> Any:
        return server.ask(OPERATIONS, actor=ADMIN)["operations"]["operations"]

    until(lambda: all(one["state"] in ("DONE", "FAILED", "CANCELLED") for one in listed()), "all are over")
    return listed()


@pytest.mark.parametrize("index", ON_BOTH, indirect=True)
def test_both_halves_leave_no_expired_token_and_no_old_row_and_touch_nothing_else(
    make_server: Callable[..., Server], index: Index, tmp_path: Path
) -> None:
    server = make_server("--allow-no-expiry", "on", *index.flags)
    expired, others = some_tokens(server)
    token = server.create(ADMIN)["accessToken"]
    start = now(server)
    all_series = [(Series(server, index, token, aspect, entity), old) for entity, aspect, old in ASPECTS]
    for series, old in all_series:
        rows = times(20, start - (KEPT_DAYS - 20 + old) * DAY - DAY // 2)
        series.load(rows | {"timeless": {"urn": "urn:none"}})

    ran = Collected(tmp_path / "home", server, truncate_indices=True)

    ran.assert_whole()
    assert ran.report["expired_tokens_revoked"] == len(expired)
    assert ids(server, "REVOKED") == expired
    assert ids(server, "EXPIRED") == set()
    assert ids(server, "ACTIVE") == others
    operations = {one["plan"]["indexName"]: one for one in all_over(server)}
    assert len(operations) == len(ASPECTS)
    for series, old in all_series:
        done = operations[series.name]
        assert (done["state"], done["postCheck"]["passed"]) == ("DONE", True)
        assert done["plan"]["rowsToDelete"] == old
        assert set(series.rows()) == {f"row-{n}" for n in range(20 - old)} | {"timeless"}
    strategies = {one["plan"]["strategy"] for one in operations.values()}
    embedded = isinstance(index, EmbeddedIndex)
    assert strategies == ({"DELETE_BY_QUERY"} if embedded else {"DELETE_BY_QUERY", "REINDEX"})


@pytest.mark.parametrize("index", ON_NODE_FIRST, indirect=True)
def test_datahub_gc_watches_the_remaining_rows(
    make_server: Callable[..., Server], index: Index, tmp_path: Path
) -> None:
    server = make_server("--index-rate", "500", *index.flags)
    series = Series(server, index, server.create(ADMIN)["accessToken"], "operation")
    start = now(server)
    rows = times(3_000, start, step=1) | {
        f"old-{n}": {"timestampMillis": start - (KEPT_DAYS + 1) * DAY - n} for n in range(2_500)
    }
    series.load(rows)

    ran = Collected(
        tmp_path / "home",
        server,
        truncate_indices=True,
        truncation_watch_until=1,
        truncation_sleep_between_seconds=3,
    )

    ran.assert_whole()
    left = [int(number) for number in re.findall(r"to_delete (\d+) / \d+", ran.said)]
    assert left, ran.said
    assert left == sorted(left, reverse=True)
    assert [one["state"] for one in all_over(server)] == ["DONE"] * len(ASPECTS)
    assert len(series.rows()) == 3_000


@pytest.mark.parametrize("index", ON_EMBEDDED_FIRST, indirect=True)
def test_datahub_gc_does_not_disturb_a_running_truncation(
    make_server: Callable[..., Server], index: Index, tmp_path: Path
) -> None:
    server = make_server("--allow-no-expiry", "on", "--index-rate", "1", *index.flags)
    token = server.create(ADMIN)["accessToken"]
    first, second = (Series(server, index, token, aspect, "dataset") for _, aspect, _ in ASPECTS[:2])
    start = now(server)
    rows = times(600, start - KEPT_DAYS * DAY, step=1)
    first.load(rows)
    second.load(rows)
    running = first.truncate(start - KEPT_DAYS * DAY, forceDeleteByQuery=True, batchSize=1)
    expired, others = some_tokens(server)

    meanwhile = Collected(tmp_path / "meanwhile", server, truncate_indices=True)

    # It requests twice, the second time with forceDeleteByQuery, and names the conflicting operation.
    assert running in meanwhile.said
    assert [failure["message"] for failure in meanwhile.report["failures"]] != []
    assert meanwhile.report["expired_tokens_revoked"] == len(expired)
    assert ids(server, "ACTIVE") == others
    operations = server.ask(OPERATIONS, actor=ADMIN)["operations"]["operations"]
    assert [(one["id"], one["state"]) for one in operations] == [(running, "RUNNING")]
    assert second.rows() == rows

    server.ask(CANCEL, {"id": running}, actor=ADMIN)
    assert first.over(running)["state"] == "CANCELLED"
    server.stop()
    server._flags = tuple(word for word in server._flags if word not in ("--index-rate", "1"))
    server.start()
    Collected(tmp_path / "after", server, truncate_indices=True).assert_whole()
    assert {one["state"] for one in all_over(server) if one["id"] != running} == {"DONE"}
    assert (first.rows(), second.rows()) == ({}, {})


# Each key of an entity names the entity's aspects.
OF_ENTITIES = """
from datahub.metadata import schema_classes
classes = [one for one in vars(schema_classes).values() if getattr(one, "ASPECT_NAME", None)]
series = {one.ASPECT_NAME for one in classes if one.ASPECT_TYPE == "timeseries"}
for one in classes:
    for aspect in series.intersection(one.ASPECT_INFO.get("entityAspects", ())):
        print(one.ASPECT_INFO["keyForEntity"] + "." + aspect)
"""


def test_every_time_series_of_datahub_is_known_by_default() -> None:
    python = client_env("datahub") / "bin" / "python"
    ran = subprocess.run([python, "-c", OF_ENTITIES], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == set(DATAHUB_SERIES)
    assert {f"{entity}.{aspect}".lower() for entity, aspect, _ in ASPECTS} == set(map(str.lower, DATAHUB_GC_SERIES))
