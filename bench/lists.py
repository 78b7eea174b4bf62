"""`python -m bench lists`: what lists cost, one's own of 20 and everybody's of 100: against a bare answer and against
Strawberry.

Strawberry is installed by its name into an environment of its own, on the versions of Watchword's own packages, and
reads the same file.
"""

import asyncio
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import httpx

from bench.cases import LIST_OF_100, OWN_LIST, Case, case
from bench.contenders import BARE, ROOT, WATCHWORD, Contender
from bench.population import populate, salt_of
from bench.report import Report, finish, ratio
from bench.rounds import arguments, bare_ones, progress, ready, run
from watchword.settings import load

SIZES = (100_000,)
LEAST_OF_STRAWBERRY = 8.0
LEAST_SHARE = 0.2
STRAWBERRY = "Strawberry"
PACKAGE = "strawberry-graphql[asgi]"
ENVIRONMENT = ROOT / ".peers" / "strawberry"


class Strawberry(Contender):
    """On the store of a Watchword that runs, and asked by the same bearer."""

    def __init__(self, folder: Path, beside: Contender, data: Path) -> None:
        super().__init__(STRAWBERRY, folder, beside.population, beside.size)
        self._watchword = beside
        self._data = data

    def command(self) -> list[str]:
        return [str(ENVIRONMENT / "bin" / "python"), "-m", "bench.against_strawberry", str(self.port), str(self._data)]

    def environment(self) -> dict[str, str]:
        salt = asyncio.run(salt_of(load({"data_dir": str(self._data)}, {})))
        return {**super().environment(), "PYTHONPATH": str(ROOT / "src"), "BENCH_SALT": salt.reveal().hex()}

    def admit(self) -> None:
        """And it must answer just the same."""
        self.root = self._watchword.root
        request = next(case(LIST_OF_100).requests(self.population, self.root))
        headers = {"Authorization": f"Bearer {request.bearer}", "Content-Type": "application/json"}
        ours, theirs = (
            httpx.post(f"{one.url}/api/graphql", content=request.body, headers=headers, timeout=30).json()
            for one in (self._watchword, self)
        )
        assert ours == theirs, (ours, theirs)


def need_strawberry() -> None:
    if (ENVIRONMENT / ".made").exists():
        return
    progress(f"installing {PACKAGE}")
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    uv, python = ROOT / ".venv/bin/uv", ROOT / ".venv/bin/python"
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", ENVIRONMENT]
    commands: tuple[list[str | Path], ...] = (
        [uv, "venv", "--quiet", "--no-project", "--python", python, ENVIRONMENT],
        [*install, "--no-deps", "--require-hashes", "-r", "requirements/run.lock"],
        [*install, PACKAGE],
    )
    for command in commands:
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise SystemExit(f"{PACKAGE} could not be installed (see above).")
    (ENVIRONMENT / ".made").touch()


def main() -> None:
    asked = arguments("lists", __doc__ or "", sizes=SIZES).parse_args()
    need_strawberry()
    size = max(asked.sizes)
    with ready(asked) as folder, ExitStack() as stack:
        data = folder / WATCHWORD / "data"
        watchword = Contender(WATCHWORD, folder / WATCHWORD, populate(data, size), size)
        (folder / STRAWBERRY).mkdir()
        contenders = [*bare_ones(folder), watchword, Strawberry(folder / STRAWBERRY, watchword, data)]

        def takes(contender: Contender, asked_for: Case) -> bool:
            return asked_for.name == LIST_OF_100 or contender.name != STRAWBERRY

        entered = [stack.enter_context(one) for one in contenders]
        results = run(entered, [OWN_LIST, LIST_OF_100], asked, takes=takes)
    ours, theirs = (LIST_OF_100, WATCHWORD, size), (LIST_OF_100, STRAWBERRY, size)
    laws = [
        ratio(results, "list of 100 ÷ Strawberry with its caches", ours, theirs, least=LEAST_OF_STRAWBERRY),
        ratio(
            results, "own list of 20 ÷ bare answer", (OWN_LIST, WATCHWORD, size), (OWN_LIST, BARE, None),
            least=LEAST_SHARE,
        ),
        ratio(results, "list of 100 ÷ bare answer", ours, (LIST_OF_100, BARE, None)),
    ]  # fmt: skip
    finish(Report("lists", "Lists, one core", laws, results), asked)


if __name__ == "__main__":
    main()
