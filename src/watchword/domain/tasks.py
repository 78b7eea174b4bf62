"""Tasks of the search index: ids of the form `<node>:<number>`, counters and status."""

import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from watchword.domain.errors import Fault, invalid

LARGEST = 2**63 - 1
CANCELLED = "cancelled"

# What search engines use. No slash, dot, star or comma, so that an id is never another address.
_NODE = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)

FORM = "task must be <node>:<number>, as truncateTimeseriesAspect gives it"


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    node: str
    number: int

    def __str__(self) -> str:
        return f"{self.node}:{self.number}"

    @classmethod
    def parse(cls, text: str, field_name: str = "task") -> Self:
        node, colon, number = text.partition(":")
        if not colon or not _NODE.fullmatch(node) or not _NUMBER.fullmatch(number) or int(number) > LARGEST:
            raise invalid(field_name, f"{FORM}: a node of letters, digits, - and _, and a number from 0 to {LARGEST}.")
        return cls(node, int(number))


def requested_task(task: object, node: object, number: object) -> TaskId:
    """The task named by `task`, by `nodeId` and `taskId`, or by both, which must agree."""
    if task is None and node is None and number is None:
        raise invalid("task", f"{FORM}; or give nodeId and taskId.")
    named = None
    if task is not None:
        if not isinstance(task, str):
            raise invalid("task", f"{FORM}, a string.")
        named = TaskId.parse(task)
    if node is None and number is None:
        assert named is not None
        return named
    parts = _from_parts(node, number)
    if named is not None and named != parts:
        raise invalid("task", "task and nodeId with taskId must name the same task; give one of the two forms.")
    return parts


def _from_parts(node: object, number: object) -> TaskId:
    if not isinstance(node, str):
        raise invalid("nodeId", "nodeId must be a string, and be given together with taskId.")
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise invalid("taskId", "taskId must be a whole number or a numeric string, and be given together with nodeId.")
    if not _NODE.fullmatch(node):
        raise invalid("nodeId", "nodeId must have 1 to 64 letters, digits, - and _.")
    try:
        return TaskId.parse(f"{node}:{number}")
    except Fault:
        raise invalid("taskId", f"taskId must be a whole number from 0 to {LARGEST}.") from None


@dataclass(frozen=True, slots=True)
class Counters:
    """Progress of a task, under the names that search engines use."""

    total: int = 0
    updated: int = 0
    created: int = 0
    deleted: int = 0
    batches: int = 0
    version_conflicts: int = 0
    noops: int = 0
    bulk_retries: int = 0
    search_retries: int = 0
    throttled_millis: int = 0
    requests_per_second: float = -1.0  # the limit in rows per second; -1: none
    throttled_until_millis: int = 0  # milliseconds left of the current pause

    @property
    def done(self) -> int:
        """Rows handled so far."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts

    def plus(self, later: "Counters") -> "Counters":
        """The sum; rate and pause are those of the later task."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        return Counters(
            **sums, requests_per_second=later.requests_per_second, throttled_until_millis=later.throttled_until_millis
        )

    def shown(self) -> dict[str, Any]:
        """The `status` object of the interface."""
        shown: dict[str, Any] = {}
        for name, value in asdict(self).items():
            kind, retries, _ = name.partition("_retries")
            if retries:
                shown.setdefault("retries", {})[kind] = value
            else:
                shown[name] = value
        return shown

    @classmethod
    def read(cls, status: dict[str, Any]) -> Self:
        """From a `status` object. KeyError, TypeError or ValueError where it is malformed."""
        flat = status | {f"{kind}_retries": number for kind, number in dict(status["retries"]).items()}
        numbers = {name: int(flat[name]) for name in (*_SUMMED, "throttled_until_millis")}
        return cls(**numbers, requests_per_second=float(flat["requests_per_second"]))


_SUMMED = tuple(f.name for f in fields(Counters) if f.name not in ("requests_per_second", "throttled_until_millis"))


@dataclass(frozen=True, slots=True)
class TaskStatus:
    id: TaskId
    completed: bool
    run_time_nanos: int
    counters: Counters
    failures: tuple[str, ...] = field(default=())  # rows that failed, or why the task ended early
    error: str | None = None  # why the whole task failed, or `cancelled`
    tag: str | None = None  # The tag it was started with. An engine may give the number of a lost task to another one.

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)

    def shown(self) -> dict[str, Any]:
        """The object of the interface, with `failures` and `error` where the task failed."""
        answer: dict[str, Any] = {
            "completed": self.completed,
            "taskId": str(self.id),
            "runTimeNanos": self.run_time_nanos,
            "status": self.counters.shown(),
        }
        if self.failed:
            answer["failures"] = list(self.failures)
        if self.error is not None:
            answer["error"] = self.error
        return answer

    def without_contents(self) -> "TaskStatus":
        """For callers who may not see rows: failures often quote one."""
        failures = (f"Failures: {len(self.failures)}",) if self.failures else ()
        error = self.error if self.error in (None, CANCELLED) else "failed"
        return replace(self, failures=failures, error=error)


def not_readable(task: TaskId) -> str:
    return f"Could not get task status for {task}"
