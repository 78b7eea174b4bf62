"""Rounds: every contender stays up for the whole run, and each repeat asks every one of them in turn."""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.cases import CASES, Case
from bench.contenders import BARE, BARE_RSGI, LOAD_CORE, ROOT, Contender
from bench.load import Measured, measure, need_disk, need_programs, prove
from bench.population import empty
from bench.report import Results

WARM_SECONDS = 1

Extra = Callable[[int], Measured]
"""Something else than a server, measured for so many seconds."""


def arguments(name: str, description: str, *, repeats: int = 7, sizes: Sequence[int] = ()) -> argparse.ArgumentParser:
    """What the benches share."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=description.partition("\n\n")[0])
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--seconds", type=int, default=2, help="of one measurement")
    parser.add_argument("--warm", type=int, default=WARM_SECONDS, metavar="SECONDS", help="before the first")
    if sizes:
        parser.add_argument("--sizes", type=int, nargs="+", default=sizes, metavar="TOKENS", help="of the stores")
    keeping(parser)
    return parser


def keeping(parser: argparse.ArgumentParser) -> None:
    """Where a bench works, where it keeps what it found, and how it ends."""
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the stores: a real disk")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder for JSON and chart")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a law does not hold")


@contextmanager
def ready(asked: argparse.Namespace) -> Iterator[Path]:
    """A folder on a disk, on a machine that has what is needed."""
    need_programs()
    need_disk(asked.folder)
    with tempfile.TemporaryDirectory(prefix="watchword-bench-", dir=asked.folder) as folder:
        yield Path(folder)


def bare_ones(folder: Path) -> list[Contender]:
    """The baseline, and the same by the server's own interface."""
    made = []
    for name in (BARE, BARE_RSGI):
        (folder / name).mkdir()
        made.append(Contender(name, folder / name, empty()))
    return made


def run(
    contenders: Sequence[Contender],
    cases: Sequence[str],
    asked: argparse.Namespace,
    *,
    extras: Mapping[str, Mapping[str, Extra]] | None = None,
    takes: Callable[[Contender, Case], bool] = lambda _contender, _case: True,
    cores: str = LOAD_CORE,
) -> Results:
    """`extras`: by the case beside which they stand, and by their name."""
    results = Results()
    for repeat in range(asked.repeats):
        for case in (one for one in CASES if one.name in cases):
            those = [one for one in contenders if takes(one, case)]
            weight, *_ = [prove(one, case) for one in those if not one.is_bare]
            for contender in those:
                if repeat == 0 and asked.warm and not case.once:  # those are too few to be spent on warming up
                    measure(contender, case, weight=weight, seconds=asked.warm, cores=cores)
                measured = measure(contender, case, weight=weight, seconds=asked.seconds, cores=cores)
                results.add((case.name, *contender.key), measured)
                progress(f"{case.name}, {contender.label}: {measured.per_second:,.0f} a second")
            for name, extra in (extras or {}).get(case.name, {}).items():
                measured = extra(asked.seconds)
                results.add((case.name, name, None), measured)
                progress(f"{case.name}, {name}: {measured.per_second:,.0f} a second")
    return results


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
