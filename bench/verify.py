"""`python -m bench verify`: what the check of a token costs, `GET /auth`, on stores of several sizes, against a bare
answer.
"""

from contextlib import ExitStack

from bench.cases import VERIFY
from bench.contenders import BARE, BARE_RSGI, WATCHWORD, Contender
from bench.population import populate
from bench.report import Report, finish, ratio
from bench.rounds import arguments, bare_ones, progress, ready, run

SIZES = (1_000, 1_000_000)
SMALL, LEAST_SHARE_OF_SMALL, LEAST_SHARE = 1_000, 0.75, 0.7


def main() -> None:
    asked = arguments("verify", __doc__ or "", sizes=SIZES).parse_args()
    with ready(asked) as folder, ExitStack() as stack:
        contenders = bare_ones(folder)
        for size in sorted(asked.sizes):
            progress(f"filling a store with {size:,} tokens")
            own = folder / str(size)
            contenders.append(Contender(WATCHWORD, own, populate(own / "data", size), size))
        results = run([stack.enter_context(one) for one in contenders], [VERIFY], asked)
    laws = [
        ratio(
            results,
            f"verify, SQLite, {size:,} tokens ÷ bare answer",
            (VERIFY, WATCHWORD, size),
            (VERIFY, BARE, None),
            least=LEAST_SHARE_OF_SMALL if size <= SMALL else LEAST_SHARE,
        )
        for size in sorted(asked.sizes)
    ]
    largest = max(asked.sizes)
    beside = ratio(
        results,
        f"verify, SQLite, {largest:,} tokens ÷ bare RSGI answer",
        (VERIFY, WATCHWORD, largest),
        (VERIFY, BARE_RSGI, None),
    )
    finish(Report("verify", "Verification, one core", [*laws, beside], results), asked)


if __name__ == "__main__":
    main()
