"""Help: every command says what it does with an example, quickly."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tests.support.server import watchword
from watchword.doors.cli import cli


def commands(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from commands(f"{words} {name}", inner)


COMMANDS = dict(commands("watchword", cli))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_an_example_of_itself(words: str) -> None:
    text = COMMANDS[words].get_help(click.Context(COMMANDS[words], info_name=words))
    assert "Example: " in text
    assert f"{words}" in text.partition("Example: ")[2]


def test_the_command_alone_shows_its_help() -> None:
    ran = watchword()
    assert "Usage: watchword" in ran.stdout + ran.stderr
    assert "whoami" in ran.stdout + ran.stderr


def test_help_loads_neither_the_service_nor_what_commands_need_later() -> None:
    """What is not imported costs no time."""
    code = (
        "import sys; sys.argv = ['watchword', '--help']\n"
        "from watchword.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print('LOADED', *sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.partition("LOADED")[2].split())
    assert "click" in loaded
    assert loaded.isdisjoint({"httpx", "rich", "yaml", "watchword.wiring", "granian", "graphql", "apsw"})
