"""Help: every command has a description and an example, and help loads fast."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.in_process import watchword
from tests.support.ports import free_port
from tests.support.server import ADMIN
from watchword.cli import cli
from watchword.cli.run import CommandGroup


def everything(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield the command and all commands below a group."""
    yield words, command
    if isinstance(command, CommandGroup):
        for name in list(command.commands):
            yield from everything(f"{words} {name}", loaded(command, name))


def loaded(group: click.Group, name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


COMMANDS = {words: one for words, one in everything("watchword", cli) if not isinstance(one, click.Group)}
GROUPS = {words: one for words, one in everything("watchword", cli) if isinstance(one, CommandGroup)}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_an_example_of_itself(words: str) -> None:
    text = COMMANDS[words].get_help(click.Context(COMMANDS[words], info_name=words))
    assert "Example: " in text
    assert f"{words}" in text.partition("Example: ")[2]


def test_command_alone_shows_its_help() -> None:
    ran = watchword()
    assert "Usage: watchword" in ran.stdout + ran.stderr
    assert "whoami" in ran.stdout + ran.stderr


@pytest.mark.parametrize("words", GROUPS)
def test_group_lists_its_commands_by_whole_sentences(words: str) -> None:
    ran = watchword(*words.split()[1:], "--help", env={"COLUMNS": "80"})
    listed = ran.stdout.partition("Commands:")[2]
    assert listed
    assert "..." not in listed
    assert max(map(len, ran.stdout.splitlines())) <= 80


def test_help_lists_first_steps_on_own_lines() -> None:
    lines = [line.strip() for line in watchword("--help").stdout.splitlines()]
    assert "Start with: watchword serve" in lines


def test_usage_error_and_hint_are_two_sentences() -> None:
    assert "bash, zsh, fish. Try 'watchword completion --help' for help." in watchword("completion").stderr


# Modules that load slowly, or belong to the service.
HEAVY = {
    "apsw", "asyncio", "asyncpg", "cryptography", "granian", "graphql", "httpx", "jwt", "orjson", "prometheus_client",
    "rich", "ssl", "structlog", "uvloop", "watchword.settings", "watchword.app.wiring", "yaml",
}  # fmt: skip


def test_help_loads_nothing_that_only_commands_need() -> None:
    """A module that is not imported costs no time."""
    assert loaded_by("--help") & {"click", *HEAVY} == {"click"}


def test_help_of_a_group_loads_no_more_than_how_its_commands_are_called() -> None:
    loaded = loaded_by("token", "--help")
    assert "watchword.cli.token" in loaded
    assert loaded & HEAVY == {"watchword.settings"}
    assert loaded.isdisjoint({"watchword.cli.scan", "watchword.cli.policy"})


def test_command_that_asks_a_server_loads_the_client_and_nothing_of_the_service() -> None:
    loaded = loaded_by("token", "list", "--json", "--as", ADMIN, "--url", f"http://127.0.0.1:{free_port()}")
    assert loaded & HEAVY == {"httpx", "ssl", "watchword.settings"}


def test_command_on_a_local_store_loads_neither_the_server_nor_another_kind_of_store(tmp_path: Path) -> None:
    loaded = loaded_by("db", "migrate", "--data-dir", str(tmp_path / "data"))
    assert {"watchword.app.wiring", "apsw"} <= loaded
    assert loaded.isdisjoint({"asyncpg", "granian", "graphql", "httpx", "prometheus_client", "rich", "structlog"})


def loaded_by(*words: str) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    code = (
        "import sys\n"
        "from watchword.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print('LOADED', *(name for name, module in sys.modules.items() if module))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(ran.stdout.rpartition("LOADED")[2].split())


# They print a script, a file or the log, or run until they are stopped.
WITHOUT_JSON = {f"watchword {words}" for words in ("completion", "policy export", "retention convert", "serve")}


def test_every_command_that_prints_a_result_prints_json() -> None:
    without = {words for words, one in COMMANDS.items() if "as_json" not in {param.name for param in one.params}}
    assert without == WITHOUT_JSON
