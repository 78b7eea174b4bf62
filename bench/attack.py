"""`python -m bench attack`: verification rate while one actor sends expensive requests.

A server on a core of its own, with its settings as they come, but more live tokens for an actor; `wrk` verifies tokens
on the other core. The attacker has tokens and may read the audit log, and has used up what it may use at once.
The law: `/auth` keeps at least 0.7 of its rate, and 0.6 beside a storm of creates. It is judged by the server's
processor time, which other processes on the machine do not change. The rate is printed too. Attackers without a
credential: connections with unfinished headers, whose memory is bounded, and long headers, which may cost at most ten
normal requests each.
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
from typing import NamedTuple

from bench import receivers, unfinished
from bench.cases import LIST, VERIFY, case, create
from bench.contenders import LET_ALL, ROOT, WATCHWORD, Contender
from bench.expensive.headers import headers
from bench.expensive.shape import Callers, ask, ask_first, bearer, http, own, posted
from bench.load import Measured, measure, need_disk, need_programs
from bench.population import Holder, populate
from bench.shapes import MOST_TIMES, Cost, CostMeter, Line, measured
from watchword.http.processor_budget import ACTOR_BURST, ACTOR_SHARE, WRITE_SECONDS

OWN_TOKENS = 4_300
MOST_SECONDS_AT_ONCE = 60.0
PACED_SECONDS = 10.0
NEW_DOCUMENT = (
    "{ me { " + ("corpUser { " + " ".join(f"a{number}: urn" for number in range(9)) + " } ") * 99 + "} }"
).ljust(14_000)
IEQUAL = {"field": "name", "condition": "IEQUAL", "values": [f"no such name {number}" for number in range(8)]}
ENUM = "mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) { accessToken } }"
FIELD = "listPrivileges { name displayName allows includes escalates }"
PRIVILEGES = "{ " + " ".join(f"a{number}: {FIELD}" for number in range(20)) + " }"
FOLLOWED = 'relationships(input: {types: ["IsMemberOfGroup"], direction: OUTGOING}) { total }'
EVENTS = "{ listEvents(input: {count: 1000}) { events { id at action actorUrn actorName target targetName names } } }"
HEADER, HEADER_SECONDS = "31 kB of", 0.1
_SCHEMA = "{ __schema { types { name fields { name args { name type { name } } type { name kind } } } } }"


_AUDITORS = {
    "type": "PLATFORM",
    "name": "auditors",
    "state": "ACTIVE",
    "privileges": ["VIEW_AUDIT_LOG"],
    "actors": {"allUsers": True},
}


def _create(who: Holder) -> bytes:
    return posted(who, create(who).body.encode())


def _lookups(who: Holder) -> bytes:
    one = f'corpUser(urn: "{who.actor}") {{ urn {FOLLOWED} }}'
    return ask(who, "{ " + " ".join(f"a{number}: {one}" for number in range(20)) + " }")


def _events(who: Holder) -> bytes:
    return http("GET", "/events?count=1000", [bearer(who)])


class Attack(NamedTuple):
    make: Callable[[Holder], bytes]
    pause: float = 0.0
    """How long the attacker waits after an answer."""
    connections: int = 1
    writes: bool = False
    """Whether a request that is over the limit waits, instead of being rejected."""
    paced: bool = False
    """Whether it waits before it is rejected, so that few are."""
    least: float = 0.7
    """What verification keeps of its rate."""


ATTACKS = {
    "2 new documents of 14 kB a second": Attack(lambda who: ask_first(who, NEW_DOCUMENT), 0.5),
    "new documents of 14 kB, one after the other": Attack(lambda who: ask_first(who, NEW_DOCUMENT)),
    "introspection, one after the other": Attack(lambda who: ask(who, _SCHEMA)),
    "4,300 own tokens by IEQUAL, one after the other": Attack(lambda who: ask(who, LIST, own(who, IEQUAL))),
    "an enum of 1 MB, twice a second": Attack(lambda who: ask(who, ENUM, {"input": {"type": "x" * 1_000_000}}), 0.5),
    "20 listPrivileges, known, eight at a time": Attack(lambda who: ask(who, PRIVILEGES), connections=8, paced=True),
    "20 corpUser{relationships}, known, eight at a time": Attack(_lookups, connections=8, paced=True),
    "/events?count=1000, eight at a time": Attack(_events, connections=8, paced=True),
    "listEvents of 1,000, known, eight at a time": Attack(lambda who: ask(who, EVENTS), connections=8, paced=True),
    "creates, one after the other": Attack(_create, writes=True, least=0.6),
    "creates, eight at a time": Attack(_create, connections=8, writes=True, least=0.6),
    "creates, a hundred at a time": Attack(_create, connections=100, writes=True, least=0.6),
}


@dataclass(frozen=True, slots=True)
class Row:
    attack: str
    alone: float
    beside: float
    kept: float
    """Verifications for a second of the server's processor time, of those alone."""
    least: float
    answered: int
    """Of the attacker's requests, those that were not refused with 429."""
    throttled: int

    @property
    def holds(self) -> bool:
        return self.kept >= self.least


@contextmanager
def attacking(server: Contender, who: Holder, attack: Attack) -> Iterator[list[bool]]:
    over, throttled = threading.Event(), list[bool]()

    def run() -> None:
        line = Line(server.port)
        while not over.is_set():
            _, body = line.ask(attack.make(who))
            throttled.append(b"processor_budget_used" in body)
            over.wait(attack.pause)
        line.close()

    threads = [threading.Thread(target=run) for _ in range(attack.connections)]
    for thread in threads:
        thread.start()
    try:
        yield throttled
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _use_up(attack: Attack, throttled: list[bool]) -> None:
    """Wait until the attacker has used what it may use at once."""
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < MOST_SECONDS_AT_ONCE:
        if attack.writes and len(throttled) * WRITE_SECONDS >= ACTOR_BURST + seconds * ACTOR_SHARE:
            return
        if any(throttled) or (attack.paced and seconds >= PACED_SECONDS):
            return
        time.sleep(0.05)


def attacked(server: Contender, seconds: int, repeats: int, only: str = "") -> list[Row]:
    verify = case(VERIFY)
    attackers = iter({holder.actor: holder for holder in server.population.callers}.values())
    rows = []
    for name, attack in ATTACKS.items():
        if only not in name:
            continue
        who, alone, beside, throttled = next(attackers), list[Measured](), list[Measured](), list[bool]()
        for _ in range(repeats):  # in turns, so that a machine that changes its pace changes it for both
            alone.append(measure(server, verify, weight=0, seconds=seconds))
            with attacking(server, who, attack) as told:
                _use_up(attack, told)
                before = len(told)
                beside.append(measure(server, verify, weight=0, seconds=seconds))
                throttled += told[before:]
        answered, refused = throttled.count(False), throttled.count(True)
        rows.append(_row(name, alone, beside, answered, refused, least=attack.least))
    if only in receivers.NAME:
        rows.append(_row(receivers.NAME, *receivers.beside_receivers(server, seconds, repeats), least=receivers.LEAST))
    return rows


def flooded(server: Contender, seconds: int) -> tuple[Row, unfinished.Memory]:
    alone, beside, memory = unfinished.beside_unfinished(server, seconds)
    row = _row(unfinished.NAME, alone, beside, 0, least=unfinished.LEAST)
    print(f"{'':<52}{memory}, of at most {unfinished.MOST_MB}", flush=True)
    return row, memory


def long_headers(server: Contender, only: str) -> list[Cost]:
    """Against a normal request of the same kind."""
    names = {shape.name for shape in headers() if shape.name.startswith(HEADER) and only in shape.name}
    if not names:
        return []
    print()
    meter = CostMeter(server, Callers(server.population.callers[0], server.root), HEADER_SECONDS)
    costs = measured(meter, names.__contains__)
    return [cost for cost in costs if cost.name in names]


def _row(
    name: str, alone: list[Measured], beside: list[Measured], answered: int, throttled: int = 0, *, least: float
) -> Row:
    row = Row(
        name,
        median(one.per_second for one in alone),
        median(one.per_second for one in beside),
        median(one.cpu_us for one in alone) / median(one.cpu_us for one in beside),
        least,
        answered,
        throttled,
    )
    print(
        f"{row.attack:<52}{row.alone:>6.0f} -> {row.beside:>6.0f} a second, {row.kept:.2f} by the processor;"
        f" {row.answered} answered, {row.throttled} throttled",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench attack", description="Measure /auth beside an attacker.")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=2, help="measurements of each kind, of which the median counts")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the store: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when the law is broken")
    asked = parser.parse_args()
    need_programs()
    need_disk(asked.folder)
    memory, floods = list[unfinished.Memory](), asked.only in unfinished.NAME
    if floods:
        unfinished.need_files()
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        population = populate(Path(folder, "data"), (len(ATTACKS) + 1) * OWN_TOKENS, each=OWN_TOKENS)
        settings = {"actor_processor_percent": str(round(100 * ACTOR_SHARE)), "max_live_tokens": "1000000"}
        settings |= receivers.SETTINGS
        with Contender(WATCHWORD, Path(folder), population, population.size, settings) as server:
            server.ask(LET_ALL, {"input": _AUDITORS})
            rows = attacked(server, asked.seconds, asked.repeats, asked.only)
            costs = long_headers(server, asked.only)
            if floods:
                row, used = flooded(server, asked.seconds)
                rows.append(row)
                memory.append(used)
    print("\nThe law: /auth keeps at least this share of its rate beside one attacker.")
    for row in rows:
        print(f"  {'holds' if row.holds else 'FAILS'}  {row.kept:.2f} of at least {row.least:g}: {row.attack}")
    for used in memory:
        print(f"  {'holds' if used.holds else 'FAILS'}  {used}, of at most {unfinished.MOST_MB}")
    if costs:
        dearest = max(costs, key=lambda cost: cost.times)
        holds = dearest.times <= MOST_TIMES
        print(f"  {'holds' if holds else 'FAILS'}  {dearest.times:.1f} of at most {MOST_TIMES:g} times: {dearest.name}")
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "attack.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    lawful = [*(row.holds for row in rows), *(used.holds for used in memory), *(c.times <= MOST_TIMES for c in costs)]
    if asked.strict and not all(lawful):
        sys.exit(1)


if __name__ == "__main__":
    main()
