"""Which rows a retention rule removes, and when: a model in plain Python, for a rule whose schedule is hourly."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.backends import NOW
from tests.support.engines import Source

MINUTE = 60_000
HOUR = 60 * MINUTE
MOST_AHEAD = 5 * MINUTE


class Limits(NamedTuple):
    """Times in hours, sizes in kB."""

    keep: int
    remove_after: int | None
    max_rows: int | None
    max_size: int | None
    keep_last: int | None

    @property
    def age(self) -> int | None:
        return self.keep if self.remove_after is self.max_rows is self.max_size is None else self.remove_after

    def fields(self) -> dict[str, Any]:
        """As in a policy file."""
        return {
            "keep": f"PT{self.keep}H",
            "removeAfter": None if self.remove_after is None else f"PT{self.remove_after}H",
            "maxRows": self.max_rows,
            "maxSize": None if self.max_size is None else f"{self.max_size}kB",
            "keepLast": self.keep_last,
        }


@dataclass
class RetentionModel:
    limits: Limits
    time: int = NOW  # the true time
    ahead: int = 0  # by how much the clock of the host is ahead of it
    rows: dict[str, Source] = field(default_factory=dict)
    written: dict[str, Source] = field(default_factory=dict)  # all rows that ever were
    is_held: bool = False
    until: int | None = None  # of the operation that is planned
    _is_cancelled: bool = False
    _last_due: int = NOW
    _seen_ahead: int = 0
    _trusted_from: int = 0

    @property
    def clock(self) -> int:
        return self.time + self.ahead

    def write(self, rows: dict[str, Source]) -> None:
        self.rows |= rows
        self.written |= rows

    def hold(self) -> None:
        self.is_held = self._is_cancelled = True

    def tick(self, size_bytes: int) -> None:
        moved = self.ahead - self._seen_ahead
        if moved < 0 or moved > MOST_AHEAD:
            self._seen_ahead = self.ahead
        if moved > MOST_AHEAD:
            self._trusted_from = self.time + HOUR
        due = self.clock // HOUR * HOUR
        if self.time < self._trusted_from or due <= self._last_due:
            return
        until = self._end(size_bytes)
        if self.is_held or until is None or not self.going(until):
            self._last_due = due
        elif self.until is None:
            self._last_due, self.until, self._is_cancelled = due, until, False

    def work(self) -> None:
        """Carry out the operation that is planned."""
        if self.until is not None and not self._is_cancelled:
            for row_id in self.going(self.until):
                del self.rows[row_id]
        self.until = None

    def going(self, until: int) -> set[str]:
        return {
            row_id
            for row_id, row in self.rows.items()
            if row.get("timestampMillis", until + 1) <= until and not is_last(row, self.rows, self.limits.keep_last)
        }

    def _end(self, size_bytes: int) -> int | None:
        limits, total = self.limits, len(self.rows)
        latest = self.clock - limits.keep * HOUR
        ends = [] if limits.age is None else [self.clock - limits.age * HOUR]
        too_many = 0 if limits.max_rows is None else total - limits.max_rows
        most_bytes = size_bytes if limits.max_size is None else limits.max_size * 1_000
        while size_bytes and (total - max(too_many, 0)) * size_bytes > most_bytes * total:
            too_many = max(too_many, 0) + 1
        times = sorted(time for row in self.rows.values() if (time := row.get("timestampMillis", latest + 1)) <= latest)
        if too_many > 0 and times:
            ends.append(times[too_many - 1] if too_many <= len(times) else latest)
        return max(ends) if ends else None


def is_last(row: Source, rows: dict[str, Source], keep_last: int | None) -> bool:
    """Whether it is one of the last rows of its urn, which stay."""
    if keep_last is None or "urn" not in row:
        return False
    of_urn = [other["timestampMillis"] for other in rows.values() if other.get("urn") == row["urn"] and timed(other)]
    return len([time for time in of_urn if time > row["timestampMillis"]]) < keep_last


def timed(row: Source) -> bool:
    return "timestampMillis" in row
