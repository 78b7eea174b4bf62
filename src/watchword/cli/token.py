"""`watchword token`: what it lists and shows; what makes and ends tokens is beside this."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.later import LaterGroup
from watchword.cli.remote import with_client
from watchword.cli.selecting import Asked, narrowing
from watchword.cli.show import Cell, Column, When, first, on_terminal, show_list, show_one
from watchword.domain.filters import SortField

if TYPE_CHECKING:
    from watchword.client import Client, TokenInfo

COLUMNS: "list[Column[TokenInfo]]" = [
    Column("ID", lambda token: token.id),
    Column("NAME", lambda token: token.name, free=True),
    Column("STATUS", lambda token: token.effective_status),
    Column("EXPIRES", lambda token: When(token.expires_at, "never")),
    Column("USED", lambda token: When(token.last_used_at)),
    Column("ACTOR", lambda token: token.actor_urn),
]


_LATER = {
    "create": ("token_making", "Make a token and print it, this once."),
    "derive": ("token_making", "Make a narrower and shorter token of the caller's own and print it, this once."),
    "rotate": ("token_making", "Replace a token by a successor with the same name, actor and limits, without a gap."),
    "revoke": ("token_ending", "End tokens, and those derived from them."),
    "scan": (
        "token_scanning",
        "Find tokens that lie in files, or below folders, or in standard input (-), and say which are live.",
    ),
}


@click.group(cls=LaterGroup, later=_LATER)
def token() -> None:
    """Make tokens, look at them, replace them, end them."""


@token.command("list")
@narrowing
@click.option("--sort", type=click.Choice([field.value.word for field in SortField]), help="What to order by.")
@click.option("--descending", is_flag=True, help="The greatest first.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many.")
@json_flag
@with_client
def list_tokens(
    client: "Client", asked: Asked, sort: str | None, descending: bool, limit: int | None, as_json: bool
) -> None:
    """The caller's own tokens, or those of --actor, --owner or --all.

    \b
    Example: watchword token list --status ACTIVE --expires-before P7D
    Example: watchword token list --all --unused-for 90d --json --as urn:li:corpuser:admin
    """
    size = min(1_000, (limit or 1_000) + 1)
    found = client.tokens(
        *asked.where(client), sort=sort or "expiresAt", descending=descending or sort is None, page_size=size
    )
    columns = COLUMNS[:-1] if asked.is_own and on_terminal() else COLUMNS  # whose they are goes without saying
    show_list(first(found, limit), columns, json=as_json, empty="No tokens.")


@token.command()
@click.argument("token_id", metavar="ID")
@json_flag
@with_client
def show(client: "Client", token_id: str, as_json: bool) -> None:
    """One token's record, by its id or urn; revoked ones too.

    \b
    Example: watchword token show kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    """
    found = client.get_token(token_id)
    pairs = {
        "Name": found.name,
        "Description": found.description,
        "Status": found.effective_status,
        "Acts as": found.actor_urn,
        "Made by": found.owner_urn,
        "Type": found.token_type,
        "Scopes": _limit(found.scopes, "whatever its actor may do"),
        "Audience": _limit(found.audience, "this service"),
        "Networks": _limit(found.allowed_networks, "from anywhere"),
        "Created": When(found.created_at),
        "Expires": When(found.expires_at, "never"),
        "Last used": When(found.last_used_at),
        "Uses": found.use_count,
        "Last from": found.last_network,
        "Revoked": When(found.revoked_at),
        **_family(found),
        "Id": found.id,
        "Urn": found.urn,
    }
    show_one(pairs, found, json=as_json)


def _limit(words: tuple[str, ...] | None, unlimited: str) -> Cell:
    return unlimited if words is None else words or "nothing"


def _family(found: "TokenInfo") -> dict[str, Cell]:
    """What others it stands and falls with; most have none."""
    pairs: dict[str, Cell] = {
        "Derived from": found.parent_id,
        "Minted with": found.minted_with,
        "Replaces": found.replaces,
        "Replaced by": found.replaced_by,
    }
    if found.awaits_first_use:
        pairs["First use"] = "awaited; until then it ends with the overlap"
        pairs["Then ends"] = When(found.expires_at_once_used, "never")
    if found.replaced_at is not None:
        pairs["Replaced"] = When(found.replaced_at)
    return {title: value for title, value in pairs.items() if value is not None}
