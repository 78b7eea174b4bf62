"""What the cluster tells of a task, running or ended, in the words of the domain."""

from typing import Any

from watchword.domain.tasks import Counters, TaskId, TaskStatus
from watchword.engines.opensearch.refusals import told
from watchword.engines.opensearch.wire import TAG

_KINDS = ("/reindex", "/byquery")
_MOST_FAILURES = 10


def status_of(task: TaskId, answer: dict[str, Any]) -> TaskStatus | None:
    """None where it is a task of another kind, which has no such counters."""
    told_task = answer["task"]
    if not str(told_task["action"]).endswith(_KINDS):
        return None
    completed = bool(answer["completed"])
    response = answer.get("response") or {}
    status = told_task.get("status") or {}
    try:
        counters = Counters.read(status)
    except (KeyError, TypeError, ValueError):
        counters = Counters()  # it ended before it had any
    return TaskStatus(
        id=task,
        completed=completed,
        run_time_nanos=int(told_task["running_time_in_nanos"]),
        counters=counters,
        failures=_failures(response),
        error=_error(answer, status, response) if completed else None,
        tag=tag_of(told_task),
    )


def _error(answer: dict[str, Any], status: dict[str, Any], response: dict[str, Any]) -> str | None:
    error = answer.get("error")
    cancelled = "canceled" in status or "canceled" in response
    if cancelled or (isinstance(error, dict) and error.get("type") == "task_cancelled_exception"):
        return "cancelled"
    return None if error is None else told(error)


def _failures(response: dict[str, Any]) -> tuple[str, ...]:
    listed = response.get("failures") or []
    said = [f"{_where(one)}: {told(one.get('cause') or one.get('reason') or one)}" for one in listed[:_MOST_FAILURES]]
    if len(listed) > _MOST_FAILURES:
        said.append(f"and {len(listed) - _MOST_FAILURES} more like these")
    if response.get("timed_out"):
        said.append("The search timed out before all rows were seen.")
    return tuple(said)


def _where(failure: dict[str, Any]) -> str:
    return f"Row {failure['id']}" if "id" in failure else f"Shard {failure.get('shard', 'unknown')}"


def tag_of(told_task: dict[str, Any]) -> str | None:
    """Under which it was started: a header of the request, which the cluster keeps with the task."""
    tag = (told_task.get("headers") or {}).get(TAG)
    return None if tag is None else str(tag)
