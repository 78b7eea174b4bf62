"""`python -m bench workers`: two workers against one.

Servers and load may use the first two cores, all of them: on a machine of two the load takes its share of what the
second worker could have. The bare answer with as many workers says how much the machine allows.
"""

from contextlib import ExitStack

from bench.cases import MAKE, OWN_LIST, VERIFY
from bench.contenders import BARE, LOAD_CORE, SERVER_CORE, WATCHWORD, Contender
from bench.population import empty, populate
from bench.report import Report, finish, ratio
from bench.rounds import arguments, ready, run

SIZES = (100_000,)
CORES = f"{SERVER_CORE},{LOAD_CORE}"
ROWS = (VERIFY, OWN_LIST, MAKE)


def main() -> None:
    asked = arguments("workers", __doc__ or "", repeats=5, sizes=SIZES).parse_args()
    size = max(asked.sizes)
    with ready(asked) as folder, ExitStack() as stack:
        contenders = []
        for workers in (1, 2):
            own, bare = folder / f"{WATCHWORD}-{workers}", folder / f"{BARE}-{workers}"
            bare.mkdir()
            told = {"workers": str(workers)}
            contenders += [
                Contender(BARE, bare, empty(), settings=told, cores=CORES, label=_named(BARE, workers)),
                Contender(
                    WATCHWORD, own, populate(own / "data", size), size, told, cores=CORES,
                    label=_named(WATCHWORD, workers),
                ),
            ]  # fmt: skip
        results = run([stack.enter_context(one) for one in contenders], ROWS, asked, cores=CORES)
    laws = [
        ratio(results, f"{row}, {name}: two workers ÷ one", (row, _named(name, 2), of), (row, _named(name, 1), of))
        for row in ROWS
        for name, of in ((WATCHWORD, size), (BARE, None))
    ]
    note = "Servers and load shared two cores."
    finish(Report("workers", "One worker and two, on two cores", laws, results, [note]), asked)


def _named(name: str, workers: int) -> str:
    return f"{name}, {workers} worker{'s' if workers > 1 else ''}"


if __name__ == "__main__":
    main()
