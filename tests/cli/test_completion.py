"""Shell completion, in the real shells."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_help import HEAVY
from tests.support.server import ADMIN, Server, watchword
from tests.support.system import need_program
from tests.support.terminal import Terminal

BIN = Path(sys.executable).parent
SHELLS = {
    "bash": (("--norc", "--noprofile", "-i"), "source <(watchword completion bash)"),
    "zsh": (("-f", "-i"), "autoload -Uz compinit && compinit -u -D && source <(watchword completion zsh)"),
    "fish": (("--no-config", "-i"), "watchword completion fish | source"),
}
TO_THE_BEGINNING = "\x01"


@pytest.fixture(scope="module", params=SHELLS)
def shell(
    request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    """A shell that has read the output of `watchword completion`, in a folder with a file, with a login."""
    flags, setup = SHELLS[request.param]
    program = need_program(request.param, request.param)
    home = tmp_path_factory.mktemp(request.param)
    (home / "letter-to-anna").touch()
    env = {"XDG_CONFIG_HOME": str(home), "HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}", "PS1": "$ "}
    token = server.create(ADMIN)["accessToken"]
    assert watchword("login", "--profile", "workplace", "--url", server.url, env=env, stdin=token).returncode == 0
    with Terminal(*flags, program=[program], env=env, columns=200) as terminal:
        terminal.enter(f"cd {home}; {setup}; echo all' 'set\n")
        terminal.wait_for("all set")
        yield terminal


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("whoa", "whoami"),
        ("token sc", "scan"),
        ("event li", "list"),
        ("token list --uns", None),
        ("token list --unu", "--unused-for"),
        ("token list --status REV", "revoked"),
        ("completion fi", "fish"),
        ("profile use wor", "workplace"),
        ("whoami --profile wor", "workplace"),
        ("whoami --token-file let", "letter-to-anna"),
    ],
)
def test_tab_completes_the_command(shell: Terminal, typed: str, completed: str | None) -> None:
    before = len(shell.output)
    last = typed.rpartition(" ")[2]
    shell.enter(f"watchword {typed}\t")
    shell.enter(f"{TO_THE_BEGINNING}printf 'got=%s=\\n' \n")
    shell.output = shell.output[:before]
    shell.wait_for(f"got={last if completed is None else completed}=")
    shell.output = ""


@pytest.mark.parametrize("words", ["watchword ", "watchword token ", "watchword token list --st"])
def test_completion_loads_no_command_modules(words: str) -> None:
    code = (
        "import sys\n"
        "from watchword.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print('LOADED', *(name for name, module in sys.modules.items() if module))\n"
    )
    asked = {"_WATCHWORD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    offered, _, loaded = ran.stdout.rpartition("LOADED")
    assert "plain," in offered
    assert HEAVY & set(loaded.split()) <= {"watchword.settings"}
    if words == "watchword ":
        assert [name for name in loaded.split() if name.startswith("watchword.cli.token")] == []


@pytest.mark.parametrize("shell_name", SHELLS)
def test_help_says_how_to_set_up_each_shell(shell_name: str) -> None:
    assert f"watchword completion {shell_name}" in watchword("completion", "--help").stdout


def test_unknown_shell_is_rejected() -> None:
    ran = watchword("completion", "tcsh")
    assert ran.returncode == 2
    assert "bash" in ran.stderr
