"""The operations endpoint, on every engine: three actions and both forms of task status."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from tests.support.indexed import CANCEL, DAY, Index, NodeIndex, Series, times
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store, look
from tests.support.waiting import seen_in_time, until
from watchword.index.rules import OperationProgress, Strategy

PATHS = ("/operations", "/gms/operations", "/api/gms/operations")
STATUS = ("total", "updated", "created", "deleted", "batches", "version_conflicts", "noops", "retries",
          "throttled_millis", "requests_per_second", "throttled_until_millis")  # fmt: skip
READS = 'watchword_store_seconds_count{operation="read"}'


def now() -> int:
    return time.time_ns() // 1_000_000


def status(series: Series, body: Any, path: str = "/operations", **headers: str) -> Any:
    answer = series.server.operate("getEsTaskStatus", body, token=series.token, path=path, **headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestTruncation:
    def test_dry_run_counts_and_changes_nothing(self, series: Series) -> None:
        start = now()
        rows = times(10, start)
        series.load(rows)
        assert series.plan(start - 6 * DAY) == (
            "Delete 4 out of 10 rows (40.00%). Issuing a delete by query request. "
            "This was a dry run. Run with dryRun = false to execute."
        )
        many = series.plan(start - 3 * DAY, dryRun=True)
        how = "Reindexing the aspect" if isinstance(series.index, NodeIndex) else "Issuing a delete by query"
        assert many.startswith(f"Delete 7 out of 10 rows (70.00%). {how}")
        assert series.rows() == rows

    @pytest.mark.parametrize(
        ("cut", "force"),
        [(6, {}), (3, {}), (6, {"forceReindex": True}), (3, {"forceDeleteByQuery": True})],
        ids=["few", "many", "few by copy", "many by deletion"],
    )
    def test_truncation_deletes_rows_up_to_the_cutoff(self, series: Series, cut: int, force: dict[str, bool]) -> None:
        start = now()
        rows = times(10, start) | {"timeless": {"urn": "urn:none"}}
        series.load(rows)
        end = start - cut * DAY
        done = series.over(series.truncate(end, **force))
        assert done["state"] == "DONE", done
        assert done["postCheck"]["passed"]
        assert series.rows() == {one: what for one, what in rows.items() if what.get("timestampMillis", end + 1) > end}

    def test_repeated_truncations_keep_the_name(self, series: Series) -> None:
        start = now()
        rows = times(20, start)
        series.load(rows)
        for cut in (8, 3, 1):
            done = series.over(series.truncate(start - cut * DAY, forceReindex=True))
            assert done["state"] == "DONE", done
            assert set(series.rows()) == {f"row-{n}" for n in range(cut)}
        series.load({"later": {"timestampMillis": start}})
        assert "later" in series.rows()

    def test_truncation_without_rows_returns_an_id(self, series: Series) -> None:
        start = now()
        series.load(times(3, start))
        task = series.truncate(start - 30 * DAY)
        done = series.over(task)
        assert (done["state"], done["attempts"]) == ("DONE", 0)
        assert json.loads(status(series, {"task": task}))["completed"] is True
        assert len(series.rows()) == 3

    def test_known_aspect_without_an_index_counts_as_empty(self, indexed: Server, index: Index, token: str) -> None:
        series = Series(indexed, index, token, "DATASETusageStatistics")
        assert series.plan(now()).startswith("Delete 0 out of 0 rows (0.00%).")
        done = series.over(series.truncate(now()))
        assert (done["state"], done["rowsDone"], done["rowsToDo"]) == ("DONE", 0, 0)

    def test_unknown_aspect_is_not_found(self, series: Series) -> None:
        answer = series.server.operate("truncateTimeseriesAspect", series.asked(now()), token=series.token)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (404, "aspect_not_found")

    def test_entity_and_aspect_are_case_insensitive(self, series: Series) -> None:
        start = now()
        series.load(times(4, start))
        asked = series.asked(start - 2 * DAY) | {"entityType": "DataSet", "aspect": series.aspect.upper()}
        answer = series.server.operate("truncateTimeseriesAspect", asked, token=series.token)
        assert answer.json()["value"].startswith("Delete 2 out of 4 rows")

    def test_index_with_a_similar_name_is_not_changed(self, series: Series) -> None:
        start = now()
        rows = times(6, start)
        series.load(rows)
        bystanders = [
            Series(series.server, series.index, series.token, series.aspect + ending) for ending in ("x", "aspect")
        ]
        for bystander in bystanders:
            bystander.load(rows)
        for force in ("forceReindex", "forceDeleteByQuery"):
            series.over(series.truncate(start - 4 * DAY, **{force: True}))
        assert len(series.rows()) == 4
        for bystander in bystanders:
            assert bystander.rows() == rows

    def test_second_operation_on_an_index_is_rejected_and_names_the_first(
        self, slow_series: Callable[[], Series]
    ) -> None:
        series, start = slow_series(), now()
        series.load(times(6_000, start, step=1))
        first = series.truncate(start, forceDeleteByQuery=True, batchSize=50)
        asked = series.asked(start, dryRun=False)
        answer = series.server.operate("truncateTimeseriesAspect", asked, token=series.token)
        error = answer.json()["error"]
        assert (answer.status_code, error["reason"], error["operationId"]) == (409, "operation_running", first)
        assert first in error["message"]
        series.server.ask(CANCEL, {"id": first}, actor=ADMIN)
        assert series.over(first)["state"] == "CANCELLED"

    def test_operation_fails_after_its_timeout(self, slow_series: Callable[[], Series]) -> None:
        series, start = slow_series(), now()
        rows = times(600, start, step=1)
        series.load(rows)
        ended = series.over(series.truncate(start - 300, forceReindex=True, timeoutSeconds=1, batchSize=50))
        assert ended["state"] == "FAILED"
        assert "timeoutSeconds" in ended["error"]
        left = series.rows()
        assert left == rows if isinstance(series.index, NodeIndex) else 300 < len(left) <= 600


class TestTaskStatus:
    def test_both_paths_and_both_forms_return_the_status_text(self, series: Series) -> None:
        start = now()
        series.load(times(4, start))
        task = series.truncate(start - 2 * DAY)
        series.over(task)
        node, _, number = task.partition(":")
        bodies: list[Any] = [
            {"task": task},
            {"nodeId": node, "taskId": int(number)},
            {"nodeId": node, "taskId": number},
            {"task": task, "nodeId": node, "taskId": number},
        ]
        for path in PATHS:
            for body in bodies:
                text = status(series, body, path)
                assert isinstance(text, str)
                found = json.loads(text)
                assert list(found) == ["completed", "taskId", "runTimeNanos", "status"]
                assert (found["completed"], found["taskId"]) == (True, task)
                assert tuple(found["status"]) == STATUS
                assert found["status"]["deleted"] == 2
                assert found["runTimeNanos"] > 0

    def test_rest_li_clients_get_the_text_in_a_value(self, series: Series) -> None:
        start = now()
        series.load(times(2, start))
        task = series.truncate(start - DAY)
        series.over(task)
        answer = status(series, {"task": task}, X_RestLi_Protocol_Version="2.0.0")
        assert list(answer) == ["value"]
        assert json.loads(answer["value"])["taskId"] == task
        missing = status(series, {"task": "nowhere:7"}, X_RestLi_Protocol_Version="2.0.0")
        assert json.loads(missing["value"]) == {"error": "Could not get task status for nowhere:7"}

    @pytest.mark.parametrize("which", ["an unknown node", "an unknown number"])
    def test_status_of_an_unknown_task_could_not_be_read(self, series: Series, which: str) -> None:
        node = "nowhere" if which == "an unknown node" else series.truncate_nothing().partition(":")[0]
        task = f"{node}:{2**62}"
        assert status(series, {"task": task}) == {"value": f"Could not get task status for {task}"}

    def test_task_of_the_engine_is_readable(self, series: Series) -> None:
        start = now()
        series.load(times(4, start))
        done = series.over(series.truncate(start - 2 * DAY))
        (task,) = done["tasks"]
        found = json.loads(status(series, {"task": task["id"]}))
        assert (found["completed"], found["taskId"], found["status"]["deleted"]) == (True, task["id"], 2)

    def test_running_operation_shows_growing_counters(self, slow_series: Callable[[], Series]) -> None:
        def watched(old: int) -> tuple[Series, str, list[Any]] | None:
            series, start = slow_series(), now()
            series.load(times(old + 800, start, step=1))
            task, seen = series.truncate(start - 800, forceDeleteByQuery=True, batchSize=25), list[Any]()
            while len({one["status"]["deleted"] for one in seen}) < 2:
                found = json.loads(status(series, {"task": task}))
                if found["completed"]:
                    return None
                if found["status"]["batches"] > 0:
                    seen.append(found)
            return series, task, seen

        series, task, seen = seen_in_time(watched, 600, 6_000)
        assert seen[-1]["status"]["deleted"] > seen[0]["status"]["deleted"]
        assert seen[-1]["runTimeNanos"] > seen[0]["runTimeNanos"]
        assert seen[-1]["status"]["requests_per_second"] == 100.0
        assert seen[-1]["status"]["throttled_millis"] > 0
        assert series.over(task)["state"] == "DONE"

    def test_cancelled_operation_reports_its_error(self, slow_series: Callable[[], Series]) -> None:
        series, start = slow_series(), now()
        rows = times(6_000, start, step=1)
        series.load(rows)
        task = series.truncate(start - 3_000, forceReindex=True, batchSize=25)
        until(lambda: bool(series.operation(task)["rowsDone"]), "it has begun")
        series.server.ask(CANCEL, {"id": task}, actor=ADMIN)
        assert series.over(task)["state"] == "CANCELLED"
        found = json.loads(status(series, {"task": task}))
        assert (found["completed"], found["error"]) == (True, "cancelled")
        left = series.rows()
        assert left == rows if isinstance(series.index, NodeIndex) else 3_000 < len(left) < 6_000
        series.load({"after": {"timestampMillis": start}})


class TestSizes:
    def test_every_time_series_index_is_listed_with_its_size(self, series: Series) -> None:
        series.load(times(50, now()))

        def listed() -> Any:
            sizes = series.server.operate("getIndexSizes", token=series.token).json()["value"]["indexSizes"]
            (own,) = [size for size in sizes if size["indexName"] == series.name]
            return own

        # A cluster updates its counts with each refresh, about once a second.
        until(lambda: bool(listed()["rows"] == 50), "all rows are counted")
        own = listed()
        assert (own["entityName"], own["aspectName"]) == ("dataset", series.aspect)
        assert own["sizeInBytes"] > 0
        assert own["sizeInMb"] == round(own["sizeInBytes"] / 1_000_000, 3)

    def test_truncated_index_is_listed_once_under_its_name(self, series: Series) -> None:
        start = now()
        series.load(times(10, start))
        series.over(series.truncate(start - 2 * DAY))
        sizes = series.server.operate("getIndexSizes", token=series.token).json()["value"]["indexSizes"]
        assert [size["rows"] for size in sizes if size["indexName"].startswith(series.name)] == [2]


def test_readiness_lists_the_index_as_a_part(indexed: Server) -> None:
    answer = indexed.http.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json()["parts"]["index"]["status"] == "ready"


def test_idle_server_polls_less_often_and_starts_new_operations_immediately(series: Series) -> None:
    def reads_nothing() -> bool:
        before = reads(series.server)
        time.sleep(2)
        return reads(series.server) == before

    until(reads_nothing, "two seconds pass without a look at the store")
    assert series.operation(series.truncate_nothing())["state"] == "DONE"


def reads(server: Server) -> str:
    (line,) = [line for line in server.http.get("/metrics").text.splitlines() if line.startswith(READS)]
    return line


def test_bug_fails_the_operation_and_unblocks_writes(series: Series, index: Index) -> None:
    """A damaged record stands for a bug: values of wrong types in the plan."""
    series.truncate_nothing()
    work = orjson.dumps(replace(OperationProgress(), source=series.name, blocked_at=now()).packed()).decode()
    columns = "home, asked_by, asked_at, changed_at"
    if isinstance(index, NodeIndex):
        httpx.put(f"{index.url}/{series.name}/_block/write").raise_for_status()
    change_store(
        series.server,
        f"INSERT INTO operations ({columns}, index_name, state, plan, work) SELECT {columns}, 'damaged', 'VERIFYING', "
        "json_set(plan, '$.index', 5, '$.until', json('[5]'), '$.strategy', ?), ? FROM operations "
        "ORDER BY number DESC LIMIT 1",
        Strategy.REINDEX.value,
        work,
    )
    ((node, number),) = look(series.server, "SELECT node_id, (SELECT max(number) FROM operations) FROM state")
    failed = series.over(f"{node}:{number}")
    assert failed["state"] == "FAILED"
    assert failed["error"] == "Internal error. See the log of the service."
    assert "bug: TypeError" in series.server.err.read_text()
    series.load({"new": {"timestampMillis": DAY}})
    assert "new" in series.rows()
