"""`python -m bench`: what a request costs, against a bare answer on the same server in the same run.

Servers on core 0, load on core 1, stores of several sizes on a real disk, repeats interleaved, medians printed. Numbers
of two runs, or of two machines, are not to be compared; the ratios to the bare answer are, and the processor time of a
request where the machine is shared.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.cases import CASES, Case
from bench.contenders import NAMES, ROOT, USUAL, Contender
from bench.load import CONNECTIONS, measure, need_programs
from bench.population import nobody, populate
from bench.report import Results, table, verdict_lines, verdicts

SIZES = (1_000, 100_000, 1_000_000)
WARM_SECONDS = 1
PACKAGES = ("watchword", "granian", "uvicorn", "uvloop", "apsw", "graphql-core")
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


def main() -> None:
    asked = _arguments()
    need_programs()
    need_disk(asked.folder)
    if not any(name.startswith("watchword") for name in asked.only):
        raise SystemExit("--only must name a watchword too: what it answers says how much a bare one has to.")
    cases = [case for case in CASES if case.name in asked.rows]
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        results = run(asked, cases, Path(folder))
    said = verdicts(results)
    print(table(results))
    print(f"\n{verdict_lines(said)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(_kept(results, said, asked), indent=1) + "\n")
    print(f"\nKept in {file}")
    if asked.strict and not all(holds for _, holds in said):
        sys.exit(1)


def _arguments() -> argparse.Namespace:
    rows = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, against a bare answer.")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="of one measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="TOKENS", help="of the stores")
    parser.add_argument("--rows", nargs="+", choices=rows, default=rows, metavar="ROW", help=", ".join(rows))
    parser.add_argument("--only", nargs="+", choices=NAMES, default=USUAL, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the stores: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a law does not hold")
    return parser.parse_args()


def need_disk(folder: Path) -> None:
    """In memory a commit costs nothing, and what is measured would be something else."""
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    above = (folder.resolve(), *folder.resolve().parents)
    kind = next((mounts[str(path)] for path in above if str(path) in mounts), "")
    if kind in IN_MEMORY:
        raise SystemExit(f"--folder must be on a real disk; {folder} is {kind}, which is memory.")


def run(asked: argparse.Namespace, cases: list[Case], folder: Path) -> Results:
    """Every contender stays up for the whole run; each repeat asks every one of them in turn."""
    results = Results()
    with ExitStack() as stack:
        contenders = [stack.enter_context(one) for one in _contenders(asked.only, sorted(asked.sizes), folder)]
        for repeat in range(asked.repeats):
            for case in cases:
                weights = [prove(one, case) for one in contenders if one.is_watchword]
                for contender in contenders:
                    if repeat == 0 and not case.once:  # such requests are too few to be spent on warming up
                        measure(contender, case, weight=weights[0], seconds=WARM_SECONDS)
                    measured = measure(contender, case, weight=weights[0], seconds=asked.seconds)
                    results.add((case.name, contender.name, contender.size), measured)
                    _progress(f"{case.name}, {contender.label}: {measured.per_second:,.0f} a second")
    return results


def _contenders(names: Sequence[str], sizes: list[int], folder: Path) -> Iterator[Contender]:
    """Bare ones first; a Watchword of each server on a store of its own of each size."""
    for name in names:
        own = folder / name
        if not name.startswith("watchword"):
            own.mkdir()
            yield Contender(name, own, nobody())
            continue
        for size in sizes:
            _progress(f"filling a store with {size:,} tokens")
            yield Contender(name, own / str(size), populate(own / str(size) / "data", size), size)


def prove(contender: Contender, case: Case) -> int:
    """Ask once and look at the answer; returns its bytes."""
    request = next(case.requests(contender.population, contender.root))
    headers = {"Authorization": f"Bearer {request.bearer}"}
    if request.body:
        headers["Content-Type"] = "application/json"
    answer = httpx.request(case.method, contender.url + case.path, headers=headers, content=request.body, timeout=30)
    assert case.check(answer), (contender.label, case.name, answer.status_code, answer.text)
    case.settle(contender.population, 1, [])
    return len(answer.content)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _kept(results: Results, said: list[tuple[str, bool]], asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: version(name) for name in PACKAGES},
        "connections": CONNECTIONS,
        "seconds": asked.seconds,
        "repeats": asked.repeats,
        "runs": [
            {"case": case, "contender": name, "tokens": size, "measured": [asdict(one) for one in measured]}
            for (case, name, size), measured in results.runs.items()
        ],
        "laws": [{"sentence": sentence, "holds": holds} for sentence, holds in said],
    }


if __name__ == "__main__":
    main()
