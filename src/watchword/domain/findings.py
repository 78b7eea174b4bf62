"""Findings: what a look at an installation shows, each with the way to mend it where something is to be mended."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    OK = "ok"
    WARN = "warn"
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    about: str
    what: str
    fix: str | None = None


def ok(about: str, what: str) -> Finding:
    return Finding(Level.OK, about, what)


def warn(about: str, what: str, fix: str) -> Finding:
    return Finding(Level.WARN, about, what, fix)


def bad(about: str, what: str, fix: str) -> Finding:
    return Finding(Level.BAD, about, what, fix)
