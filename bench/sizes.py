"""`python -m bench sizes`: every row on a small store and on a very large one, and what a worker then has in memory.

Ten million tokens take minutes to fill in; with `--keep FOLDER` they are filled once and copied from there.
"""

from contextlib import ExitStack
from pathlib import Path

from bench.cases import CASES, VERIFY
from bench.contenders import BARE, WATCHWORD, Contender
from bench.population import populate, populate_from
from bench.report import Law, Report, finish, ratio
from bench.rounds import arguments, bare_ones, progress, ready, run

SIZES = (1_000, 1_000_000, 10_000_000)
LEAST_OF_SMALL = 0.67
LEAST_AMONG_ALL = 0.68
MOST_MIB, MOST_TOKENS = 90.0, 1_000_000
"""Of a worker, with so many tokens in the store."""


def main() -> None:
    parser = arguments("sizes", __doc__ or "", repeats=5, sizes=SIZES)
    parser.add_argument("--keep", type=Path, help="folder for filled stores, to be used again")
    asked = parser.parse_args()
    sizes = sorted(asked.sizes)
    with ready(asked) as folder, ExitStack() as stack:
        contenders = bare_ones(folder)[:1]
        for size in sizes:
            progress(f"filling a store with {size:,} tokens")
            own = folder / str(size)
            own.mkdir()
            data = own / "data"
            population = populate_from(asked.keep, data, size) if asked.keep else populate(data, size)
            contenders.append(Contender(WATCHWORD, own, population, size))
        entered = [stack.enter_context(one) for one in contenders]
        results = run(entered, [case.name for case in CASES], asked)
        resident = {one.size: one.resident_mib() for one in entered if one.size is not None}
    small, large = sizes[0], sizes[-1]
    laws = [
        ratio(
            results, f"{case.name}: {large:,} tokens ÷ {small:,}", (case.name, WATCHWORD, large),
            (case.name, WATCHWORD, small), least=LEAST_OF_SMALL,
        )
        for case in CASES
    ]  # fmt: skip
    verify = ((VERIFY, WATCHWORD, small), (VERIFY, BARE, None))
    laws.append(ratio(results, "verify among all rows in turn ÷ bare answer", *verify, least=LEAST_AMONG_ALL))
    laws += [
        Law(f"memory of a worker after all this, {size:,} tokens", mib, unit=" MiB",
            most=MOST_MIB if size <= MOST_TOKENS else None)
        for size, mib in resident.items()
    ]  # fmt: skip
    finish(Report("sizes", f"From {small:,} to {large:,} tokens, one core", laws, results), asked)


if __name__ == "__main__":
    main()
