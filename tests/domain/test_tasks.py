"""Task ids and the task status object."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.basics.errors import Fault
from watchword.index.engine import Counters, TaskId, TaskStatus, requested_task

_nodes = st.text("abcXYZ019_-", min_size=1, max_size=64)
_numbers = st.integers(0, 2**63 - 1)
_counts = st.integers(0, 2**50)


@given(_nodes, _numbers)
def test_task_id_survives_a_round_trip(node: str, number: int) -> None:
    assert TaskId.parse(str(TaskId(node, number))) == TaskId(node, number)


@given(st.text(max_size=80))
def test_invalid_task_id_is_rejected(text: str) -> None:
    node, colon, number = text.partition(":")
    if colon and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", node) and re.fullmatch(r"[0-9]{1,18}", number):
        assert TaskId.parse(text) == TaskId(node, int(number))
        return
    with pytest.raises(Fault) as refused:
        TaskId.parse(text)
    assert refused.value.details == {"field": "task"}


@given(_nodes, _numbers)
def test_both_task_id_forms_are_equal(node: str, number: int) -> None:
    task = TaskId(node, number)
    assert requested_task(str(task), None, None) == task
    assert requested_task(None, node, number) == task
    assert requested_task(None, node, str(number)) == task
    assert requested_task(str(task), node, number) == task


@pytest.mark.parametrize(
    ("task", "node", "number", "field"),
    [
        (None, None, None, "task"),
        ("", None, None, "task"),
        ("node", None, None, "task"),
        ("a:1:2", None, None, "task"),
        ("a:b", None, None, "task"),
        ("a:-1", None, None, "task"),
        ("a:1_0", None, None, "task"),
        ("a: 1", None, None, "task"),
        (":1", None, None, "task"),
        (f"a:{10**40}", None, None, "task"),
        (7, None, None, "task"),
        (None, "a", None, "taskId"),
        (None, None, 7, "nodeId"),
        (None, "a", True, "taskId"),
        (None, "a", 1.5, "taskId"),
        (None, "a", -1, "taskId"),
        (None, "a", "x", "taskId"),
        (None, "a", "", "taskId"),
        (None, "a", 10**40, "taskId"),
        (None, "a", "1:2", "taskId"),
        (None, "a:b", 1, "nodeId"),
        (None, "_all/*", 1, "nodeId"),
        (None, 7, 1, "nodeId"),
        ("a:1", "a", 2, "task"),
        ("a:1", "b", 1, "task"),
        ("a:1", "b", None, "taskId"),
    ],
)
def test_invalid_or_conflicting_task_id_is_rejected(task: Any, node: Any, number: Any, field: str) -> None:
    with pytest.raises(Fault) as refused:
        requested_task(task, node, number)
    assert refused.value.kind.code == 400
    assert refused.value.details["field"] == field


@given(st.builds(Counters, *[_counts] * 10, st.floats(-1, 1e6), _counts))
def test_counters_survive_a_round_trip(counters: Counters) -> None:
    assert Counters.read(counters.shown()) == counters


@given(st.builds(Counters, *[_counts] * 10), st.builds(Counters, *[_counts] * 10))
def test_counters_add_up_and_keep_the_later_rate(one: Counters, other: Counters) -> None:
    both = one.plus(other)
    assert both.deleted == one.deleted + other.deleted
    assert both.bulk_retries == one.bulk_retries + other.bulk_retries
    assert both.done == one.done + other.done
    assert both.requests_per_second == other.requests_per_second


def test_task_status_has_exactly_the_contract_members() -> None:
    shown = TaskStatus(TaskId("n", 1), completed=True, run_time_nanos=5, counters=Counters(total=3)).shown()
    assert list(shown) == ["completed", "taskId", "runTimeNanos", "status"]
    assert list(shown["status"]) == [
        "total", "updated", "created", "deleted", "batches", "version_conflicts", "noops", "retries",
        "throttled_millis", "requests_per_second", "throttled_until_millis",
    ]  # fmt: skip
    assert shown["status"]["retries"] == {"bulk": 0, "search": 0}
    assert shown["status"]["requests_per_second"] == -1.0


def test_failed_task_shows_failures_and_error() -> None:
    status = TaskStatus(TaskId("n", 1), True, 5, Counters(), failures=("row 7: too large",), error="cancelled")
    assert status.shown()["failures"] == ["row 7: too large"]
    assert status.shown()["error"] == "cancelled"
