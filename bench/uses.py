"""`python -m bench uses`: what recording the use of tokens takes from those who verify them.

One server, in which recording is switched on and off between short turns: two servers that did just the same were seen
to differ by as much as is asked here. Turns stand next to each other, and which comes first changes with every round,
so that a machine that is slow for a while is slow for both. What was gathered is written in turns of recording alone,
as often within them as in real life; what such a write leaves behind (pages to be read again) is paid by the turn it
falls into. The turns are summed up, because in most of them nothing is written. The law is judged by the processor time
of a request, writing included, which neighbours disturb less than the rate.
"""

import argparse
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev

import apsw

from bench.cases import VERIFY, case
from bench.contenders import START_SECONDS, SWITCHED, Contender
from bench.load import Measured, measure, prove
from bench.population import populate
from bench.report import Law, Report, Results, finish
from bench.rounds import WARM_SECONDS, keeping, progress, ready
from bench.serve import SEEN, SWITCH

TOKENS = 100_000
CALLERS = 1_000
LEAST_SHARE = 0.97
"""Verification with every use recorded, of what it is without."""
ON, OFF = "recorded", "unrecorded"
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
    with ready(asked) as folder:
        turns = run(asked, folder)
    results = Results({(VERIFY, f"watchword, {which}", asked.tokens): turns.of[which] for which in turns.of})
    # By the sums, not by rounds: most of what is written falls into a few of them.
    law = Law("verify with every use recorded ÷ without, by the processor", [turns.share], least=LEAST_SHARE)
    by_rate = Law("the same by the rate", [turns.rate(ON) / turns.rate(OFF)])
    notes = [
        f"{turns.uses:,} uses of {turns.tokens:,} tokens were recorded; the standard error is {turns.error:.3f}.",
    ]
    more = {
        "error": turns.error,
        "turns": {which: [asdict(one) for one in measured] for which, measured in turns.of.items()},
        "noted": {"tokens": turns.tokens, "uses": turns.uses},
    }
    finish(Report("uses", "Verification with uses recorded and without", [law, by_rate], results, notes, more), asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench uses", description="Measure what recording uses costs.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=1, help="of one turn")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="in the store")
    parser.add_argument("--callers", type=int, default=CALLERS, help="tokens that are used")
    keeping(parser)
    return parser.parse_args()


def run(asked: argparse.Namespace, folder: Path) -> Turns:
    turns, data = Turns(), folder / "data"
    population = populate(data, asked.tokens, callers=asked.callers)
    with Contender(SWITCHED, folder, population, population.size) as server:
        _switch(data, OFF)
        prove(server, case(VERIFY))
        measure(server, case(VERIFY), weight=0, seconds=WARM_SECONDS)
        for number in range(asked.rounds):
            for which in (ON, OFF) if number % 2 == 0 else (OFF, ON):
                _switch(data, which)
                turns.of[which].append(measure(server, case(VERIFY), weight=0, seconds=asked.seconds))
            rates = ", ".join(f"{which} {turns.of[which][-1].per_second:,.0f}" for which in (ON, OFF))
            progress(f"round {number + 1}: {rates} a second")
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
    while not (data / SEEN).exists() or (data / SEEN).read_text() != which:
        if time.monotonic() > deadline:
            raise SystemExit("The server did not see that recording was switched.")
        time.sleep(0.01)


if __name__ == "__main__":
    main()
