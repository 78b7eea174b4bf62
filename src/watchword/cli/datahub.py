"""`watchword import`."""

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from watchword.basics.errors import Fault, OperatorError
from watchword.cli import output as out
from watchword.cli.local import need_store, wiring, with_store
from watchword.cli.options import format_flags, percent, seconds
from watchword.cli.run import CommandGroup, WrongUse
from watchword.settings import Settings, read_datahub_url

if TYPE_CHECKING:
    from watchword.datahub.service import DataHubImport, ImportOptions
    from watchword.setting_values import DataHubUrl

_COLUMNS = out.columns("what, outcome, count, reason*, examples*")


@click.group(cls=CommandGroup, name="import")
def import_() -> None: ...


@import_.command()
@click.option(
    "--from",
    "source",
    metavar="URL_OR_FILE",
    help="DataHub's database (mysql://… or postgresql://…, without a password), its export file, or - for standard "
    "input. [default: WATCHWORD_DATAHUB_URL, or the file that WATCHWORD_DATAHUB_URL_FILE names]",
)
@click.option("--dry-run", is_flag=True, help="Show what would be imported or skipped, with reasons.")
@click.option("--allow-no-expiry", is_flag=True, help="Import tokens that never expire too.")
@click.option(
    "--allow-root", is_flag=True, help="Import tokens of actors too who hold, or can get, every privilege here."
)
@click.option("--tokens-only", is_flag=True, help="Leave groups and policies as they are here.")
@click.option(
    "--at-most",
    type=percent,
    default="1%",
    show_default=True,
    help="Revoke nothing if more than this share of the imported live tokens is gone in DataHub. One token may "
    "always be gone, unless this is 0%.",
)
@click.option("--follow", is_flag=True, help="Run again and again, until Ctrl-C.")
@click.option("--every", type=seconds, default="60", help="Pause between runs of --follow. [default: 60s]")
@format_flags
@with_store
def datahub(
    source: str | None,
    dry_run: bool,
    allow_no_expiry: bool,
    allow_root: bool,
    tokens_only: bool,
    at_most: int,
    follow: bool,
    every: int,
    settings: Settings,
) -> None:
    """Import from DataHub, beside a running service; run it again to follow DataHub.

    Tokens keep their ids and stay valid. People who are suspended in DataHub are suspended first. A token that is gone
    in DataHub since the last run is revoked here. What is revoked here stays revoked. DataHub is only read.

    The service finds these tokens by DataHub's salt: set WATCHWORD_DATAHUB_SALT for it.

    Groups and policies follow DataHub too: changes made to them here are undone by the next run, except with
    --tokens-only.

    Exits with 1 if nothing was revoked because too much was gone in DataHub.

    Example: watchword import datahub --from datahub.jsonl --dry-run
    """
    from watchword.datahub.service import ImportOptions
    from watchword.datahub.wiring import open_import

    url = settings.datahub_url if source is None else read_datahub_url("--from", source)
    if url is None:
        raise WrongUse("Name the source with --from, WATCHWORD_DATAHUB_URL or WATCHWORD_DATAHUB_URL_FILE.")
    if follow and str(url) == "standard input":
        raise WrongUse("--follow cannot read standard input again. Name a database or a file.")
    if every < 1:
        raise WrongUse("--every must be at least 1s.")
    need_store(settings)
    wiring.prepare_store(settings, may_migrate=False)
    if settings.datahub_salt is None:
        out.warn("WATCHWORD_DATAHUB_SALT is not set here. A service without it rejects every imported token.")
    options = ImportOptions(dry_run, allow_no_expiry, allow_root, tokens_only, at_most)

    async def work() -> bool:
        async with open_import(settings) as importer:
            if not follow:
                return await _run(importer, url, options, settings)
            while True:
                try:
                    await _run(importer, url, options, settings, quiet=True)
                except (Fault, OperatorError) as error:
                    out.warn(f"{error.message if isinstance(error, Fault) else error} The next run is in {every} s.")
                await asyncio.sleep(every)

    if not asyncio.run(work()):
        raise SystemExit(1)


async def _run(
    importer: "Callable[..., DataHubImport]",
    url: "DataHubUrl",
    options: "ImportOptions",
    settings: Settings,
    *,
    quiet: bool = False,
) -> bool:
    """Whether nothing had to be refused. With `quiet`, a run that changed nothing prints nothing."""
    from watchword.datahub.wiring import lock_import, open_datahub

    began = time.monotonic()
    with out.progress("Importing") as update:
        # The source is read after the lock is held: what it says is newer than what the import before wrote.
        async with (
            nullcontext() if options.dry_run else lock_import(settings),
            open_datahub(url) as source,
        ):
            run = importer(source, options, lambda done, total: update("Importing tokens", done, total))
            report = await run.run(str(url))
    shown = {"source": str(url), "dryRun": options.dry_run, "refused": report.refusal}
    out.say_data(shown | {"changes": report.changes, "lines": report.lines})
    if not quiet or report.changes:
        out.show_table(report.lines, _COLUMNS)
        changes = ", ".join(f"{what} {count:,}" for what, count in report.changes.items()) or "nothing"
        if options.dry_run:
            out.say(f"To change: {changes}. This was a dry run: nothing was changed.")
        else:
            out.say(f"Changed: {changes}. Took {time.monotonic() - began:.1f} s.")
    if report.refusal is not None:
        out.warn(report.refusal)
    sys.stdout.flush()
    return report.refusal is None
