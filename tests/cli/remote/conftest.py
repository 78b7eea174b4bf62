from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.server import ADMIN, Server

Run = Callable[..., "CompletedProcess[str]"]


def asking(server: Server) -> Run:
    def call(*words: str, caller: str = ADMIN, **how: Any) -> "CompletedProcess[str]":
        return watchword(*words, "--url", server.url, "--as", caller, **how)

    return call


@pytest.fixture
def run(server: Server) -> Run:
    """Run a command against the shared server, as the root actor unless another caller is named."""
    return asking(server)


@pytest.fixture
def run_slowly(slow_server: Server) -> Run:
    """Run a command against the server with slow truncations."""
    return asking(slow_server)


@pytest.fixture
def done(run: Run) -> Callable[..., str]:
    """Return the output of a command that must succeed and print nothing to standard error."""

    def call(*words: str, **how: Any) -> str:
        ran = run(*words, **how)
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
        return ran.stdout

    return call
