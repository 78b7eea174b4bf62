"""`python -m bench.uses`: what recording the use of tokens takes from those who verify them.

One server, in which recording is switched on and off between short turns: two servers that did just the same were seen
to differ by as much as is asked here. Turns stand next to each other, and which comes first changes with every round,
so that a machine that is slow for a while is slow for both. What was gathered is written in turns of recording alone,
as often within them as in real life; what such a write leaves behind (pages to be read again) is paid by the turn it
falls into. The turns are summed up, because in most of them nothing is written. The law is judged by the processor time
of a request, writing included, which neighbours disturb less than the rate.
"""

import argparse
import json
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median, stdev

import apsw

from bench.__main__ import WARM_SECONDS, need_disk, prove
from bench.cases import CASES
from bench.contenders import ROOT, START_SECONDS, Contender
from bench.load import Measured, measure, need_programs
from bench.population import populate
from bench.serve import SWITCH, SWITCHED

TOKENS = 100_000
CALLERS = 1_000
LEAST_SHARE = 0.97
"""Verification with every use recorded, of what it is without."""
ON, OFF = "recorded", "unrecorded"
VERIFY = CASES[0]
_NOTED = "SELECT count(*), ifnull(sum(use_count), 0) FROM tokens WHERE use_count > 0"


@dataclass(slots=True)
class Turns:
    of: dict[str, list[Measured]] = field(default_factory=lambda: {ON: [], OFF: []})
    tokens: int = 0
    """Whose use was in the store at the end."""
    uses: int = 0

    def rate(self, which: str) -> float:
        return fmean(one.per_second for one in self.of[which])

    def cpu_us(self, which: str) -> float:
        return sum(one.cpu_us * one.per_second for one in self.of[which]) / sum(m.per_second for m in self.of[which])

    @property
    def share(self) -> float:
        return self.cpu_us(OFF) / self.cpu_us(ON)

    @property
    def error(self) -> float:
        """The standard error of that, by how much the rounds differ; 0 where there is only one."""
        each = [off.cpu_us / on.cpu_us for on, off in zip(self.of[ON], self.of[OFF], strict=True)]
        return stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0


def main() -> None:
    asked = _arguments()
    need_programs()
    need_disk(asked.folder)
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        turns = run(asked, Path(folder))
    by_rate = turns.rate(ON) / turns.rate(OFF)
    holds = turns.share >= LEAST_SHARE
    sentence = (
        f"verify, {asked.callers:,} tokens in use: {turns.share:.3f} ± {turns.error:.3f} of unrecorded by the "
        f"processor, {by_rate:.3f} by the rate"
    )
    print(table(turns))
    print(f"\nThe law: with every use recorded, verification is at least {LEAST_SHARE} of what it is without.")
    print(f"  {'holds' if holds else 'FAILS'}  {sentence}")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"uses-{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    kept = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "tokens": asked.tokens,
        "callers": asked.callers,
        "seconds": asked.seconds,
        "share": {"processor": turns.share, "error": turns.error, "rate": by_rate},
        "turns": {which: [asdict(one) for one in measured] for which, measured in turns.of.items()},
        "noted": {"tokens": turns.tokens, "uses": turns.uses},
        "laws": [{"sentence": sentence, "holds": holds}],
    }
    file.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"\nKept in {file}")
    if asked.strict and not holds:
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.uses", description="Measure what recording uses costs.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=1, help="of one turn")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in the store")
    parser.add_argument("--callers", type=int, default=CALLERS, help="tokens that are used")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the store: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the law does not hold")
    return parser.parse_args()


def run(asked: argparse.Namespace, folder: Path) -> Turns:
    turns, data = Turns(), folder / "data"
    population = populate(data, asked.tokens, callers=asked.callers)
    with Contender("watchword-switched", folder, population, population.size) as server:
        _switch(data, OFF)
        prove(server, VERIFY)
        measure(server, VERIFY, weight=0, seconds=WARM_SECONDS)
        for number in range(asked.rounds):
            for which in (ON, OFF) if number % 2 == 0 else (OFF, ON):
                _switch(data, which)
                turns.of[which].append(measure(server, VERIFY, weight=0, seconds=asked.seconds))
            rates = ", ".join(f"{which} {turns.of[which][-1].per_second:,.0f}" for which in (ON, OFF))
            print(f"round {number + 1}: {rates} a second", file=sys.stderr, flush=True)
        _switch(data, ON)
    # What was gathered was written when it stopped.
    with closing(apsw.Connection(str(data / "watchword.db"), flags=apsw.SQLITE_OPEN_READWRITE)) as file:
        turns.tokens, turns.uses = file.execute(_NOTED).get
    answered = {which: turns.rate(which) * asked.rounds * asked.seconds for which in (ON, OFF)}
    if not 0.95 * answered[ON] <= turns.uses <= answered[ON] + answered[OFF] / 2:
        raise SystemExit(f"{turns.uses:,} uses were recorded, of {answered}: the switch does not do what it says.")
    return turns


def _switch(data: Path, which: str) -> None:
    """And wait until the worker has seen it."""
    (data / SWITCH).write_text(which)
    deadline = time.monotonic() + START_SECONDS
    while not (data / SWITCHED).exists() or (data / SWITCHED).read_text() != which:
        if time.monotonic() > deadline:
            raise SystemExit("The server did not see that recording was switched.")
        time.sleep(0.01)


def table(turns: Turns) -> str:
    names = "".join(f"{name:>9}" for name in ("req/s", "cpu us", "p50 ms", "p99 ms"))
    lines = [f"{'':<12}{names}"]
    for which, measured in turns.of.items():
        p50, p99 = (median(getattr(one, of) for one in measured) for of in ("p50_ms", "p99_ms"))
        lines.append(f"{which:<12}{turns.rate(which):>9,.0f}{turns.cpu_us(which):>9.1f}{p50:>9.2f}{p99:>9.2f}")
    return "\n".join([*lines, f"{turns.uses:,} uses of {turns.tokens:,} tokens were recorded."])


if __name__ == "__main__":
    main()
