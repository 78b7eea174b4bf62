"""A group that imports a command's module when the command is called, so that commands start fast.

Group help lists commands without importing them, so each group repeats their first sentences; a test compares the two.
"""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Commands(MutableMapping[str, click.Command]):
    """The commands of a group: those added to it, then those that are imported on lookup."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._added: dict[str, click.Command] = {}
        self._modules = modules

    def __getitem__(self, name: str) -> click.Command:
        if name in self._added:
            return self._added[name]
        module = import_module(f"watchword.cli.{self._modules[name]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._added[name] = command

    def __delitem__(self, name: str) -> None:
        del self._added[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._added, *self._modules])

    def __len__(self) -> int:
        return len(self._added) + len(self._modules)


class LazyGroup(click.Group):
    def __init__(self, name: str | None = None, *, lazy: Mapping[str, tuple[str, str]], **options: Any) -> None:
        """`lazy` maps a command's name to its module and its sentence."""
        super().__init__(name, commands=_Commands({name: module for name, (module, _) in lazy.items()}), **options)
        self.sentences = {name: sentence for name, (_, sentence) in lazy.items()}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=self._sentence(name)) for name in self.commands if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with its whole sentence, which click would cut at the end of the line."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._sentence(name)) for name in sorted(self.commands)])

    def _sentence(self, name: str) -> str:
        return self.sentences.get(name) or self.commands[name].get_short_help_str(200)
