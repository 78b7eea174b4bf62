"""`watchword keys`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchword.cli.local import Wiring, run_locally, with_store
from watchword.cli.options import json_flag
from watchword.cli.output import When, iso, say, say_json
from watchword.cli.run import Group
from watchword.domain.actors import system_precondition
from watchword.settings import Settings

if TYPE_CHECKING:
    from watchword.domain.ports import SealedKey


@click.group(cls=Group)
def keys() -> None:
    """Manage the signing keys and the master key."""


@keys.command("list")
@json_flag
@with_store
def list_keys(wiring: Wiring, as_json: bool, settings: Settings) -> None:
    """List signing keys, newest first. The first signs; the others stay published until their last token has expired.

    Example: watchword keys list --json
    """
    found = run_locally(wiring, settings, lambda service: service.keys.all())
    if as_json:
        say_json([{"kid": key.kid} | {name: at and iso(at) for name, at in _times(key).items()} for key in found])
        return
    for key in found:
        state = "signs" if key.retired_at is None else f"published until {When(key.published_until, 'removed').iso}"
        say(f"{key.kid}  created {iso(key.created_at)}  {state}")


def _times(key: "SealedKey") -> dict[str, int | None]:
    return {"createdAt": key.created_at, "retiredAt": key.retired_at, "publishedUntil": key.published_until}


@keys.command()
@with_store
def rotate(wiring: Wiring, settings: Settings) -> None:
    """Sign with a new key from now on, on every instance. Existing tokens stay valid.

    Example: watchword keys rotate
    """
    by = system_precondition("command line")
    key = run_locally(wiring, settings, lambda service: service.keys.rotate(by))
    say(f"Signing with {key.kid} from now on.")


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def master(wiring: Wiring, file: Path) -> None:
    """Create a master key for a store on PostgreSQL. Every instance needs the same one: WATCHWORD_MASTER_KEY_FILE.

    It encrypts the signing keys. Keep a copy apart from the database's backups. An existing file is not overwritten.

    Example: watchword keys master /etc/watchword/master.key
    """
    wiring.make_key(file)
    say(f"Created {file}. Keep a copy in a safe place: without it the store cannot be opened.")
