"""Histories: requests, their start and end times and their answers. Times are of the machine's monotonic clock, shared
by all processes. Tokens and policies are named by the client, because the id of an unanswered create is unknown."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

NEVER = 2**63 - 1
"""The end of a call whose effect may still come."""


class Kind(StrEnum):
    CREATE = "create"
    REVOKE = "revoke"
    SUSPEND = "suspend"
    RESUME = "resume"
    GRANT = "grant"
    WITHDRAW = "withdraw"
    VERIFY = "verify"
    LIST = "list"
    PRIVILEGES = "privileges"

    @property
    def writes(self) -> bool:
        return self not in {Kind.VERIFY, Kind.LIST, Kind.PRIVILEGES}


class Verdict(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    """It may have taken effect, may take effect later, or never: the answer was lost."""
    NOTHING = "nothing"
    """It had no effect and says nothing about the state: a read without an answer, a write that was not tried."""


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    reason: str = ""
    names: frozenset[str] | None = None
    """Of a list: the tokens on the page, where it was asked for."""
    total: int | None = None
    granted: bool | None = None
    """Of privileges: whether the actor holds the minimum."""

    def __str__(self) -> str:
        told = [self.verdict.value]
        if self.reason:
            told.append(f"({self.reason})")
        if self.granted is not None:
            told.append("granted" if self.granted else "not granted")
        if self.total is not None:
            told.append(f"total {self.total}")
        if self.names is not None:
            told.append("[" + " ".join(sorted(self.names)) + "]")
        return " ".join(told)


OK = Outcome(Verdict.OK)
UNKNOWN = Outcome(Verdict.UNKNOWN)
NOTHING = Outcome(Verdict.NOTHING)


def refused(reason: str) -> Outcome:
    return Outcome(Verdict.REFUSED, reason)


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. `actor` is the subject; `name` the token or policy; `bearer` the name of the token used, None for
    an administrator."""

    kind: Kind
    actor: str
    outcome: Outcome
    start: int
    end: int
    name: str = ""
    bearer: str | None = None
    client: str = ""
    instance: str = ""

    def told(self, zero: int) -> str:
        """With times in seconds since `zero`."""
        what = f"{self.kind.value} {self.name or self.actor}"
        by = "" if self.bearer is None else f" with {self.bearer}"
        end = "…" if self.end == NEVER else f"{(self.end - zero) / 1e9:.6f}"
        return (
            f"{what}{by} by client {self.client} at {self.instance} "
            f"[{(self.start - zero) / 1e9:.6f}, {end}]: {self.outcome}"
        )


class History:
    """Calls recorded by any number of threads."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = list(calls)

    def note(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def __iter__(self) -> Iterator[Call]:
        with self._lock:
            return iter(list(self._calls))

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def zero(self) -> int:
        return min((call.start for call in self), default=0)

    def where(self, wanted: Callable[[Call], bool]) -> list[Call]:
        return [call for call in self if wanted(call)]

    def by_actor(self) -> dict[str, list[Call]]:
        parts: dict[str, list[Call]] = {}
        for call in self:
            parts.setdefault(call.actor, []).append(call)
        return parts

    def write(self, file: Path) -> None:
        """As JSON, one call per line."""
        file.write_text("".join(json.dumps(asdict(call), default=sorted) + "\n" for call in self))

    @classmethod
    def read(cls, file: Path) -> "History":
        return cls(_call(json.loads(line)) for line in file.read_text().splitlines())


def _call(told: dict[str, Any]) -> Call:
    outcome = told.pop("outcome")
    names = outcome.pop("names")
    verdict = Verdict(outcome.pop("verdict"))
    heard = Outcome(verdict, names=None if names is None else frozenset(names), **outcome)
    return Call(Kind(told.pop("kind")), outcome=heard, **told)
