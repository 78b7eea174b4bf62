"""`python -m bench writes`: what durable writes cost: create and revoke by 32 clients, against bare SQLite inserts.

The inserts are a tight loop in a process of its own, on the core of the server and the disk of its store: a row and a
commit each, into the table of tokens alone, with its indexes and without.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.cases import END, MAKE
from bench.contenders import BARE, ROOT, SERVER_CORE, WATCHWORD, Contender
from bench.inserts import make
from bench.load import Measured
from bench.population import populate
from bench.report import Report, cost, finish, ratio
from bench.rounds import arguments, bare_ones, ready, run

SIZES = (100_000,)
MOST_CREATE, MOST_REVOKE = 350, 260
"""Microseconds of processor time."""
PLAIN, INDEXED = "bare inserts", "bare inserts, indexed"


def insert(path: Path, seconds: int) -> Measured:
    command = ["taskset", "-c", SERVER_CORE, sys.executable, "-m", "bench.inserts", str(path), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    each = told["commits"]
    return Measured(each / told["seconds"], told["cpu"] / each * 1_000_000, told["p50_ms"], told["p99_ms"])


def main() -> None:
    asked = arguments("writes", __doc__ or "", sizes=SIZES).parse_args()
    size = max(asked.sizes)
    with ready(asked) as folder, ExitStack() as stack:
        own = folder / WATCHWORD
        contenders = [*bare_ones(folder)[:1], Contender(WATCHWORD, own, populate(own / "data", size), size)]
        extras = {}
        for name, indexed in ((PLAIN, False), (INDEXED, True)):
            path = folder / f"{name}.db"
            make(path, own / "data" / "watchword.db", indexed=indexed)
            extras[name] = partial(insert, path)
        entered = [stack.enter_context(one) for one in contenders]
        results = run(entered, [MAKE, END], asked, extras={MAKE: extras})
    ours = (MAKE, WATCHWORD, size)
    laws = [
        cost(results, "create, SQLite, processor time", ours, MOST_CREATE),
        cost(results, "revoke, SQLite, processor time", (END, WATCHWORD, size), MOST_REVOKE),
        ratio(results, "create ÷ bare SQLite inserts, a commit each", ours, (MAKE, PLAIN, None)),
        ratio(results, "create ÷ the same with the indexes of tokens", ours, (MAKE, INDEXED, None)),
        ratio(results, "create ÷ bare answer", ours, (MAKE, BARE, None)),
        ratio(results, "revoke ÷ bare answer", (END, WATCHWORD, size), (END, BARE, None)),
    ]
    finish(Report("writes", "Durable writes of 32 clients, one core", laws, results), asked)


if __name__ == "__main__":
    main()
