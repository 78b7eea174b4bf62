"""Tasks: long work in the search index, told apart by `<node>:<number>` and watched by its counters."""

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from watchword.domain.errors import Fault, invalid

LARGEST = 2**63 - 1
CANCELLED = "cancelled"

# As search engines make them up, and nothing that could be another address: no slash, dot, star or comma.
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


def asked_task(task: object, node: object, number: object) -> TaskId:
    """The task that a request names in form A (`task`), form B (`nodeId` and `taskId`), or both, which must agree."""
    if task is None and node is None and number is None:
        raise invalid("task", f"{FORM}; or give nodeId and taskId.")
    whole = None
    if task is not None:
        if not isinstance(task, str):
            raise invalid("task", f"{FORM}, a string.")
        whole = TaskId.parse(task)
    if node is None and number is None:
        assert whole is not None
        return whole
    parts = _from_parts(node, number)
    if whole is not None and whole != parts:
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
    """What a task has done so far, in the words of search engines. Rows are what they call documents."""

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
    requests_per_second: float = -1.0
    """Rows a second it is held to; -1: as fast as it can."""
    throttled_until_millis: int = 0
    """How many milliseconds it still pauses."""

    @property
    def done(self) -> int:
        """Rows it is through with."""
        return self.updated + self.created + self.deleted + self.noops + self.version_conflicts

    def plus(self, later: "Counters") -> "Counters":
        """Both together; pace and pause are those of the later one."""
        sums = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        return Counters(
            **sums,
            requests_per_second=later.requests_per_second,
            throttled_until_millis=later.throttled_until_millis,
        )

    def shown(self) -> dict[str, Any]:
        """The given `status` object."""
        return {
            "total": self.total,
            "updated": self.updated,
            "created": self.created,
            "deleted": self.deleted,
            "batches": self.batches,
            "version_conflicts": self.version_conflicts,
            "noops": self.noops,
            "retries": {"bulk": self.bulk_retries, "search": self.search_retries},
            "throttled_millis": self.throttled_millis,
            "requests_per_second": self.requests_per_second,
            "throttled_until_millis": self.throttled_until_millis,
        }

    @classmethod
    def read(cls, status: dict[str, Any]) -> Self:
        """From the given `status` object, as search engines answer it too. KeyError or TypeError where it is none."""
        retries = status["retries"]
        whole = {name: int(status[name]) for name in _SUMMED if name not in ("bulk_retries", "search_retries")}
        return cls(
            **whole,
            bulk_retries=int(retries["bulk"]),
            search_retries=int(retries["search"]),
            requests_per_second=float(status["requests_per_second"]),
            throttled_until_millis=int(status["throttled_until_millis"]),
        )


_SUMMED = tuple(f.name for f in fields(Counters) if f.name not in ("requests_per_second", "throttled_until_millis"))


@dataclass(frozen=True, slots=True)
class TaskStatus:
    id: TaskId
    completed: bool
    run_time_nanos: int
    counters: Counters
    failures: tuple[str, ...] = field(default=())
    """Sentences about rows it could not do, or about why it ended early."""
    error: str | None = None
    """Why it failed as a whole, or that it was cancelled."""
    tag: str | None = None
    """Under which it was started. Engines give the number of a task that was lost to another one later."""

    @property
    def failed(self) -> bool:
        return self.error is not None or bool(self.failures)

    def shown(self) -> dict[str, Any]:
        """The given object; what failed says so in members of its own."""
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
        """For those who may not see what is in the index: how it failed often quotes a row."""
        failures = (f"Failures: {len(self.failures)}",) if self.failures else ()
        error = self.error if self.error in (None, CANCELLED) else "failed"
        return replace(self, failures=failures, error=error)


def not_readable(task: TaskId) -> str:
    return f"Could not get task status for {task}"
