"""Shell completion, in the real shells."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_help import HEAVY
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, Server, watchword
from tests.support.system import need_program
from tests.support.terminal import Terminal
from tests.support.waiting import until

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
    token = server.create(ADMIN, name=f"completed-{request.param}")["accessToken"]
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
        ("--profile wor", "workplace"),
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


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        ("policy show", "everyone-t", "everyone-task-status"),
        ("actor show", "adm", "admin"),
        ("event list --actor", "adm", "admin"),
        ("token create --actor", "adm", "admin"),
    ],
)
def test_ids_are_completed(server: Server, words: str, typed: str, expected: str) -> None:
    server.create(ADMIN)
    until(lambda: expected in completed(f"watchword --url {server.url} --as admin {words}", typed), "it is completed")


def test_ids_of_tokens_are_completed_from_their_names(server: Server) -> None:
    made = server.create(ADMIN, name="a name to complete")["metadata"]["id"]
    words = f"watchword token show --url {server.url} --as admin"
    until(lambda: completed(words, "A name to c") == [made], "it is completed from its name")
    until(lambda: completed(words, made[:20]) == [made], "it is completed from its id")


def test_ids_that_a_shell_would_run_are_not_offered(server: Server) -> None:
    for name in ("zz-$(reboot)", "zz-`reboot`", "zz-;reboot", "zz-*", "zz-plain"):
        server.create(ADMIN, of=f"urn:li:corpuser:{name}")
    words = f"watchword actor show --url {server.url} --as admin"
    until(lambda: completed(words, "zz-") == ["zz-plain"], "only one is completed")
    assert completed(f"{words} --token-file -", "zz-") == []


def test_completion_without_a_server_offers_nothing() -> None:
    assert completed("watchword token show --as admin --url http://127.0.0.1:1", "x") == []
    assert completed("watchword token show", "x") == []


def completed(words: str, typed: str) -> list[str]:
    """What bash is offered for the word that is typed."""
    given = shlex.split(words)
    env = {**without_settings(), "_WATCHWORD_COMPLETE": "bash_complete", "XDG_CONFIG_HOME": "/nowhere"}
    asked = {"COMP_WORDS": shlex.join([*given, typed]), "COMP_CWORD": str(len(given))}
    ran = subprocess.run(
        [sys.executable, "-m", "watchword"], env=env | asked, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    return [line.removeprefix("plain,") for line in ran.stdout.splitlines() if line]


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
