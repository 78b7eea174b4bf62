"""The status of a task, from the answer of a cluster."""

from typing import Any

from watchword.index.engine import CANCELLED, Counters, TaskId, TaskStatus
from watchword.index.opensearch.cluster_client import TAG_HEADER, describe_error

_MAX_FAILURES = 10
_TASK_ACTIONS = ("/reindex", "/byquery")


def task_status(task: TaskId, answer: dict[str, Any]) -> TaskStatus | None:
    """None for a task of another kind, which has no such counters."""
    content = answer["task"]
    if not str(content["action"]).endswith(_TASK_ACTIONS):
        return None
    completed = bool(answer["completed"])
    response = answer.get("response") or {}
    status = content.get("status") or {}
    try:
        counters = Counters.read(status)
    except (KeyError, TypeError, ValueError):
        counters = Counters()  # it ended before it had any
    return TaskStatus(
        id=task,
        completed=completed,
        run_time_nanos=int(content["running_time_in_nanos"]),
        counters=counters,
        failures=_failures(response),
        error=_error(answer, status, response) if completed else None,
        tag=task_tag(content),
    )


def _error(answer: dict[str, Any], status: dict[str, Any], response: dict[str, Any]) -> str | None:
    error = answer.get("error")
    cancelled = "canceled" in status or "canceled" in response
    if cancelled or (isinstance(error, dict) and error.get("type") == "task_cancelled_exception"):
        return CANCELLED
    return None if error is None else describe_error(error)


def _failures(response: dict[str, Any]) -> tuple[str, ...]:
    failures = response.get("failures") or []
    described = [_failure(one) for one in failures[:_MAX_FAILURES]]
    if len(failures) > _MAX_FAILURES:
        described.append(f"and {len(failures) - _MAX_FAILURES} more like these")
    if response.get("timed_out"):
        described.append("The search timed out before all rows were seen.")
    return tuple(described)


def _failure(failure: dict[str, Any]) -> str:
    where = f"Row {failure['id']}" if "id" in failure else f"Shard {failure.get('shard', 'unknown')}"
    return f"{where}: {describe_error(failure.get('cause') or failure.get('reason') or failure)}"


def task_tag(task: dict[str, Any]) -> str | None:
    """The header of the request that started the task."""
    tag = (task.get("headers") or {}).get(TAG_HEADER)
    return None if tag is None else str(tag)
