"""Read the pages of the documentation and run their blocks unchanged.

A block marked `sh` is run; a block marked `text` right after it is its output, errors included, where `…` matches
anything within a line. All blocks of a page are one shell session. A block marked `console` has commands that run until
they are stopped, and targets of `make`, which CI runs. A block marked `json` is JSON.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.ports import free_port
from tests.support.preloaded import folder_with_program
from tests.support.server import Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://127.0.0.1:8080"
POSTGRES_PORT = "5432"
PLACE = ADDRESS.removeprefix("http://")
OTHER_PORTS = ("8081", "8082", "8443", "8000", "9000")
"""Ports of services that a page starts."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_MARK = "=== end of block ==="


@dataclass(frozen=True, slots=True)
class Block:
    code: str
    shown: str | None
    """The output that the page shows."""

    def prints(self, output: str) -> bool:
        assert self.shown is not None
        pattern = ".*".join(re.escape(piece) for piece in self.shown.split("…"))
        return re.fullmatch(pattern, output) is not None


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    made: list[Block] = []
    for index, match in enumerate(found):
        if match[1] != "sh":
            continue
        after = found[index + 1] if index + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        made.append(Block(match[2], after[2].strip() if after is not None and follows else None))
    return made


def unending(page: Path) -> list[str]:
    """The commands of the `console` blocks, one per line."""
    found = [match[2] for match in _BLOCK.finditer(page.read_text(encoding="utf-8")) if match[1] == "console"]
    lines = "".join(found).replace("\\\n", " ").splitlines()
    return [line.partition("  #")[0].strip() for line in lines if line.strip()]


def kinds(page: Path) -> set[str]:
    return {match[1] for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))}


def links(page: Path) -> Iterator[str]:
    """The relative links of a page, without code blocks and without the addresses of other sites."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def environment(*programs: Path, **more: str) -> dict[str, str]:
    """A reader's environment: `watchword` and the folders `programs` are on the path; `more` is what a test must set
    instead of a page.
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WATCHWORD_", "XDG_CONFIG_"))}
    path = ":".join([str(Path(sys.executable).parent), *map(str, programs), clean["PATH"]])
    return clean | {"PATH": path, **more}


def forking(surroundings: dict[str, str]) -> dict[str, str]:
    """The same with a `watchword` that forks, for a third of the processor time of a start."""
    return surroundings | {"PATH": f"{folder_with_program()}:{surroundings['PATH']}"}


def run_blocks(page: Path, server: Server, *programs: Path, **more: str) -> list[tuple[Block, str]]:
    """Run the blocks and return each with its output. Only the addresses of servers are replaced: the service's, and
    PostgreSQL's if `PGPORT` is given.
    """
    need_program("curl", "curl")
    found = blocks(page)
    database = more.get("PGPORT", POSTGRES_PORT)
    # In one pass: a free port may contain the digits of another.
    meant = {port: str(free_port()) for port in OTHER_PORTS} | {POSTGRES_PORT: database}
    meant |= {ADDRESS: server.url, PLACE: server.url.removeprefix("http://")}
    script = f"\necho '{_MARK}'\n".join(block.code for block in found)
    script = re.sub("|".join(meant), lambda named: meant[named[0]], script)
    surroundings = environment(*programs, WATCHWORD_URL=server.url, HOME=str(server.folder), **more)
    if page.name != "README.md":  # which runs the program as it is installed
        surroundings = forking(surroundings)
    output = _run(script, server.folder, surroundings).replace(f":{database}/", f":{POSTGRES_PORT}/")
    outputs = output.replace("\r", "").split(_MARK)
    assert len(outputs) == len(found)
    return list(zip(found, (output.strip() for output in outputs), strict=True))


def _run(script: str, folder: Path, surroundings: dict[str, str]) -> str:
    """Run the script, return its output, and kill the processes it left running."""
    words = ["bash", "-eu", "-o", "pipefail", "-c", script]
    with subprocess.Popen(
        words,
        cwd=folder,
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            printed, _ = shell.communicate(timeout=SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, printed
    return printed
