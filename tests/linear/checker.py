"""Linearizability checker: is there one order of the calls, each within its start and end, that the sequential model
explains? Each actor is checked separately: their states are independent, so orders of the parts give an order of the
whole. The checker walks through starts and ends with every possible *configuration*: a state, and which running calls
have taken effect. A write takes effect only when the end of a call needs it, a read as soon as the state fits; neither
loses an order (Wing and Gong's search, as by Lowe). If an end leaves no configuration, no order exists, and that call
is reported. Unanswered writes run forever."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.linear.history import NEVER, Call, History
from tests.linear.model import State, Step, conflict, steps_of
from tests.linear.rules import broken_rules

Done = frozenset[int]
Configuration = tuple[State, Done, Done]
"""A state; the changes under way that are in it; the looks under way that have been satisfied."""

TOO_MANY = 200_000
NO_ORDER = "no order of the calls explains"


@dataclass(frozen=True, slots=True)
class Violation:
    law: str
    calls: tuple[Call, ...]
    """The call that cannot be explained, then those that it cannot be explained with."""

    def told(self, zero: int) -> str:
        return "\n".join([f"{self.law}:", *(f"  {call.told(zero)}" for call in self.calls)])


class Undecided(Exception):
    """Too many orders are possible; the search was given up."""


def judge(history: History) -> list[Violation]:
    """The calls that no order explains; if a simple rule is broken, that rule."""
    objections = [Violation(law, calls) for law, calls in broken_rules(history)]
    for calls in history.by_actor().values():
        found = unexplained(calls)
        if found is not None:
            objections.append(Violation(NO_ORDER, found))
    return objections


def report(history: History, objections: Iterable[Violation], most: int = 5) -> str:
    told = [objection.told(history.zero) for objection in objections]
    return "\n".join([f"{len(told)} objections to {len(history)} calls", *told[:most]])


def unexplained(calls: Iterable[Call]) -> tuple[Call, ...] | None:
    """The first call, in order of ends, that leaves no order, with the related calls around it."""
    steps = steps_of(calls)
    search = _Search(steps)
    failed = search.run()
    if failed is None:
        return None
    at = steps[failed]
    return (at.call, *_around(steps, at))


def _around(steps: list[Step], at: Step, most: int = 12) -> Iterator[Call]:
    """The writes running with it and the last before it, and the reads since those began."""
    mine = at.read_keys() | at.write_keys()
    before = [step for step in steps if step.call.start <= at.end and step is not at]
    changes = sorted((s for s in before if mine & s.write_keys()), key=lambda s: (-s.end, -s.call.start))[: most // 2]
    since = min((s.call.start for s in changes if s.end >= at.call.start), default=at.call.start)
    looks = (s for s in before if s.end >= since and not s.writes and mine & s.read_keys())
    told = {id(at.call)}
    for step in [*changes, *sorted(looks, key=lambda s: -s.end)]:
        if id(step.call) not in told and len(told) <= most:
            told.add(id(step.call))
            yield step.call


class _Search:
    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        self._writes = [step.writes for step in steps]
        self._configurations: set[Configuration] = {(State(), frozenset(), frozenset())}
        self._under_way: dict[int, Step] = {}
        self._conflicts: dict[tuple[int, int], bool] = {}

    def run(self) -> int | None:
        """The step whose end leaves no configuration, if any."""
        # At equal times starts go first: touching calls count as overlapping.
        moments = sorted(
            moment
            for number, step in enumerate(self._steps)
            for moment in ((step.call.start, 0, number), (step.end, 1, number))
            if moment[0] != NEVER
        )
        for _, ends, number in moments:
            if not ends:
                self._begin(number)
            elif not self._finish(number):
                return number
        return None

    def _begin(self, number: int) -> None:
        self._under_way[number] = step = self._steps[number]
        if not self._writes[number]:
            self._configurations = {
                (state, done, seen | {number}) if step.after(state) is not None else (state, done, seen)
                for state, done, seen in self._configurations
            }

    def _finish(self, number: int) -> bool:
        left: set[Configuration] = set()
        related: list[int] | None = None
        for configuration in self._configurations:
            state, done, seen = configuration
            if number in seen or number in done:
                left.add((state, done - {number}, seen - {number}))
            else:
                related = self._related(number) if related is None else related
                left.update(self._until(configuration, number, related))
                if len(left) > TOO_MANY:
                    raise Undecided(f"more than {TOO_MANY:,} configurations")
        del self._under_way[number]
        self._configurations = _best(left)
        return bool(left)

    def _until(self, begun: Configuration, number: int, related: list[int]) -> Iterator[Configuration]:
        """Every configuration in which this step has just taken effect, by way of related running writes."""
        waiting, known = [begun], {begun}
        looks = [one for one in self._under_way if not self._writes[one]]
        while waiting:
            state, done, seen = waiting.pop()
            for one in related:
                new = None if one in done else self._steps[one].after(state)
                if new is None:
                    continue
                now_seen = seen | {
                    look for look in looks if look not in seen and self._steps[look].after(new) is not None
                }
                if one == number or number in now_seen:
                    yield new, (done | {one}) - {number}, now_seen - {number}
                    continue
                reached = (new, done | {one}, now_seen)
                if reached not in known:
                    known.add(reached)
                    waiting.append(reached)
                    if len(known) > TOO_MANY:
                        raise Undecided(f"more than {TOO_MANY:,} configurations")

    def _related(self, number: int) -> list[int]:
        """The running writes whose order with this step can matter, also by way of others."""
        found, waiting = {number}, deque([number])
        while waiting:
            one = waiting.popleft()
            for other in self._under_way:
                if other not in found and self._in_conflict(one, other):
                    found.add(other)
                    waiting.append(other)
        return [one for one in found if self._writes[one]]

    def _in_conflict(self, one: int, other: int) -> bool:
        pair = (one, other) if one < other else (other, one)
        known = self._conflicts.get(pair)
        if known is None:
            known = self._conflicts[pair] = conflict(self._steps[one], self._steps[other])
        return known


def _best(found: set[Configuration]) -> set[Configuration]:
    """Drop configurations that differ from another only by fewer satisfied reads."""
    if len(found) < 2:
        return found
    by_state: dict[tuple[State, Done], list[Done]] = {}
    for state, done, seen in found:
        by_state.setdefault((state, done), []).append(seen)
    return {
        (state, done, seen)
        for (state, done), many in by_state.items()
        for seen in many
        if not any(seen < other for other in many)
    }
