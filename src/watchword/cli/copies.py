"""`watchword db copy`."""

import json

import click

from watchword.cli.backstage import Backstage
from watchword.cli.backups import progress
from watchword.cli.common import json_flag, with_settings
from watchword.domain.backups import CopyResult, describe_rows
from watchword.domain.store_urls import PostgresUrl, StoreUrl
from watchword.settings import Settings, read_store_url

_SCHEMA = "Schema of {} where that is PostgreSQL. [default: WATCHWORD_DATABASE_SCHEMA]"


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="The store to copy: sqlite:///… or postgresql://…")
@click.option("--to", "target", required=True, metavar="URL", help="The empty one to copy it to: likewise.")
@click.option("--from-schema", metavar="TEXT", help=_SCHEMA.format("--from"))
@click.option("--to-schema", metavar="TEXT", help=_SCHEMA.format("--to"))
@json_flag
@with_settings("data_dir", "master_key_file")
@click.pass_obj
def copy(
    backstage: Backstage,
    source: str,
    target: str,
    from_schema: str | None,
    to_schema: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Copy a store into an empty one of either kind, with the service stopped; proves that both hold the same.

    A URL must not hold a password, which every user of this machine could read: put it into ~/.pgpass.

    \b
    Example: watchword db copy --from sqlite:///watchword-data/watchword.db --to postgresql://ww@db.example.org/ww
    """
    here = read_store_url("--from", source, "--from-schema", from_schema, settings)
    there = read_store_url("--to", target, "--to-schema", to_schema, settings)
    with progress() as told:
        copied = backstage.copy_store(settings, here, there, told)
    if as_json:
        click.echo(json.dumps(_shown(copied, here, there, settings)))
        return
    click.echo(f"Copied {_named(here)} to {_named(there)}: {describe_rows(copied.rows) or 'nothing, for it is empty'}.")
    click.echo(f"Both hold the same: sha256 {copied.digest}")
    click.echo(f"The master key was NOT copied. Start the service on the copy with {settings.master_key_path},")
    click.echo(f"and no service on {_named(here)} any more: what is revoked in one stays live in the other.")


def _named(place: StoreUrl) -> str:
    return f"{place} (schema {place.schema})" if isinstance(place, PostgresUrl) else str(place)


def _shown(copied: CopyResult, here: StoreUrl, there: StoreUrl, settings: Settings) -> dict[str, object]:
    return {
        "from": _named(here),
        "to": _named(there),
        "rows": dict(copied.rows),
        "sha256": copied.digest,
        "masterKey": str(settings.master_key_path),
        "masterKeyIncluded": False,
    }
