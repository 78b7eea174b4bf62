"""The clients page: its programs print what it shows, and it names the locked versions."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients import NODE, client_env, node_program, surroundings
from tests.support.pages import ADDRESS, ROOT
from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS

PAGE = ROOT / "docs/how-to/datahub-clients.md"
_PROGRAM = re.compile(r"^```(python|js)\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    next(name for name in ("datahub", "gql", "graphql-request") if name in code): (code, shown)
    for _, code, shown in _PROGRAM.findall(PAGE.read_text(encoding="utf-8"))
}


def command(client: str) -> tuple[list[str], Path | None]:
    """Return the command that runs a program from standard input, and its folder."""
    match client:
        case "datahub":
            return [str(client_env("datahub") / "bin/python"), "-"], None
        case "gql":
            return [sys.executable, "-"], None
        case _:
            return [str(node_program()), "--input-type=module"], NODE


@pytest.mark.parametrize("client", ["datahub", "gql", "graphql-request"])
def test_program_of_the_page_prints_what_the_page_shows(server: Server, tmp_path: Path, client: str) -> None:
    code, shown = PROGRAMS[client]
    words, folder = command(client)
    token = server.create(ADMIN)["accessToken"]
    ran = subprocess.run(
        words,
        input=code.replace(ADDRESS, server.url),
        cwd=folder or tmp_path,
        env=surroundings(tmp_path, TOKEN=token),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == shown


def test_page_names_the_locked_version_of_every_client() -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([\d.]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(rows) == 7
    locked = dict(locked_versions())
    assert rows == {name: locked[name] for name in rows}


def locked_versions() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for lock in ("clients-datahub", "clients-mcp", "dev"):
        text = (ROOT / f"requirements/{lock}.lock").read_text()
        found += re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    packages = json.loads((NODE / "package-lock.json").read_text())["packages"]
    found += [(name.removeprefix("node_modules/"), what["version"]) for name, what in packages.items() if name]
    return found
