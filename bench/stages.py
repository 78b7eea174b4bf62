"""`python -m bench stages [--ref REF]`: where the processor time of a request goes, in the working tree and in another
commit, on SQLite.

The kernel counts the processor time of each thread. `py-spy` looks 200 times a second at what a thread does; a look is
counted for the part of the source that is innermost, with what it calls in other packages. Threads without Python are
the server library's. `py-spy` stops the server for each look, so times are taken in a turn of their own without it.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.cases import CASES, Case
from bench.compare_ref import ACTORS, SQLITE, TOKENS_OF_EACH, WORKING_TREE, TreeContender, python_of, source_tree
from bench.contenders import LOAD_CORE, ROOT, is_engine
from bench.load import measure, prove
from bench.rounds import progress, ready

SPY = "py-spy==0.4.3"
ENVIRONMENT = ROOT / ".peers" / "py-spy"
RATE = 200
WRITER_THREAD = "writer thread"
STAGES = {
    "server, request, response": ("app/app", "http/requests", "app/server", "http/errors", "asyncio"),
    "bearer and rights": ("signin/authentication", "authority/"),
    "GraphQL: inputs, plan, result": ("http/graphql/",),
    "rules": ("access/", "tokens/"),
    "signature": ("tokens/keys_service",),
    "log, metrics, uses": ("http/logs", "app/metrics", "tokens/usage_jobs", "audit/"),
    "store": (
        "stores/", "database/", "journal/", "authority/store", "tokens/store", "tokens/rows", "tokens/search_store",
        "tokens/create_store", "tokens/revoke_store", "stores/postgres_verify",
    ),
}  # fmt: skip
OTHER, NO_PYTHON = "other", "server library, without Python"
_THREAD = re.compile(r"thread \((\d+)\)")
_FILE = re.compile(r"\(([^()]+?)(?::\d+)?\)$")


class Seconds(NamedTuple):
    """Processor time of the threads of a worker, and of its other processes."""

    threads: dict[int, float]
    others: float


def need_spy() -> Path:
    program = ENVIRONMENT / "bin" / "py-spy"
    if not program.exists():
        progress(f"installing {SPY}")
        uv = ROOT / ".venv/bin/uv"
        for words in ("venv --quiet --no-project --clear", f"pip install --quiet {SPY} --python"):
            if subprocess.run([uv, *words.split(), ENVIRONMENT], cwd=ROOT, check=False).returncode:
                raise SystemExit(f"{SPY} could not be installed (see above).")
    return program


def stage_of(frames: list[str]) -> str:
    """Of the innermost frame that belongs to a stage. More exact paths win."""
    for frame in reversed(frames):
        found = _FILE.search(frame)
        path = found[1] if found else ""
        inside = path.partition("watchword/")[2] or path
        fitting = [
            (len(start), stage) for stage, starts in STAGES.items() for start in starts if inside.startswith(start)
        ]
        if fitting:
            return max(fitting)[1]
    return OTHER


def worker_of(contender: TreeContender) -> psutil.Process:
    """The process that has used most."""
    return max((one for one in contender.processes() if not is_engine(one)), key=lambda one: sum(one.cpu_times()[:2]))


def seconds_of(contender: TreeContender, worker: psutil.Process) -> Seconds:
    threads = {one.id: one.user_time + one.system_time for one in worker.threads()}
    return Seconds(threads, contender.cpu_seconds() - sum(worker.cpu_times()[:2]))


def stages(contender: TreeContender, case: Case, seconds: int, spy: Path, folder: Path) -> dict[str, float]:
    """Microseconds of a request by stage."""
    weight = prove(contender, case)
    if not case.once:
        measure(contender, case, weight=weight, seconds=1)
    worker = worker_of(contender)
    before = seconds_of(contender, worker)
    measured = measure(contender, case, weight=weight, seconds=seconds)
    after = seconds_of(contender, worker)
    number = measured.per_second * seconds
    looks = _looks(contender, case, weight, seconds, spy, folder, worker)
    costs: defaultdict[str, float] = defaultdict(float)
    for thread, used in after.threads.items():
        us = (used - before.threads.get(thread, 0.0)) / number * 1_000_000
        seen = looks.get(thread)
        if not seen:
            costs[NO_PYTHON] += us
            continue
        for stage, count in seen.items():
            costs[stage] += us * count / seen.total()
    costs["other processes"] = (after.others - before.others) / number * 1_000_000
    costs["all"] = measured.cpu_us
    return costs


def _looks(
    contender: TreeContender, case: Case, weight: int, seconds: int, spy: Path, folder: Path, worker: psutil.Process
) -> dict[int, Counter[str]]:
    """How often each thread was seen in each stage."""
    raw = folder / "looks"
    flags = f"record --threads --nolineno --format raw --rate {RATE} --duration {seconds} --pid {worker.pid} --output"
    command = ["taskset", "-c", LOAD_CORE, str(spy), *flags.split(), str(raw)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as looking:
        measure(contender, case, weight=weight, seconds=seconds + 1)
        if looking.wait():
            raise SystemExit("py-spy could not look at the server. Are you root?")
    looks: dict[int, Counter[str]] = {}
    for line in raw.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        found = _THREAD.match(thread)
        if found is None:
            continue
        stage = WRITER_THREAD if any("sqlite/writer" in frame for frame in frames) else stage_of(frames)
        looks.setdefault(int(found[1]), Counter())[stage] += int(count)
    return looks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench stages", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--ref", help="another commit to look at")
    parser.add_argument("--seconds", type=int, default=8, help="of one measurement")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the stores: a real disk")
    asked = parser.parse_args()
    spy = need_spy()
    with ready(asked) as folder, ExitStack() as stack:
        trees = {WORKING_TREE: (ROOT, Path(sys.executable))}
        if asked.ref:
            tree = stack.enter_context(source_tree(asked.ref, folder))
            trees = {asked.ref: (tree, python_of(tree)), **trees}
        servers = {}
        for name, (tree, python) in trees.items():
            own = folder / f"store {name}"
            own.mkdir()
            servers[name] = stack.enter_context(TreeContender(SQLITE, tree, own, python, label=name))
        for case in CASES:
            _print(case.name, {name: stages(one, case, asked.seconds, spy, folder) for name, one in servers.items()})


def _print(case: str, by_tree: dict[str, dict[str, float]]) -> None:
    print(f"\n{case}, µs of processor time per request; {ACTORS} actors with {TOKENS_OF_EACH} tokens each")
    names = dict.fromkeys(stage for costs in by_tree.values() for stage, us in costs.items() if us >= 0.5)
    print(f"{'':<34}" + "".join(f"{tree:>14}" for tree in by_tree))
    for stage in sorted(names, key=lambda one: -max(costs.get(one, 0) for costs in by_tree.values())):
        print(f"{stage:<34}" + "".join(f"{costs.get(stage, 0):>14.1f}" for costs in by_tree.values()), flush=True)


if __name__ == "__main__":
    main()
