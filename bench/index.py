"""`python -m bench index`: what a truncation on the embedded search index takes from those who verify tokens.

One run fills an index and truncates half of it by a retention rule, each time on a fresh copy of the files. While the
truncation runs, `wrk` verifies tokens in turns: the engine's process is stopped, works on the server's core, or works
on any core. Turns follow each other closely, so that a machine that is slow for a while is slow for all.
"""

import argparse
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import VERIFY, case
from bench.contenders import WATCHWORD, Contender
from bench.documents import NAME, SERIES, fill_index, middle
from bench.load import Measured, measure, prove
from bench.population import populate
from bench.report import Law, Report, finish
from bench.rounds import keeping, progress, ready
from bench.watching import MIB, EngineProcess, IndexFile, Most
from watchword.settings import load

DOCUMENTS = 10_000_000
TOKENS = 10_000
LEAST_SHARE = 0.8
"""Verification while an index is truncated at the default rate, of its rate while nothing is done there."""
MOST_MIB = 300
HELD, SAME_CORE, ANY_CORE = "held", "same core", "any core"
PLACES = (HELD, SAME_CORE, ANY_CORE)
SET_RULE = "mutation ($input: RetentionRuleInput!) { setRetentionRule(input: $input) { series } }"
RUN_RULE = "mutation ($series: String!) { runRetention(series: $series) { plan { endTimeMillis } operation { id } } }"
OPERATION = "query ($id: String!) { operation(id: $id) { state error attempts postCheck { passed rows rowsLeft } } }"


@dataclass(slots=True)
class Turns:
    """Verifications and rows a second, by where the engine's process was."""

    verify: dict[str, list[Measured]] = field(default_factory=lambda: {place: [] for place in PLACES})
    rows: dict[str, list[float]] = field(default_factory=lambda: {place: [] for place in PLACES})

    def shares(self, place: str, of: str = "per_second") -> list[float]:
        """Of what it is while the engine is held, round by round: by the rate, or by the processor time."""
        pairs = zip(self.verify[place], self.verify[HELD], strict=True)
        both = [(getattr(one, of), getattr(held, of)) for one, held in pairs]
        return [one / held if of == "per_second" else held / one for one, held in both]

    def share(self, place: str, of: str = "per_second") -> float:
        return median(self.shares(place, of))


@dataclass(slots=True)
class Truncated:
    """One truncation, from its beginning to its end."""

    rate: int
    turns: Turns = field(default_factory=Turns)
    rows_alone: float = 0.0
    """A second, while nobody verifies."""
    seconds: float = 0.0
    tidying: Turns = field(default_factory=Turns)
    """While space is given back after the end."""
    tidy_seconds: float = 0.0
    resident: dict[str, float] = field(default_factory=dict)
    mib_before: float = 0.0
    mib_at_most: float = 0.0
    mib_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Bench:
    asked: argparse.Namespace
    folder: Path
    index: Path
    documents: int
    until: int

    def truncated(self, rate: int, *, whole: bool) -> Truncated:
        """With `whole` to its end and to the last page given back; otherwise for a while, alone and under load."""
        result = Truncated(rate)
        folder = self.folder / f"rate-{rate}"
        population = populate(folder / "data", TOKENS)
        file = IndexFile(folder / "data" / "index.db")
        file.copy_from(self.index)
        settings = {"index_rate": str(rate)}
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder)
            server = stack.enter_context(Contender(WATCHWORD, folder, population, population.size, settings))
            engine = EngineProcess(server)
            self._warm(server)
            result.mib_before = file.size() / MIB
            most = stack.enter_context(Most(server, file))
            began, task = time.monotonic(), self._begin(server)
            _wait(lambda: file.rows_done() > 0, "the truncation begins")
            result.rows_alone = self._alone(file)
            self._take_turns(server, engine, file, result.turns, file.has_tasks)
            if whole:
                if not result.turns.verify[HELD]:
                    raise SystemExit("The truncation was over before a round was: more --documents, or a lower --rate.")
                self._to_its_end(server, engine, file, task, began, result)
            result.resident, result.mib_at_most = most.resident, most.disk
        return result

    def _to_its_end(
        self, server: Contender, engine: EngineProcess, file: IndexFile, task: str, began: float, result: Truncated
    ) -> None:
        operation: Any = {}

        def over() -> bool:
            operation.update(server.ask(OPERATION, {"id": task})["operation"])
            return operation["state"] in {"DONE", "FAILED", "CANCELLED"}

        _wait(over, "the truncation ends", pause=0.5)
        result.seconds = time.monotonic() - began
        stays = self.documents - self.documents // 2
        rows = file.rows(NAME)
        if operation["state"] != "DONE" or not operation["postCheck"]["passed"] or rows != stays:
            raise SystemExit(f"The truncation did not end well, with {rows:,} of {stays:,} rows: {operation}")
        ended = time.monotonic()
        self._take_turns(server, engine, file, result.tidying, lambda: not file.is_compacted())
        _wait(file.is_compacted, "the space is given back", pause=0.5)
        result.tidy_seconds = time.monotonic() - ended
        result.mib_after = file.size() / MIB

    def _begin(self, server: Contender) -> str:
        """By a retention rule that leaves half of the rows."""
        half = self.documents - self.documents // 2
        rule = {"series": SERIES, "keep": "P1D", "maxRows": half, "atMost": "100%", "mode": "ENFORCE"}
        server.ask(SET_RULE, {"input": rule})
        run = server.ask(RUN_RULE, {"series": SERIES})["runRetention"]
        if run["operation"] is None or run["plan"]["endTimeMillis"] != self.until:
            raise SystemExit(f"The rule does not remove the older half: {run}")
        task: str = run["operation"]["id"]
        return task

    def _warm(self, server: Contender) -> None:
        prove(server, case(VERIFY))
        for _ in range(2):
            measure(server, case(VERIFY), weight=0, seconds=1)

    def _take_turns(
        self, server: Contender, engine: EngineProcess, file: IndexFile, turns: Turns, goes_on: Callable[[], bool]
    ) -> None:
        """Rounds of one turn each, in changing order; one that was not over before the work was does not count."""
        for number in range(self.asked.rounds):
            verify: dict[str, Measured] = {}
            rows: dict[str, float] = {}
            for place in PLACES if number % 2 == 0 else PLACES[::-1]:
                before, began = file.rows_done(), time.monotonic()
                verify[place] = self._turn(server, engine, place)
                rows[place] = (file.rows_done() - before) / (time.monotonic() - began)
            if not goes_on():
                return
            for place in PLACES:
                turns.verify[place].append(verify[place])
                turns.rows[place].append(rows[place])
            said = ", ".join(f"{place} {verify[place].per_second:,.0f} ({rows[place]:,.0f} rows)" for place in PLACES)
            progress(f"  verifications a second: {said}")

    def _turn(self, server: Contender, engine: EngineProcess, place: str) -> Measured:
        if place == HELD:
            with engine.held():
                return measure(server, case(VERIFY), weight=0, seconds=self.asked.seconds)
        engine.on_the_servers_core() if place == SAME_CORE else engine.on_any_core()
        try:
            return measure(server, case(VERIFY), weight=0, seconds=self.asked.seconds)
        finally:
            engine.on_any_core()

    def _alone(self, file: IndexFile) -> float:
        before, began = file.rows_done(), time.monotonic()
        time.sleep(self.asked.seconds * 2)
        return (file.rows_done() - before) / (time.monotonic() - began)


def main() -> None:
    asked = _arguments()
    with ready(asked) as folder:
        results, documents, fill_seconds = run(asked, folder)
    more = {
        "documents": documents,
        "fill_seconds": fill_seconds,
        "truncations": [asdict(one) for one in results],
    }
    laws = verdicts(results, asked.rate)
    finish(Report("index", "Verification beside a truncation of the embedded index", laws, more=more), asked)


def _arguments() -> argparse.Namespace:
    rate = load({}, {}).index_rate
    parser = argparse.ArgumentParser(prog="python -m bench index", description="Verify while an index is truncated.")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="in the index, half of which go")
    parser.add_argument("--filled", type=Path, help="the file of an index: made if it is not there, and left as it is")
    parser.add_argument("--rate", type=int, default=rate, help="rows a second; the default is the service's")
    parser.add_argument("--rounds", type=int, default=20, help="of three turns")
    parser.add_argument("--seconds", type=int, default=2, help="of one turn")
    parser.add_argument("--throttled-only", action="store_true", help="leave out the truncations without a limit")
    keeping(parser)
    return parser.parse_args()


def run(asked: argparse.Namespace, folder: Path) -> tuple[list[Truncated], int, float]:
    """What was measured, on how many rows, and how long they took to fill in."""
    index = asked.filled or folder / "index.db"
    began = time.monotonic()
    if not index.exists():
        progress(f"filling an index with {asked.documents:,} rows")
        fill_index(index, asked.documents, now=time.time_ns() // 1_000_000)
    seconds = time.monotonic() - began
    bench = Bench(asked, folder, index, *middle(index))
    results = []
    for rate in (asked.rate,) if asked.throttled_only else (asked.rate, 0):
        progress(f"{rate or 'any number of'} rows a second")
        results.append(bench.truncated(rate, whole=rate == asked.rate))
        print(shown(results[-1]), flush=True)
    return results, bench.documents, seconds


def shown(one: Truncated) -> str:
    """Medians of verifications and of rows a second; shares within a round."""
    lines = [f"Half of the rows, {f'{one.rate:,} rows a second' if one.rate else 'no limit'}"]
    lines.append(f"  nobody verifies: {one.rows_alone:,.0f} rows a second")
    lines += _lines("truncating", one.turns) + _lines("giving space back", one.tidying)
    if one.seconds:
        lines.append(f"  {one.seconds:,.0f} s to its end, then {one.tidy_seconds:,.0f} s to give space back")
        lines.append(f"  MiB on disk: {one.mib_before:,.0f}, at most {one.mib_at_most:,.0f}, then {one.mib_after:,.0f}")
    lines.append(f"  MiB resident at most: {', '.join(f'{who} {mib:.0f}' for who, mib in one.resident.items())}")
    return "\n".join(lines)


def _lines(when: str, turns: Turns) -> list[str]:
    if not turns.verify[HELD]:
        return []
    lines = []
    for place in PLACES:
        rate, rows = median(one.per_second for one in turns.verify[place]), median(turns.rows[place])
        shares = (
            "" if place == HELD else f"  {turns.share(place):.2f}, by the processor {turns.share(place, 'cpu_us'):.2f}"
        )
        lines.append(f"  {when}, engine {place:<10}{rate:>9,.0f}{rows:>9,.0f} rows{shares}")
    return lines


def verdicts(results: list[Truncated], rate: int) -> list[Law]:
    said = []
    for one in (one for one in results if one.rate == rate):
        for when, turns in (("truncating", one.turns), ("giving space back", one.tidying)):
            for place in (SAME_CORE, ANY_CORE) if turns.verify[HELD] else ():
                shares = (turns.shares(place), turns.shares(place, "cpu_us"))
                said.append(Law(f"{when}, engine on {place}: verify ÷ held", *shares, least=LEAST_SHARE))
        said.append(Law("all processes together", [one.resident["together"]], most=MOST_MIB, unit=" MiB"))
    return said


def _wait(true: Callable[[], bool], what: str, *, pause: float = 0.02, seconds: float = 7_200) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"Still not so after {seconds:g} seconds: {what}.")
        time.sleep(pause)


if __name__ == "__main__":
    main()
