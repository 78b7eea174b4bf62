"""What `doctor` reports."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    OK = "ok"
    WARN = "warn"
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What `doctor` finds, and how to fix it."""

    level: Level
    about: str
    what: str
    fix: str | None = None


def ok(about: str, what: str) -> Diagnostic:
    return Diagnostic(Level.OK, about, what)


def warn(about: str, what: str, fix: str) -> Diagnostic:
    return Diagnostic(Level.WARN, about, what, fix)


def bad(about: str, what: str, fix: str) -> Diagnostic:
    return Diagnostic(Level.BAD, about, what, fix)
