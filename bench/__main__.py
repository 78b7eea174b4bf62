"""`python -m bench [NAME...]`: what a request costs, against a bare answer on the same server in the same run.

Servers on core 0, load on core 1, stores of several sizes on a real disk, repeats interleaved, medians printed. Numbers
of two runs, or of two machines, are not to be compared; the ratios to the bare answer are, and the processor time of a
request where the machine is shared.

Each bench is a module with a process of its own. Without a name all of those run that fit into half an hour together.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import compare, compare_ref, publish

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Bench:
    what: str
    minutes: int
    """About, on two idle cores."""
    usual: bool = True
    """Whether it runs when none is named."""
    flags: tuple[str, ...] = ()
    """Then."""


BENCHES = {
    "verify": Bench("the check of a token, against a bare answer", 2),
    "lists": Bench("lists of 20 and of 100, against a bare answer and Strawberry", 2),
    "writes": Bench("create and revoke, against bare SQLite inserts", 2),
    "sizes": Bench("everything at 10³, 10⁶ and 10⁷ tokens, and a worker's memory", 9, flags=("--repeats", "3")),
    "workers": Bench("two workers against one", 1),
    "start": Bench("how soon a server is ready and a command answers", 1),
    "postgres": Bench("the same on PostgreSQL, against one query a request and pgbench", 4),
    "uses": Bench("what recording uses takes from verification", 2, flags=("--rounds", "40")),
    "peers": Bench("other services that issue and check tokens", 8),
    "console": Bench("weight, reload time and Tab stops of the console's pages", 2, usual=False),
    "bulk_revocation": Bench("a hundred thousand tokens ended by one call", 2, usual=False),
    "index": Bench("verification beside a truncation of the embedded index", 60, usual=False),
    "expiry": Bench("verification beside the notices of 100,000 tokens that expire soon", 6, usual=False),
    "shapes": Bench("requests that are built to be expensive", 5, usual=False),
    "receivers": Bench("verification beside hostile receivers of webhooks", 1, usual=False),
    "attack": Bench("verification beside one actor that sends what is expensive", 2, usual=False),
    "stages": Bench("where the processor time of a request goes; --ref: and in another commit", 3, usual=False),
    "drivers": Bench("which PostgreSQL driver, and how the shared read is asked", 3, usual=False),
}


ALSO = (
    "  compare   A.json B.json: whether B is faster, row by row",
    "  compare-ref REF: processor time per request of the working tree against another commit",
    "  publish   copy the last results to where the documentation shows them",
)


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["compare"]:
        compare.main(words[1:])
        return
    if words[:1] == ["compare-ref"]:
        compare_ref.main(words[1:])
        return
    if words == ["publish"]:
        publish.main()
        return
    names, flags = _asked(words)
    began = time.monotonic()
    failed = []
    for name in names or [name for name, bench in BENCHES.items() if bench.usual]:
        print(f"\n== {name}: {BENCHES[name].what}", flush=True)
        if _module(name, [*(() if names else BENCHES[name].flags), *flags]):
            failed.append(name)
    if len(names) != 1:
        told = f"Broken off, or with a law that must hold: {', '.join(failed)}" if failed else "All ran to their end"
        print(f"\n{told}; {(time.monotonic() - began) / 60:.0f} min in all.")
    sys.exit(1 if failed else 0)


def _asked(words: list[str]) -> tuple[list[str], list[str]]:
    """Names of benches, then flags that all of them get."""
    lines = [f"  {name:<17}{bench.what} ({bench.minutes} min{'' if bench.usual else ', by name only'})"
             for name, bench in BENCHES.items()]  # fmt: skip
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure, against a bare answer. Flags after the names go to each bench: NAME --help lists them.",
        epilog="\n".join(["benches:", *lines, "", *ALSO]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME")
    at = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    if at == 0 and words[:1] in (["-h"], ["--help"]):
        at = 1
    names: list[str] = parser.parse_args(words[:at]).names
    if unknown := [name for name in names if name not in BENCHES]:
        parser.error(f"there is no bench {unknown[0]}; there are {', '.join(BENCHES)}")
    return names, words[at:]


def _module(name: str, flags: list[str]) -> int:
    return subprocess.run([sys.executable, "-m", f"bench.{name}", *flags], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    main()
