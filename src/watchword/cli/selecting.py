"""Which tokens are meant, by the flags that `token list` and `token revoke` share."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.common import Command
from watchword.cli.moments import Age, Moment
from watchword.domain.tokens import TokenStatus

if TYPE_CHECKING:
    from watchword.client import Client, Where

_OPTIONS = (
    click.option("--all", "everyone", is_flag=True, help="Everyone's, not just the caller's own."),
    click.option("--actor", default=None, metavar="URN", help="Those that act as this user."),
    click.option("--owner", default=None, metavar="URN", help="Those that this user made."),
    click.option(
        "--status",
        multiple=True,
        type=click.Choice([status.name for status in TokenStatus]),
        help="ACTIVE, EXPIRED or REVOKED; may be repeated. [default: all but REVOKED]",
    ),
    click.option("--name-contains", default=None, metavar="TEXT", help="Those with this in their name."),
    click.option("--expires-before", type=Moment(ago=False), metavar="MOMENT", help="A date, time, or span from now."),
    click.option("--expires-after", type=Moment(ago=False), metavar="MOMENT", help="A date, time, or span from now."),
    click.option("--created-before", type=Moment(ago=True), metavar="MOMENT", help="A date, time, or span back."),
    click.option("--created-after", type=Moment(ago=True), metavar="MOMENT", help="A date, time, or span back."),
    click.option("--used-before", type=Moment(ago=True), metavar="MOMENT", help="Last used before this."),
    click.option("--unused-for", type=Age(), metavar="SPAN", help="Neither made nor used for so long, such as 90d."),
)
_FLAGS = (
    "everyone",
    "actor",
    "owner",
    "status",
    "name_contains",
    "expires_before",
    "expires_after",
    "created_before",
    "created_after",
    "used_before",
    "unused_for",
)


@dataclass(frozen=True, slots=True)
class Asked:
    flags: Mapping[str, Any]

    @property
    def is_given(self) -> bool:
        return any(value not in (None, False, ()) for value in self.flags.values())

    @property
    def everyone(self) -> bool:
        return bool(self.flags["everyone"])

    @property
    def is_own(self) -> bool:
        """Nobody's are named, so that the caller's own are meant."""
        return not (self.everyone or self.flags["actor"] or self.flags["owner"])

    def where(self, client: "Client") -> "list[Where]":
        from watchword.client import Where

        flags = self.flags
        unused = flags["unused_for"]
        asked: list[tuple[str, Any, str]] = [
            ("actorUrn", client.me().urn if self.is_own else flags["actor"], "EQUAL"),
            ("ownerUrn", flags["owner"], "EQUAL"),
            ("status", list(flags["status"]) or None, "IN"),
            ("name", flags["name_contains"], "CONTAIN"),
            ("expiresAt", flags["expires_before"], "LESS_THAN"),
            ("expiresAt", flags["expires_after"], "GREATER_THAN_OR_EQUAL_TO"),
            ("createdAt", flags["created_before"], "LESS_THAN"),
            ("createdAt", flags["created_after"], "GREATER_THAN_OR_EQUAL_TO"),
            ("lastUsedAt", flags["used_before"], "LESS_THAN"),
            ("lastActivityAt", None if unused is None else f"PT{unused // 1000}S", "LESS_THAN"),
        ]
        return [
            Where(field, value if isinstance(value, list) else str(value), condition=condition)
            for field, value, condition in asked
            if value is not None
        ]


def narrowing(command: Command) -> Command:
    """Hand the command what was `asked` for by these flags."""

    @wraps(command)
    def run(*args: Any, **flags: Any) -> Any:
        return command(*args, asked=Asked({flag: flags.pop(flag) for flag in _FLAGS}), **flags)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
