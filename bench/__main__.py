"""`python -m bench`: what a request costs, against a bare answer on the same server in the same run.

Servers on core 0, load on core 1, repeats interleaved, medians printed. Numbers of two runs, or of two machines, are
not to be compared; the ratios to the bare answer are, and the processor time of a request where the machine is shared.
"""

import argparse
import json
import platform
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import CASES, prepare, prove
from bench.contenders import NAMES, ROOT, Contender
from bench.load import Measured, measure, need_programs

CONNECTIONS = 32
WARM_SECONDS = 1
PACKAGES = ("watchword", "granian", "uvicorn", "uvloop", "apsw", "graphql-core")

Runs = dict[tuple[str, str], list[Measured]]


def main() -> None:
    asked = _arguments()
    need_programs()
    with tempfile.TemporaryDirectory(prefix="watchword-bench-") as folder:
        runs = run(asked.only, Path(folder), repeats=asked.repeats, seconds=asked.seconds)
    print(table(runs, asked.only))
    asked.out.mkdir(parents=True, exist_ok=True)
    file = asked.out / f"{datetime.now(UTC):%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps(_kept(runs, asked), indent=1) + "\n")
    print(f"\nKept in {file}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure, against a bare answer.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of one measurement")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for the JSON")
    return parser.parse_args()


def run(names: list[str], folder: Path, *, repeats: int, seconds: int) -> Runs:
    """Every contender stays up for the whole run; each repeat asks every one of them in turn."""
    runs: Runs = {}
    with ExitStack() as stack:
        ready = []
        for name in names:
            contender = stack.enter_context(Contender(name, folder))
            ready.append((contender, prepare(contender)))
        for repeat in range(repeats):
            for case in CASES:
                for contender, token in ready:
                    request = case.request(token)
                    if repeat == 0:
                        prove(contender, case, token)
                        measure(contender, request, connections=CONNECTIONS, seconds=WARM_SECONDS)
                    measured = measure(contender, request, connections=CONNECTIONS, seconds=seconds)
                    runs.setdefault((case.name, contender.name), []).append(measured)
    return runs


def table(runs: Runs, names: list[str]) -> str:
    lines = [f"{'':<16}{'server':<20}{'req/s':>9}{'of bare':>9}{'cpu us':>9}{'p50 ms':>9}{'p99 ms':>9}   each repeat"]
    for case in CASES:
        for name in names:
            measured = runs[case.name, name]
            rate = _median(measured, "per_second")
            bare = runs.get((case.name, f"bare-{name.rpartition('-')[2]}"))
            share = f"{rate / _median(bare, 'per_second'):.2f}" if bare else "-"
            each = " ".join(f"{one.per_second:,.0f}" for one in measured)
            lines.append(
                f"{case.name:<16}{name:<20}{rate:>9,.0f}{share:>9}{_median(measured, 'cpu_us'):>9.0f}"
                f"{_median(measured, 'p50_ms'):>9.2f}{_median(measured, 'p99_ms'):>9.2f}   {each}"
            )
    return "\n".join(lines)


def _median(measured: list[Measured], name: str) -> float:
    return float(median(getattr(one, name) for one in measured))


def _kept(runs: Runs, asked: argparse.Namespace) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "packages": {name: version(name) for name in PACKAGES},
        "connections": CONNECTIONS,
        "seconds": asked.seconds,
        "repeats": asked.repeats,
        "runs": [
            {"case": case, "contender": name, "measured": [asdict(one) for one in measured]}
            for (case, name), measured in runs.items()
        ],
    }


if __name__ == "__main__":
    main()
