"""`watchword keys`."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import STORE_FLAGS, json_flag, open_existing, with_settings
from watchword.cli.outcome import plain_errors
from watchword.cli.show import iso
from watchword.domain.actors import system_precondition
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.domain.ports import SealedKey


@click.group()
def keys() -> None:
    """The keys that sign tokens, and the master key that seals them."""


@keys.command("list")
@json_flag
@with_settings(*STORE_FLAGS)
@click.pass_obj
def list_keys(backstage: Backstage, as_json: bool, settings: Settings) -> None:
    """The keys, newest first: the first signs, the others are published until their last token is dead.

    \b
    Example: watchword keys list --json
    """
    import asyncio

    found = asyncio.run(_list(backstage, settings))
    if as_json:
        click.echo(json.dumps([_shown(key) for key in found]))
        return
    for key in found:
        state = "signs" if key.retired_at is None else f"published until {_moment(key.published_until) or 'removed'}"
        click.echo(f"{key.kid}  made {_moment(key.created_at)}  {state}")


@keys.command()
@with_settings(*STORE_FLAGS)
@click.pass_obj
def rotate(backstage: Backstage, settings: Settings) -> None:
    """Sign with a new key from now on, on every instance. Tokens made before go on working.

    \b
    Example: watchword keys rotate
    """
    import asyncio

    key = asyncio.run(_rotate(backstage, settings))
    click.echo(f"Signing with {key.kid} from now on.")


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def master(backstage: Backstage, file: Path) -> None:
    """Make a master key for a store on PostgreSQL. Every instance needs the same one: WATCHWORD_MASTER_KEY_FILE.

    It seals the signing keys: keep a copy apart from the backups of the database. A file that is there stays as it is.

    \b
    Example: watchword keys master /etc/watchword/master.key
    """
    with plain_errors():
        backstage.make_key(file)
    click.echo(f"Made {file}. Keep a copy in a safe place: without it the store cannot be opened.")


async def _list(backstage: Backstage, settings: Settings) -> "tuple[SealedKey, ...]":
    async with open_existing(backstage, settings) as service:
        return await service.keys.all()


async def _rotate(backstage: Backstage, settings: Settings) -> "SealedKey":
    async with open_existing(backstage, settings) as service:
        return await service.keys.rotate(system_precondition("command line"))


def _shown(key: "SealedKey") -> dict[str, str | None]:
    return {
        "kid": key.kid,
        "createdAt": iso(key.created_at),
        "retiredAt": iso(key.retired_at),
        "publishedUntil": iso(key.published_until),
    }


def _moment(milliseconds: int | None) -> str | None:
    return (
        None
        if milliseconds is None
        else datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    )
