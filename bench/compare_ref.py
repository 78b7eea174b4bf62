"""`python -m bench compare-ref REF`: processor time per request of the working tree against another commit.

The servers of both run at the same time on one core, on SQLite and on PostgreSQL, and are measured in turns; the order
changes with each repeat. The processor time is that of all processes: the server's, and the database's. A ratio is
taken within a repeat. Its spread is twice the standard error of the median.

A server is started by its command line and filled over HTTP, so any commit with that interface can be compared.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median, stdev
from typing import Any

import httpx

from bench.cases import CASES, CREATE
from bench.compare import MEDIANS
from bench.contenders import ADMIN, ROOT, WATCHWORD, Contender, cpu_seconds
from bench.load import measure, prove
from bench.population import Holder, Population
from bench.postgres import bench_cluster, settings_of, used_by
from bench.rounds import arguments, progress, ready
from tests.support.postgres import Home

ACTORS, TOKENS_OF_EACH = 50, 25
WORKING_TREE = "working tree"
SQLITE, POSTGRES = "SQLite", "PostgreSQL"
MOST_SLOWER = 0.05
LOCK = "requirements/run.lock"


class TreeContender(Contender):
    """`watchword serve` of a source tree."""

    def __init__(self, store: str, tree: Path, folder: Path, python: Path, **how: Any) -> None:
        super().__init__(WATCHWORD, folder, Population(0, [Holder(ADMIN, "")]), ACTORS * TOKENS_OF_EACH, **how)
        self.store = store
        self._tree = tree
        self._python = python

    def command(self) -> list[str]:
        place = ["--port", str(self.port), "--data-dir", str(self._folder / "data")]
        return [str(self._python), "-m", "watchword", "serve", *place]

    def environment(self) -> dict[str, str]:
        settings = {f"WATCHWORD_{name.upper()}": value for name, value in self._settings.items()}
        return {**super().environment(), **settings, "PYTHONPATH": str(self._tree / "src")}

    def admit(self) -> None:
        super().admit()
        with httpx.Client(base_url=self.url, timeout=30) as client:
            self.population.callers = [_fill(client, f"urn:li:corpuser:bench{number:03}") for number in range(ACTORS)]
        self.population.size = ACTORS * TOKENS_OF_EACH

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.processes()) + self._beside()


def _fill(client: httpx.Client, actor: str) -> Holder:
    """Create the actor's tokens; the holder has one of them."""
    token = ""
    for number in range(TOKENS_OF_EACH):
        wanted = {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_DAY", "name": f"token {number}"}
        body = {"query": CREATE, "variables": {"input": wanted}}
        answer = client.post("/api/graphql", json=body, headers={"X-Service-Actor": actor}).json()
        assert "errors" not in answer, answer
        token = answer["data"]["createAccessToken"]["accessToken"]
    return Holder(actor, token)


@contextmanager
def source_tree(ref: str, folder: Path) -> Iterator[Path]:
    """A git worktree of this commit, removed at the end."""
    tree = folder / "tree"
    _git("worktree", "add", "--quiet", "--detach", str(tree), ref)
    try:
        yield tree
    finally:
        _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> None:
    if subprocess.run(["git", *words], cwd=ROOT, check=False).returncode:
        raise SystemExit(f"git {' '.join(words)} failed.")


def python_of(tree: Path) -> Path:
    """This Python, or one with the tree's packages if its lock differs from ours."""
    if (tree / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        return Path(sys.executable)
    progress("installing the other commit's packages")
    subprocess.run(["make", ".venv/.installed"], cwd=tree, check=True, capture_output=True)
    return tree / ".venv/bin/python"


def main(words: Sequence[str]) -> None:
    names = [case.name for case in CASES]
    parser = arguments("compare-ref", __doc__ or "", repeats=15)
    parser.add_argument("ref", metavar="REF", help="the commit to compare with")
    parser.add_argument("--rows", nargs="+", choices=names, default=names, metavar="ROW", help=", ".join(names))
    parser.add_argument("--stores", nargs="+", choices=(SQLITE, POSTGRES), default=(SQLITE, POSTGRES))
    asked = parser.parse_args(words)
    with ready(asked) as folder, source_tree(asked.ref, folder) as tree, ExitStack() as stack:
        trees = {asked.ref: (tree, python_of(tree)), WORKING_TREE: (ROOT, Path(sys.executable))}
        pairs = [_pair(store, trees, folder / store, stack) for store in asked.stores]
        costs = _measure(pairs, asked)
    sys.exit(1 if _report(costs, asked.ref) else 0)


def _pair(store: str, trees: dict[str, tuple[Path, Path]], folder: Path, stack: ExitStack) -> dict[str, TreeContender]:
    """Both servers on this store, running and filled."""
    folder.mkdir()
    cluster = stack.enter_context(bench_cluster(folder)) if store == POSTGRES else None
    pair = {}
    for number, (name, (tree, python)) in enumerate(trees.items()):
        own = folder / str(number)
        own.mkdir()
        how: dict[str, Any] = {"label": name}
        if cluster is not None:
            settings = settings_of(Home(cluster, own)) | {"database_timeout": "20"}  # the core is shared
            how |= {"settings": settings, "beside": partial(used_by, cluster)}
        progress(f"starting {name} on {store}")
        pair[name] = stack.enter_context(TreeContender(store, tree, own, python, **how))
    return pair


Costs = dict[tuple[str, str], dict[str, list[float]]]
"""Microseconds of processor time per request in each repeat, by case and store, then by tree."""


def _measure(pairs: list[dict[str, TreeContender]], asked: argparse.Namespace) -> Costs:
    costs: Costs = {}
    for repeat in range(asked.repeats):
        for case in (one for one in CASES if one.name in asked.rows):
            for pair in pairs:
                for name, contender in sorted(pair.items(), reverse=bool(repeat % 2)):
                    weight = prove(contender, case)
                    if repeat == 0 and asked.warm and not case.once:
                        measure(contender, case, weight=weight, seconds=asked.warm)
                    measured = measure(contender, case, weight=weight, seconds=asked.seconds)
                    costs.setdefault((case.name, contender.store), {}).setdefault(name, []).append(measured.cpu_us)
                    progress(f"{case.name}, {contender.store}, {name}: {measured.cpu_us:,.0f} µs")
    return costs


def _report(costs: Costs, ref: str) -> list[str]:
    """Print the table; returns what is slower by more than 5 % beyond its spread."""
    print(f"Processor time per request in µs, medians; the ratio is {WORKING_TREE} ÷ {ref}")
    print(f"{'':<30}{ref[:12]:>12}{WORKING_TREE:>14}{'ratio':>8}{'spread':>9}")
    slower = []
    for (case, store), by_tree in costs.items():
        before, after = by_tree[ref], by_tree[WORKING_TREE]
        ratios = [b / a for a, b in zip(before, after, strict=True)]
        ratio, spread = median(ratios), _spread(ratios)
        word = "slower" if ratio - spread > 1 else "faster" if ratio + spread < 1 else "same within the spread"
        if ratio - spread > 1 + MOST_SLOWER:
            word = "SLOWER by more than 5 %"
            slower.append(f"{case}, {store}")
        numbers = f"{median(before):>12,.0f}{median(after):>14,.0f}{ratio:>8.3f}{f'±{spread:.3f}':>9}"
        print(f"{f'{case}, {store}':<30}{numbers}   {word}")
    print(f"Slower by more than 5 % beyond the spread: {'; '.join(slower) or 'nothing'}.")
    return slower


def _spread(ratios: Sequence[float]) -> float:
    """Of a single repeat nothing is known; a tenth is assumed."""
    return 2 * MEDIANS * stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else 0.1
