"""`python -m bench attack`: verification rate while one actor sends expensive requests.

A server on a core of its own, with its settings as they come; `wrk` verifies tokens on the other core. The attacker has
tokens of its own and no further privilege, and has used up what it may use at once. The law: `/auth` keeps at least 0.7
of its rate, by the server's processor time, which others on the machine do not change; the clock's is told beside it.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.cases import CASES, LIST, VERIFY
from bench.contenders import ROOT, WATCHWORD, Contender
from bench.expensive.shape import ask, ask_first, own
from bench.load import Measured, measure, need_disk, need_programs
from bench.population import Holder, populate
from bench.shapes import Line

OWN_TOKENS = 4_300
LEAST = 0.7
MOST_SECONDS_AT_ONCE = 20.0
NEW_DOCUMENT = (
    "{ me { " + ("corpUser { " + " ".join(f"a{number}: urn" for number in range(9)) + " } ") * 99 + "} }"
).ljust(14_000)
IEQUAL = {"field": "name", "condition": "IEQUAL", "values": [f"no such name {number}" for number in range(8)]}
ENUM = "mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) { accessToken } }"
_SCHEMA = "{ __schema { types { name fields { name args { name type { name } } type { name kind } } } } }"

Make = Callable[[Holder], bytes]
ATTACKS: dict[str, tuple[Make, float]] = {
    "2 new documents of 14 kB a second": (lambda who: ask_first(who, NEW_DOCUMENT), 0.5),
    "new documents of 14 kB, one after the other": (lambda who: ask_first(who, NEW_DOCUMENT), 0.0),
    "introspection, one after the other": (lambda who: ask(who, _SCHEMA), 0.0),
    "4,300 own tokens by IEQUAL, one after the other": (lambda who: ask(who, LIST, own(who, IEQUAL)), 0.0),
    "an enum of 1 MB, twice a second": (lambda who: ask(who, ENUM, {"input": {"type": "x" * 1_000_000}}), 0.5),
}
"""What is sent, and how long the attacker waits after an answer."""


@dataclass(frozen=True, slots=True)
class Row:
    attack: str
    alone: float
    beside: float
    kept: float
    """Verifications for a second of the server's processor time, of those alone."""
    answered: int
    """Of the attacker's requests, those that were not refused with 429."""
    throttled: int


@contextmanager
def attacking(server: Contender, who: Holder, make: Make, pause: float) -> Iterator[list[bool]]:
    over, throttled = threading.Event(), list[bool]()

    def run() -> None:
        line = Line(server.port)
        while not over.is_set():
            _, body = line.ask(make(who))
            throttled.append(b"processor_budget_used" in body)
            over.wait(pause)
        line.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield throttled
    finally:
        over.set()
        thread.join()


def attacked(server: Contender, seconds: int, repeats: int) -> list[Row]:
    verify = next(case for case in CASES if case.name == VERIFY)
    attackers = iter({holder.actor: holder for holder in server.population.callers}.values())
    rows = []
    for name, (make, pause) in ATTACKS.items():
        who, alone, beside, throttled = next(attackers), list[Measured](), list[Measured](), list[bool]()
        for _ in range(repeats):  # in turns, so that a machine that changes its pace changes it for both
            alone.append(measure(server, verify, weight=0, seconds=seconds))
            with attacking(server, who, make, pause) as told:
                end = time.monotonic() + MOST_SECONDS_AT_ONCE
                while not any(told) and time.monotonic() < end:
                    time.sleep(0.05)
                before = len(told)
                beside.append(measure(server, verify, weight=0, seconds=seconds))
                throttled += told[before:]
        row = Row(
            name,
            median(one.per_second for one in alone),
            median(one.per_second for one in beside),
            median(one.cpu_us for one in alone) / median(one.cpu_us for one in beside),
            throttled.count(False),
            throttled.count(True),
        )
        rows.append(row)
        print(
            f"{row.attack:<52}{row.alone:>6.0f} -> {row.beside:>6.0f} a second, {row.kept:.2f} by the processor;"
            f" {row.answered} answered, {row.throttled} throttled",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench attack", description="Measure /auth beside an attacker.")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=2, help="measurements of each kind, of which the median counts")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the store: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the law is broken")
    asked = parser.parse_args()
    need_programs()
    need_disk(asked.folder)
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        population = populate(Path(folder, "data"), (len(ATTACKS) + 1) * OWN_TOKENS, each=OWN_TOKENS)
        with Contender(WATCHWORD, Path(folder), population, population.size) as server:
            rows = attacked(server, asked.seconds, asked.repeats)
    least = min(row.kept for row in rows)
    print(f"\nThe law: /auth keeps at least {LEAST:g} of its rate beside one attacker.")
    print(f"  {'holds' if least >= LEAST else 'FAILS'}  {least:.2f}")
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "attack.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if asked.strict and least < LEAST:
        sys.exit(1)


if __name__ == "__main__":
    main()
