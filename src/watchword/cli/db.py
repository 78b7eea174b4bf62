"""`watchword db`."""

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import STORE_FLAGS, need_store, with_settings
from watchword.cli.later import LaterGroup
from watchword.cli.text import one_line
from watchword.settings import Settings

_LATER = {
    "backup": (
        "backups",
        "Copy the store to FILE while the service runs: all of one moment, checked, whole or not at all.",
    ),
    "restore": ("backups", "Put a backup in the store's place, with the service stopped."),
    "copy": (
        "copies",
        "Copy a store into an empty one of either kind, with the service stopped; proves that both hold the same.",
    ),
}


@click.group(cls=LaterGroup, later=_LATER)
def db() -> None:
    """Look after the store."""


@db.command()
@with_settings(*STORE_FLAGS)
@click.pass_obj
def migrate(backstage: Backstage, settings: Settings) -> None:
    """Make the store, or migrate it to this version's schema; only this command and `serve` do.

    \b
    Example: watchword db migrate --data-dir ./watchword-data
    """
    click.echo(str(backstage.prepare_store(settings)))


@db.command()
@with_settings(*STORE_FLAGS)
@click.pass_obj
def check(backstage: Backstage, settings: Settings) -> None:
    """Prove that the store is sound; exit code 1 if it is not. Safe while the service runs.

    \b
    Example: watchword db check --data-dir ./watchword-data
    """
    need_store(backstage, settings)
    sound = True
    for law, problem in backstage.check_store(settings):
        sound = sound and problem is None
        click.echo(one_line(f"{'ok  ' if problem is None else 'BAD '} {law}{f': {problem}' if problem else ''}"))
    if not sound:
        raise SystemExit(1)
