"""`watchword keys`."""

from pathlib import Path

import click

from watchword.cli.local import LocalService, Wiring, run_locally, with_store
from watchword.cli.options import json_flag
from watchword.cli.output import When, iso, say, say_json
from watchword.cli.run import Group
from watchword.domain.actors import system_precondition
from watchword.domain.errors import OperatorError
from watchword.domain.keys import KeyKind, SealedKey
from watchword.settings import Settings


@click.group(cls=Group)
def keys() -> None:
    """Manage the signing keys and the master key."""


@keys.command("list")
@json_flag
@with_store
def list_keys(wiring: Wiring, as_json: bool, settings: Settings) -> None:
    """List signing keys, newest first. The first signs; the others stay published until their last token has expired.
    The last line is the next key, which is published and signs after the next rotation.

    Example: watchword keys list --json
    """

    async def read(service: LocalService) -> tuple[tuple[SealedKey, ...], SealedKey]:
        return await service.keys.all(), await service.keys.following()

    found, following = run_locally(wiring, settings, read)
    states = [(key, "signs" if key.retired_at is None else "retired") for key in found] + [(following, "next")]
    if as_json:
        say_json([_row(key, state) for key, state in states])
        return
    for key, state in states:
        shown = f"published until {When(key.published_until, 'removed').iso}" if state == "retired" else state
        say(f"{key.kid}  {key.kind.value}  created {iso(key.created_at)}  {shown}")


def _row(key: SealedKey, state: str) -> dict[str, str | None]:
    times = {"createdAt": key.created_at, "retiredAt": key.retired_at, "publishedUntil": key.published_until}
    shown = {name: None if at is None else iso(at) for name, at in times.items()}
    return {"kid": key.kid, "kind": key.kind.value, "state": state, **shown}


@keys.command()
@click.option("--kind", type=click.Choice([kind.name.lower() for kind in KeyKind]), help="Change to keys of this kind.")
@with_store
def rotate(wiring: Wiring, kind: str | None, settings: Settings) -> None:
    """Sign with the next key from now on, on every instance. Existing tokens stay valid.

    With --kind and a next key of another kind, publish one of that kind instead: it signs when you run the command
    again after five minutes, when services that cache the keys know it. Later keys are of the same kind.

    Example: watchword keys rotate
    Example: watchword keys rotate --kind rs256
    """
    by = system_precondition("command line")

    async def run(service: LocalService) -> str:
        prepared = None if kind is None else await service.keys.prepare(by, KeyKind[kind.upper()])
        if prepared is None or prepared.waits_until is None:
            key = await service.keys.rotate(by)
            return f"Signing with {key.kid} ({key.kind.value}) from now on."
        key = prepared.key
        again = f"Run this again after {iso(prepared.waits_until)}, when services that cache the keys know it."
        if not prepared.is_new:
            raise OperatorError(
                f"{key.kid} ({key.kind.value}) was published at {iso(key.created_at)}. {again} To sign with it now: "
                "watchword keys rotate"
            )
        return f"Published {key.kid} ({key.kind.value}). It does not sign yet. {again}"

    say(run_locally(wiring, settings, run))


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
