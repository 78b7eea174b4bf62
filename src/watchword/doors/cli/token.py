"""`watchword token`."""

import asyncio
import json

import click

from watchword.domain.actors import system_warrant
from watchword.domain.lifetimes import Duration
from watchword.domain.tokens import NewToken, TokenType, check_description, check_name
from watchword.domain.urns import check_actor
from watchword.doors.cli.backstage import Backstage
from watchword.doors.cli.common import STORE_FLAGS, open_existing, with_settings
from watchword.service.tokens import CreatedToken
from watchword.settings import Settings


@click.group()
def token() -> None:
    """Make tokens."""


@token.command()
@click.option("--local", is_flag=True, required=True, help="Work on the store itself, on the server's machine.")
@click.option("--actor", default=None, metavar="URN", help="Whom the token acts as. [default: the root actor]")
@click.option("--name", default="first", show_default=True, help="What it is for.")
@click.option("--description", default=None, help="More about it.")
@click.option(
    "--duration",
    type=click.Choice([duration.name for duration in Duration]),
    default="ONE_HOUR",
    show_default=True,
    help="How long it lives.",
)
@click.option("--json", "as_json", is_flag=True, help="Print token, id and end as JSON.")
@with_settings(*STORE_FLAGS, "root_actor", "public_url", "host", "port", "allowed_durations", "allow_no_expiry")
@click.pass_obj
def create(
    backstage: Backstage,
    local: bool,
    actor: str | None,
    name: str,
    description: str | None,
    duration: str,
    as_json: bool,
    settings: Settings,
) -> None:
    """Make a token and print it: the first one of a server without local mode.

    Whoever may read the data folder may do this, so no privilege is asked for.

    \b
    Example: watchword token create --local --actor urn:li:corpuser:admin --name first
    """
    new = NewToken(
        type=TokenType.PERSONAL,
        actor_urn=check_actor(actor or settings.root_actor, "--actor"),
        name=check_name(name, "--name"),
        description=check_description(description, "--description"),
    )
    created = asyncio.run(_create(backstage, settings, new, Duration[duration]))
    if as_json:
        record = created.record
        shown = {"accessToken": created.token.reveal(), "id": record.id, "expiresAt": record.expires_at}
        click.echo(json.dumps(shown))
    else:
        click.echo(created.token.reveal())


async def _create(backstage: Backstage, settings: Settings, new: NewToken, duration: Duration) -> CreatedToken:
    async with open_existing(backstage, settings) as service:
        return await service.tokens.mint(system_warrant("command line"), new, duration, None)
