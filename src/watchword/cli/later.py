"""A group whose commands are loaded when they are called: a command does not wait for what the others need.

Help needs a sentence of each alone, which therefore stands beside its place; a test holds it to the command's own.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Commands(MutableMapping[str, click.Command]):
    """The commands of a group: those that are there, then those that are loaded when they are looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._here: dict[str, click.Command] = {}
        self._places = places

    def __getitem__(self, name: str) -> click.Command:
        if name in self._here:
            return self._here[name]
        command: click.Command = getattr(import_module(f"watchword.cli.{self._places[name]}"), name)
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._here[name] = command

    def __delitem__(self, name: str) -> None:
        del self._here[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._here, *self._places])

    def __len__(self) -> int:
        return len(self._here) + len(self._places)


class LaterGroup(click.Group):
    def __init__(self, name: str | None = None, *, later: Mapping[str, tuple[str, str]], **how: Any) -> None:
        """`later` has by its name each command's module and sentence."""
        super().__init__(name, commands=_Commands({name: place for name, (place, _) in later.items()}), **how)
        self.sentences = {name: sentence for name, (_, sentence) in later.items()}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Without loading what is only named."""
        from click.shell_completion import CompletionItem

        named = [name for name in self.commands if name.startswith(incomplete)]
        sentences = {name: self.sentences.get(name) or self.commands[name].get_short_help_str() for name in named}
        found = [CompletionItem(name, help=sentence) for name, sentence in sentences.items()]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each with its whole sentence: click would cut it where the line ends."""
        rows = [
            (name, self.sentences.get(name) or self.commands[name].get_short_help_str(200))
            for name in sorted(self.commands)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
