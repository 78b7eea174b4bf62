"""The report of a bench: a table of medians, the laws with whether they hold, and the same as JSON and as a chart.

Ratios are taken within a repeat, where the two measurements stand next to each other, and then the median: a machine
that is slow for a while is slow for both.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from bench.charts import Bar, Group, Track, chart
from bench.contenders import BARE, BARE_RSGI, ROOT, WATCHWORD
from bench.load import CONNECTIONS, Measured

PACKAGES = ("watchword", "granian", "uvloop", "apsw", "asyncpg", "graphql-core")
COLUMNS = ("per_second", "cpu_us", "p50_ms", "p99_ms")

Key = tuple[str, str, int | None]
"""Case, contender, and how many tokens its store has."""


@dataclass(slots=True)
class Results:
    runs: dict[Key, list[Measured]] = field(default_factory=dict)

    def add(self, key: Key, measured: Measured) -> None:
        self.runs.setdefault(key, []).append(measured)

    def shares(self, key: Key, of: str = "per_second") -> list[float]:
        """How fast it is in each repeat, of the bare answer: by the rate, or by the processor time. Empty without
        one, and for what is no server.
        """
        bare = (key[0], BARE, None)
        is_server = key[2] is not None or key[1] in {BARE, BARE_RSGI}
        return self.ratios(key, bare, of) if is_server and bare in self.runs else []

    def share(self, key: Key, of: str = "per_second") -> float | None:
        shares = self.shares(key, of)
        return median(shares) if shares else None

    def ratios(self, over: Key, under: Key, of: str = "per_second") -> list[float]:
        """How many times as fast as the other, in each repeat; by the processor only where both tell it."""
        pairs = [(getattr(a, of), getattr(b, of)) for a, b in zip(self.runs[over], self.runs[under], strict=True)]
        if of == "cpu_us":
            return [b / a for a, b in pairs if a and b]
        return [a / b for a, b in pairs]

    def sizes(self, case: str, name: str) -> list[int]:
        return sorted(size for who, server, size in self.runs if (who, server) == (case, name) and size is not None)


@dataclass(frozen=True, slots=True)
class Law:
    """A number that must not be less than `least`, or must stay under `most`; without either it is only told. A ratio
    is judged by processor time where that was measured.
    """

    name: str
    each: Sequence[float]
    """In every repeat."""
    cpu: Sequence[float] = ()
    """The same ratio by processor time, where that was measured."""
    least: float | None = None
    most: float | None = None
    unit: str = ""

    @property
    def value(self) -> float:
        return median(self.cpu or self.each)

    @property
    def holds(self) -> bool | None:
        if self.least is not None:
            return self.value >= self.least
        return self.value < self.most if self.most is not None else None

    @property
    def word(self) -> str:
        return {True: "holds", False: "FAILS", None: "told"}[self.holds]

    @property
    def bar(self) -> str:
        if self.least is not None:
            return f"at least {self.least:g}{self.unit}"
        return f"under {self.most:g}{self.unit}" if self.most is not None else ""

    @property
    def sentence(self) -> str:
        judged = self.cpu or self.each
        spread = f" ({min(judged):.2f} to {max(judged):.2f})" if len(judged) > 1 else ""
        rate = f", by the rate {median(self.each):.2f}" if self.cpu else ""
        bar = f"; the bar: {self.bar}" if self.bar else ""
        return f"{self.name}: {self.value:.2f}{self.unit}{spread}{rate}{bar}"


def ratio(results: Results, name: str, over: Key, under: Key, *, least: float | None = None) -> Law:
    return Law(name, results.ratios(over, under), results.ratios(over, under, "cpu_us"), least)


def cost(results: Results, name: str, key: Key, most: float) -> Law:
    """The processor time of a request, over all processes."""
    return Law(name, [one.cpu_us for one in results.runs[key]], most=most, unit=" µs")


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    """Of its files."""
    title: str
    laws: Sequence[Law]
    results: Results = field(default_factory=Results)
    notes: Sequence[str] = ()
    """What a reader of the numbers must know."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else is kept as JSON."""


def finish(report: Report, asked: argparse.Namespace) -> None:
    """Print it and keep it; ends with 1 when it was asked to be strict and a law does not hold."""
    if report.results.runs:
        print(table(report.results))
    print("\n" + law_lines(report.laws) + "".join(f"\n{note}" for note in report.notes))
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = kept_of(report, asked)
    file: Path = asked.out / f"{report.name}.json"
    file.write_text(json.dumps(kept, indent=1) + "\n")
    file.with_suffix(".svg").write_text(drawn(report, kept["at"]))
    print(f"\nKept in {file} and {file.with_suffix('.svg').name}")
    if asked.strict and any(law.holds is False for law in report.laws):
        sys.exit(1)


def table(results: Results) -> str:
    names = "".join(f"{name:>9}" for name in ("req/s", "of bare", "cpu us", "p50 ms", "p99 ms"))
    width = max(len(name) for _, name, _ in results.runs) + 2
    lines = [f"{'':<16}{'':<{width}}{'tokens':>11}{names}   each repeat"]
    before = None
    for key, measured in results.runs.items():
        case, name, size = key
        share = results.share(key)
        each = " ".join(f"{one.per_second:,.0f}" for one in measured)
        rate, cpu, p50, p99 = (median(getattr(one, of) for one in measured) for of in COLUMNS)
        lines.append(
            f"{case if case != before else '':<16}{name:<{width}}{'' if size is None else f'{size:,}':>11}"
            f"{rate:>9,.0f}{'-' if share is None else f'{share:.2f}':>9}"
            f"{cpu:>9,.0f}{p50:>9.2f}{p99:>9.2f}   {each}"
        )
        before = case
    return "\n".join(lines)


def law_lines(laws: Sequence[Law]) -> str:
    return "\n".join(f"  {law.word}  {law.sentence}" for law in laws)


def kept_of(report: Report, asked: argparse.Namespace) -> dict[str, Any]:
    told = {name: value for name, value in vars(asked).items() if isinstance(value, int | float | str | list | tuple)}
    return {
        "name": report.name,
        "title": report.title,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "packages": {name: version(name) for name in PACKAGES},
        "connections": CONNECTIONS,
        "asked": told,
        "rows": [
            {
                "case": key[0],
                "contender": key[1],
                "tokens": key[2],
                "of_bare": report.results.shares(key),
                "measured": [asdict(one) for one in measured],
            }
            for key, measured in report.results.runs.items()
        ],
        "laws": [
            {
                "name": law.name,
                "each": list(law.each),
                "cpu": list(law.cpu),
                "value": law.value,
                "least": law.least,
                "most": law.most,
                "unit": law.unit,
                "holds": law.holds,
                "sentence": law.sentence,
            }
            for law in report.laws
        ],
        "notes": list(report.notes),
        **report.more,
    }


def _commit() -> str:
    """Which version it was; empty where there is no history."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def drawn(report: Report, at: str) -> str:
    groups: dict[str, Group] = {}
    for key, measured in report.results.runs.items():
        case, name, size = key
        rates = [one.per_second for one in measured]
        share = report.results.share(key)
        label = name if size is None else f"{name}, {size:,} tokens"
        said = f"{median(rates):,.0f}/s" + ("" if share is None or name == BARE else f" · {share:.2f} of bare")
        kind = "bare" if name.startswith(BARE) else "ours" if name.startswith(WATCHWORD) else "other"
        group = groups.setdefault(case, Group(case, []))
        group.bars.append(Bar(label, median(rates), min(rates), max(rates), said, kind))
    tracks = [
        Track(law.name, law.value, law.least if law.least is not None else law.most, law.holds, law.unit)
        for law in report.laws
    ]
    what = "Requests a second, medians of repeats, with minimum and maximum; " if groups else ""
    return chart(report.title, f"{what}{at[:10]}", list(groups.values()), tracks)
