"""`watchword keys`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchword.cli.local import Wiring, open_existing
from watchword.cli.options import STORE_FLAGS, json_flag, with_settings
from watchword.cli.output import iso, json_text, say
from watchword.cli.run import plain_errors
from watchword.domain.actors import system_precondition
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.domain.ports import SealedKey


@click.group()
def keys() -> None:
    """Manage the signing keys and the master key."""


@keys.command("list")
@json_flag
@with_settings(*STORE_FLAGS)
@click.pass_obj
def list_keys(wiring: Wiring, as_json: bool, settings: Settings) -> None:
    """List signing keys, newest first. The first signs; the others stay published until their last token has expired.

    \b
    Example: watchword keys list --json
    """
    import asyncio

    found = asyncio.run(_all_keys(wiring, settings))
    if as_json:
        say(json_text([_json(key) for key in found]))
        return
    for key in found:
        state = "signs" if key.retired_at is None else f"published until {_time(key.published_until) or 'removed'}"
        say(f"{key.kid}  created {_time(key.created_at)}  {state}")


@keys.command()
@with_settings(*STORE_FLAGS)
@click.pass_obj
def rotate(wiring: Wiring, settings: Settings) -> None:
    """Sign with a new key from now on, on every instance. Existing tokens stay valid.

    \b
    Example: watchword keys rotate
    """
    import asyncio

    key = asyncio.run(_rotate(wiring, settings))
    say(f"Signing with {key.kid} from now on.")


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def master(wiring: Wiring, file: Path) -> None:
    """Create a master key for a store on PostgreSQL. Every instance needs the same one: WATCHWORD_MASTER_KEY_FILE.

    It encrypts the signing keys. Keep a copy apart from the database's backups. An existing file is not overwritten.

    \b
    Example: watchword keys master /etc/watchword/master.key
    """
    with plain_errors():
        wiring.make_key(file)
    say(f"Created {file}. Keep a copy in a safe place: without it the store cannot be opened.")


async def _all_keys(wiring: Wiring, settings: Settings) -> "tuple[SealedKey, ...]":
    async with open_existing(wiring, settings) as service:
        return await service.keys.all()


async def _rotate(wiring: Wiring, settings: Settings) -> "SealedKey":
    async with open_existing(wiring, settings) as service:
        return await service.keys.rotate(system_precondition("command line"))


def _json(key: "SealedKey") -> dict[str, str | None]:
    return {
        "kid": key.kid,
        "createdAt": iso(key.created_at),
        "retiredAt": iso(key.retired_at),
        "publishedUntil": iso(key.published_until),
    }


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{iso(milliseconds)[:-5]}Z".replace("T", " ")
