"""The report: a table of medians, each with its share of the bare answer, and whether the two laws hold.

Shares and factors are taken within a repeat, where the two measurements stand next to each other, and then the median:
a machine that is slow for a while is slow for both.
"""

from dataclasses import dataclass, field
from statistics import median

from bench.load import Measured

LEAST_SHARE, LEAST_SHARE_OF_DATABASE = 0.5, 0.35
"""Verification, of the bare answer."""
MOST_GROWTH = 1.5
"""Any row on the largest store, times the smallest."""

Key = tuple[str, str, int | None]
"""Case, contender, and how many tokens its store has."""


@dataclass(slots=True)
class Results:
    runs: dict[Key, list[Measured]] = field(default_factory=dict)

    def add(self, key: Key, measured: Measured) -> None:
        self.runs.setdefault(key, []).append(measured)

    def share(self, key: Key, of: str = "per_second") -> float | None:
        """How fast it is, of the bare answer on the same server: by the rate, or by the processor time."""
        case, name, _ = key
        bare = self.runs.get((case, "bare-uvicorn" if name.endswith("uvicorn") else "bare-granian", None))
        return _slower(self.runs[key], bare, of) ** -1 if bare else None

    def growth(self, case: str, name: str, of: str) -> float | None:
        """What the largest store costs, times the smallest."""
        sizes = [size for (other, who, size) in self.runs if (other, who) == (case, name) and size is not None]
        if not sizes or min(sizes) == max(sizes):
            return None
        return _slower(self.runs[case, name, max(sizes)], self.runs[case, name, min(sizes)], of)


def _slower(one: list[Measured], other: list[Measured], of: str) -> float:
    """How many times the time of the other it takes, by the rate or by the processor."""
    pairs = [(getattr(a, of), getattr(b, of)) for a, b in zip(one, other, strict=True)]
    return float(median(a / b if of == "cpu_us" else b / a for a, b in pairs))


def table(results: Results) -> str:
    names = "".join(f"{name:>9}" for name in ("req/s", "of bare", "cpu us", "p50 ms", "p99 ms"))
    lines = [f"{'':<16}{'server':<27}{'tokens':>10}{names}   each repeat"]
    before = None
    for key, measured in results.runs.items():
        case, name, size = key
        share = results.share(key)
        each = " ".join(f"{one.per_second:,.0f}" for one in measured)
        numbers = [median(getattr(one, of) for one in measured) for of in ("per_second", "cpu_us", "p50_ms", "p99_ms")]
        lines.append(
            f"{case if case != before else '':<16}{name:<27}{'' if size is None else f'{size:,}':>10}"
            f"{numbers[0]:>9,.0f}{'-' if share is None else f'{share:.2f}':>9}"
            f"{numbers[1]:>9,.0f}{numbers[2]:>9.2f}{numbers[3]:>9.2f}   {each}"
        )
        before = case
    return "\n".join(lines)


def verdicts(results: Results) -> list[tuple[str, bool]]:
    """What can be said with these results, and whether the law holds."""
    said: list[tuple[str, bool]] = []
    watchwords = [key for key in results.runs if key[2] is not None]
    for key in watchwords:
        share, cpu = results.share(key), results.share(key, "cpu_us")
        if key[0] == "verify" and share is not None:
            sentence = f"verify, {key[1]}, {key[2]:,} tokens: {share:.2f} of bare, by the processor {cpu:.2f}"
            least = LEAST_SHARE_OF_DATABASE if "postgres" in key[1] else LEAST_SHARE
            said.append((sentence, share >= least or key[1].endswith("single")))
    for case, name in dict.fromkeys((case, name) for case, name, _ in watchwords):
        time, cpu = results.growth(case, name, "per_second"), results.growth(case, name, "cpu_us")
        if time is not None:
            said.append((f"{case}, {name}: {time:.2f} times the time, {cpu:.2f} the processor", time <= MOST_GROWTH))
    return said


def verdict_lines(said: list[tuple[str, bool]]) -> str:
    law = (
        f"The laws: verification is at least {LEAST_SHARE} of the bare answer ({LEAST_SHARE_OF_DATABASE} on "
        f"PostgreSQL); on the largest store nothing takes more "
        f"than {MOST_GROWTH} times as long as on the smallest."
    )
    return "\n".join([law, *(f"  {'holds' if holds else 'FAILS'}  {sentence}" for sentence, holds in said)])
