"""`python -m bench expiry`: what the notices of tokens that expire the same day take from verification.

One server on SQLite, whose notices are paused and continued between turns: two servers that did the same were seen to
differ by as much as is asked here. Turns follow each other closely, and which comes first changes with every round. A
turn with notices begins with a step of them, so it has rather more of them than real life. Mail and webhooks are off.
"""

import argparse
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import apsw

from bench.cases import VERIFY, case
from bench.contenders import PAUSING, Contender
from bench.fill import DAY, REVOKED_EVERY
from bench.load import Measured, measure, prove
from bench.population import populate
from bench.report import Law, Report, Results, finish
from bench.rounds import WARM_SECONDS, keeping, progress, ready
from bench.serve import PAUSE, PAUSED, SWITCH_SECONDS

TOKENS = 100_000
LEAST_SHARE = 0.95
"""Verification while notices are written, of what it is without."""
ON, OFF = "notices", "none"
# All of them expire within six hours, half a day from now, and are old enough for each threshold.
_SAME_DAY = "UPDATE tokens SET created_at = created_at - ?1, expires_at = ?2 + expires_at % ?3"
_WRITTEN = "SELECT count(*) FROM expiry_notices"


def main() -> None:
    asked = _arguments()
    with ready(asked) as folder:
        turns, written = run(asked, folder)
    results = Results({(VERIFY, f"watchword, {which}", asked.tokens): turns[which] for which in turns})
    pairs = list(zip(turns[ON], turns[OFF], strict=True))
    rates, cpu = [on.per_second / off.per_second for on, off in pairs], [off.cpu_us / on.cpu_us for on, off in pairs]
    law = Law("verify while notices are written ÷ without", rates, cpu, least=LEAST_SHARE)
    notes = [f"{written:,} notices of {asked.tokens:,} were written meanwhile."]
    more = {"turns": {which: [asdict(one) for one in turns[which]] for which in turns}, "notices": written}
    title = "Verification while notices of expiring tokens are written"
    finish(Report("expiry", title, [law], results, notes, more), asked)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench expiry", description="Verify while notices are written.")
    parser.add_argument("--rounds", type=int, default=40, help="of two turns")
    parser.add_argument("--seconds", type=int, default=4, help="of one turn")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="that expire the same day")
    keeping(parser)
    return parser.parse_args()


def run(asked: argparse.Namespace, folder: Path) -> tuple[dict[str, list[Measured]], int]:
    """What was measured, and how many notices were written."""
    turns: dict[str, list[Measured]] = {ON: [], OFF: []}
    data = folder / "data"
    population = populate(data, asked.tokens * REVOKED_EVERY // (REVOKED_EVERY - 1))
    with closing(_open(data)) as file:
        file.execute(_SAME_DAY, (90 * DAY, time.time_ns() // 1_000_000 + DAY // 2, DAY // 4))
    pause = data / PAUSE
    pause.touch()
    with Contender(PAUSING, folder, population, population.size) as server:
        prove(server, case(VERIFY))
        measure(server, case(VERIFY), weight=0, seconds=WARM_SECONDS)
        while not (data / PAUSED).exists():  # the first step begins some seconds after the start
            time.sleep(SWITCH_SECONDS)
        for number in range(asked.rounds):
            for which in (ON, OFF) if number % 2 == 0 else (OFF, ON):
                pause.unlink(missing_ok=True) if which == ON else pause.touch()
                turns[which].append(measure(server, case(VERIFY), weight=0, seconds=asked.seconds))
            pause.touch()
            rates = ", ".join(f"{which} {turns[which][-1].per_second:,.0f}" for which in (ON, OFF))
            progress(f"round {number + 1}: {rates} a second")
    with closing(_open(data)) as file:
        written: int = file.execute(_WRITTEN).get
    if not 0 < written < asked.tokens:
        raise SystemExit(f"{written:,} notices of {asked.tokens:,} were written: not in each turn. Change --rounds.")
    return turns, written


def _open(data: Path) -> apsw.Connection:
    return apsw.Connection(str(data / "watchword.db"), flags=apsw.SQLITE_OPEN_READWRITE)


if __name__ == "__main__":
    main()
