"""What tasks do, a batch at a time.

A batch is looked for first, without the write lock; then it is done, and how far that has come is noted, in one
transaction. Between the two others may write: a row is meant by its place, which it has only as long as nobody
changes it, so that a row that has changed is left out and never overwritten or lost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import apsw
import orjson

from watchword.engines.embedded.documents import LAST_PLACE, STAYS, place
from watchword.engines.embedded.tasks import Kind, Order, Progress

CHUNK, SPAN, MANY = 50_000, 500, 1_000
"""Rows whose number is compared at once, and where that differs; above the last, ids are compared in batches."""

Time = float | int | None
Spot = tuple[int, Time]


class Batch(NamedTuple):
    """What was found to be done next."""

    places: list[int]
    seen: int
    """Rows that were looked at, by which a task is throttled."""
    stage: int
    at_time: Time
    at_place: int
    up_to: Time
    last: bool


@dataclass(frozen=True, slots=True)
class Worker:
    count: Callable[[apsw.Connection, Order], int]
    look: Callable[[apsw.Connection, Order, Progress, int], Batch]
    do: Callable[[apsw.Connection, Order, Progress, Batch], None]
    writes: Callable[[Order], int | None]
    """The index it changes."""


# Walking an index by time.


def _after(c: apsw.Connection, index: int, at: Time, after: int, up_to: Time, limit: int) -> list[Spot]:
    """The next rows by time and place. `at` None: those without a time. In two questions, because SQLite would answer
    the one about both by going through all rows of the same time again.
    """
    if at is None:
        where = "time IS NULL AND place > :after ORDER BY place"
    else:
        where = "time = :at AND place > :after ORDER BY place"
    bound = {"index": index, "at": at, "after": after, "up_to": up_to, "limit": limit}
    rows: list[Spot] = _spots(c, where, bound)
    if at is None or len(rows) == limit:
        return rows
    rest = _spots(c, "time > :at AND time <= :up_to ORDER BY time, place", {**bound, "limit": limit - len(rows)})
    return rows + rest


def _spots(c: apsw.Connection, where: str, bound: dict[str, Time]) -> list[Spot]:
    found: list[Any] = c.execute(
        f"SELECT place, time FROM documents WHERE index_number = :index AND {where} LIMIT :limit",  # noqa: S608 - literal
        bound,
    ).fetchall()
    return found


def _count(c: apsw.Connection, where: str, **bound: Time) -> int:
    count: int = c.execute(f"SELECT count(*) FROM documents WHERE {where}", bound).get  # noqa: S608 - literal
    return count


def _old(c: apsw.Connection, order: Order) -> int:
    return _count(c, "index_number = :index AND time <= :until", index=order.source, until=order.until)


def _since(c: apsw.Connection, order: Order, after: int, up_to: int, which: str) -> int:
    """Rows of the source that were written after one number and up to another."""
    bound = {"after": place(order.source, after), "mark": place(order.source, up_to), "until": order.until}
    return _count(c, f"place > :after AND place <= :mark AND {which}", **bound)


# Deleting what is old.


def _count_old(c: apsw.Connection, order: Order) -> int:
    return _old(c, order) - _since(c, order, order.mark, LAST_PLACE, "time <= :until")


def _look_for_old(c: apsw.Connection, order: Order, progress: Progress, limit: int) -> Batch:
    at = -math.inf if progress.at_time is None else progress.at_time
    spots = _after(c, order.source, at, progress.at_place, order.until, limit)
    return _batch(order, spots, limit, 0, at, progress.at_place)


def _batch(order: Order, spots: list[Spot], limit: int, stage: int, at: Time, after: int, *, end: bool = True) -> Batch:
    """Rows that came after the task was asked for are passed over."""
    mark = place(order.source, order.mark)
    if spots:
        after, at = spots[-1]
    places = [one for one, _ in spots if one <= mark]
    return Batch(places, len(spots), stage, at, after, None, end and len(spots) < limit)


def _delete(c: apsw.Connection, order: Order, progress: Progress, batch: Batch) -> None:
    progress.deleted += _remove(c, batch.places)
    if batch.last:
        _count_conflicts(progress)


def _remove(c: apsw.Connection, places: list[int]) -> int:
    c.execute("DELETE FROM documents WHERE place IN (SELECT value FROM json_each(?))", (_json(places),))
    return c.changes()


def _json(places: list[int]) -> str:
    return orjson.dumps(places).decode()


def _count_conflicts(progress: Progress) -> None:
    """What was counted at the beginning and not met since has changed meanwhile."""
    progress.version_conflicts += max(0, (progress.total or 0) - progress.done)


# Copying what stays.

_TIMELESS, _TIMED = 0, 1


def _count_staying(c: apsw.Connection, order: Order) -> int:
    rows: int = c.execute("SELECT rows FROM indices WHERE number = ?", (order.source,)).get
    return rows - _old(c, order) - _since(c, order, order.mark, LAST_PLACE, STAYS)


def _look_for_staying(c: apsw.Connection, order: Order, progress: Progress, limit: int) -> Batch:
    stage, at, after = progress.stage, progress.at_time, progress.at_place
    if stage == _TIMELESS:
        spots = _after(c, order.source, None, after, None, limit)
        if spots:
            return _batch(order, spots, limit, stage, None, after, end=False)
        stage, at, after = _TIMED, order.until, place(order.source, LAST_PLACE)
    spots = _after(c, order.source, at, after, math.inf, limit)
    return _batch(order, spots, limit, stage, at, after)


def _copy(c: apsw.Connection, order: Order, progress: Progress, batch: Batch) -> None:
    rivals = _rivals(c, order, batch.places)
    beaten = [theirs for theirs, their_version, version in rivals if their_version < version]
    progress.version_conflicts += len(rivals) - len(beaten)
    _take_over(c, order, progress, batch.places, beaten)
    if batch.last:
        _count_conflicts(progress)


def _rivals(c: apsw.Connection, order: Order, places: list[int]) -> list[tuple[int, int, int]]:
    """Rows of the target that have the ids of these: their place, their version, and the version of ours."""
    found: list[Any] = c.execute(
        """SELECT t.place, t.version, s.version FROM json_each(?) j CROSS JOIN documents s ON s.place = j.value
           CROSS JOIN documents t ON t.index_number = ? AND t.id = s.id""",
        (_json(places), order.target),
    ).fetchall()
    return found


def _take_over(c: apsw.Connection, order: Order, progress: Progress, places: list[int], beaten: list[int]) -> None:
    assert order.target is not None
    if beaten:
        _remove(c, beaten)
    last: int = c.execute("SELECT last FROM indices WHERE number = ?", (order.target,)).get
    c.execute(
        """INSERT INTO documents (place, index_number, id, version, time, source)
           SELECT :after + j.key, :target, s.id, s.version, s.time, s.source
           FROM json_each(:places) j CROSS JOIN documents s ON s.place = j.value
           WHERE NOT EXISTS (SELECT 1 FROM documents t WHERE t.index_number = :target AND t.id = s.id)""",
        {"after": place(order.target, last + 1), "target": order.target, "places": _json(places)},
    )
    progress.created += c.changes() - len(beaten)
    progress.updated += len(beaten)
    c.execute("UPDATE indices SET last = last + ? WHERE number = ?", (len(places), order.target))


# Catching up: everything that was written after a mark is newer than what was copied by then.


def _count_newer(c: apsw.Connection, order: Order) -> int:
    return _since(c, order, order.since, order.mark, STAYS)


def _look_for_newer(c: apsw.Connection, order: Order, progress: Progress, limit: int) -> Batch:
    after = max(progress.at_place, place(order.source, order.since))
    found: list[Any] = c.execute(
        f"SELECT place, {STAYS} FROM documents WHERE place > :after AND place <= :mark ORDER BY place LIMIT :limit",  # noqa: S608 - literal
        {"after": after, "mark": place(order.source, order.mark), "until": order.until, "limit": limit},
    ).fetchall()
    places = [one for one, stays in found if stays]
    return Batch(places, len(found), 0, None, found[-1][0] if found else after, None, len(found) < limit)


def _catch_up(c: apsw.Connection, order: Order, progress: Progress, batch: Batch) -> None:
    _take_over(c, order, progress, batch.places, [theirs for theirs, _, _ in _rivals(c, order, batch.places)])
    if batch.last:
        # What has changed meanwhile is left to the next one: it is no conflict.
        progress.noops += max(0, (progress.total or 0) - progress.done)


# Removing from a copy what the source does not hold among what stays. Where both hold as many rows of a stretch of
# time, nothing is too much there, because the copy holds everything that stays; elsewhere ids are compared.

_FIRST, _COMPARE_TIMELESS, _STRETCH, _COMPARE = 0, 1, 2, 3

_BETWEEN = "index_number = :index AND time > :at AND time <= :up_to"
_HELD = f"""EXISTS (SELECT 1 FROM documents s WHERE s.index_number = :source AND s.id = documents.id
    AND {STAYS.replace("time", "s.time")})"""  # noqa: S608 - literal


def _count_target(c: apsw.Connection, order: Order) -> int:
    rows: int = c.execute("SELECT rows FROM indices WHERE number = ?", (order.target,)).get
    return rows


def _look_for_surplus(c: apsw.Connection, order: Order, progress: Progress, limit: int) -> Batch:
    assert order.target is not None
    after, at, up_to = progress.at_place, progress.at_time, progress.up_to
    if progress.stage == _FIRST:
        return _look_for_surplus_at_first(c, order, order.target, limit)
    if progress.stage == _STRETCH:
        return _look_at_stretch(c, order, order.target, at, limit)
    spots = _after(c, order.target, at, after, up_to, limit)
    places = [one for one, _ in spots]
    if len(spots) == limit:
        return Batch(places, len(spots), progress.stage, spots[-1][1], places[-1], up_to, last=False)
    at = order.until if progress.stage == _COMPARE_TIMELESS else up_to
    return Batch(places, len(spots), _STRETCH, at, 0, None, last=at == math.inf)


def _look_for_surplus_at_first(c: apsw.Connection, order: Order, target: int, limit: int) -> Batch:
    """Old rows, of which a copy has none; then whether as many have no time."""
    old = [one for one, _ in _after(c, target, -math.inf, 0, order.until, limit)]
    if old:
        return Batch(old, len(old), _FIRST, None, 0, None, last=False)
    timeless = "index_number = :index AND time IS NULL"
    ours, theirs = (_count(c, timeless, index=index) for index in (target, order.source))
    if ours == theirs:
        return Batch([], ours, _STRETCH, order.until, 0, None, last=False)
    return Batch([], 0, _COMPARE_TIMELESS, None, 0, None, last=False)


def _look_at_stretch(c: apsw.Connection, order: Order, target: int, at: Time, limit: int) -> Batch:
    end = _edge(c, target, at, CHUNK)
    ours, theirs = _counts(c, order, target, at, end)
    if ours == theirs:
        return Batch([], ours, _STRETCH, end, 0, None, last=end == math.inf)
    return _look_closely(c, order, target, at, end, limit)


def _look_closely(c: apsw.Connection, order: Order, target: int, at: Time, end: float, limit: int) -> Batch:
    """In shorter stretches, and by ids where they differ. Very many rows of one moment are gone through by a stage of
    their own.
    """
    surplus: list[int] = []
    seen = 0
    while at != end and len(surplus) < limit:
        up_to = min(end, _edge(c, target, at, SPAN))
        ours, theirs = _counts(c, order, target, at, up_to)
        if ours != theirs and ours > MANY:
            if seen:
                break
            return Batch([], 0, _COMPARE, at, place(target, LAST_PLACE), up_to, last=False)
        if ours != theirs:
            found: Any = c.execute(
                f"SELECT place FROM documents WHERE {_BETWEEN} AND NOT {_HELD}",  # noqa: S608 - literal
                {"index": target, "at": at, "up_to": up_to, "source": order.source, "until": order.until},
            )
            surplus += [one for (one,) in found]
        seen += ours
        at = up_to
    return Batch(surplus, seen, _STRETCH, at, 0, None, last=at == math.inf)


def _edge(c: apsw.Connection, index: int, at: Time, rows: int) -> float:
    """The time at which about so many rows have followed; never between two of the same time."""
    found = c.execute(
        "SELECT time FROM documents WHERE index_number = ? AND time > ? ORDER BY time LIMIT 1 OFFSET ?",
        (index, at, rows),
    ).get
    return math.inf if found is None else found


def _counts(c: apsw.Connection, order: Order, target: int, at: Time, up_to: Time) -> tuple[int, int]:
    """How many rows of this stretch the copy has, and the source."""
    return (
        _count(c, _BETWEEN, index=target, at=at, up_to=up_to),
        _count(c, _BETWEEN, index=order.source, at=at, up_to=up_to),
    )


def _remove_surplus(c: apsw.Connection, order: Order, progress: Progress, batch: Batch) -> None:
    if progress.stage == _FIRST:
        removed = _remove(c, batch.places)
    else:
        c.execute(
            f"DELETE FROM documents WHERE place IN (SELECT value FROM json_each(:places)) AND NOT {_HELD}",  # noqa: S608 - literal
            {"places": _json(batch.places), "source": order.source, "until": order.until},
        )
        removed = c.changes()
    progress.deleted += removed
    progress.noops += batch.seen - removed


def _source(order: Order) -> int | None:
    return order.source


def _target(order: Order) -> int | None:
    return order.target


WORKERS = {
    Kind.DELETE: Worker(_count_old, _look_for_old, _delete, _source),
    Kind.COPY: Worker(_count_staying, _look_for_staying, _copy, _target),
    Kind.CATCH_UP: Worker(_count_newer, _look_for_newer, _catch_up, _target),
    Kind.RECONCILE: Worker(_count_target, _look_for_surplus, _remove_surplus, _target),
}
