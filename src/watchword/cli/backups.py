"""`watchword db backup` and `watchword db restore`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import click

from watchword.cli.backstage import Backstage, Told
from watchword.cli.common import STORE_FLAGS, json_flag, need_store, with_settings
from watchword.cli.show import console, sized
from watchword.cli.text import one_line
from watchword.domain.backups import (
    Backup,
    BackupContents,
    ChangesSinceBackup,
    RestoreChoice,
    RestorePreview,
    RestoreResult,
)
from watchword.settings import Settings

SHOWN = 20

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.command()
@_FILE
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_flag
@with_settings(*STORE_FLAGS)
@click.pass_obj
def backup(backstage: Backstage, file: Path, force: bool, as_json: bool, settings: Settings) -> None:
    """Copy the store to FILE while the service runs: all of one moment, checked, whole or not at all.

    \b
    Example: watchword db backup /backup/watchword-monday.db
    """
    need_store(backstage, settings)
    with progress() as told:
        made = backstage.back_up_store(settings, file, force, told)
    if as_json:
        click.echo(json.dumps(_shown(made, settings)))
        return
    click.echo(one_line(f"Wrote {made.file}: {sized(made.size)}, {_tokens(made.contents)}."))
    click.echo(_about_key(made, settings))
    click.echo("without that key the backup opens for nobody, and with both anybody can sign tokens.")


def _about_key(made: Backup, settings: Settings) -> str:
    if made.key_opens is None:
        return "The master key is NOT in it. Keep the one that the service runs with too, in another place:"
    if not made.key_opens:
        return f"The master key is NOT in it, and {settings.master_key_path} is ANOTHER. Keep the right one:"
    return f"The master key is NOT in it. Keep {settings.master_key_path} too, in another place:"


@click.command()
@_FILE
@click.option(
    f"--{RestoreChoice.REVOKE_ALL.value}", "revoke_all", is_flag=True, help="Revoke every live token of FILE."
)
@click.option(
    f"--{RestoreChoice.ACCEPT_REVIVED.value}",
    "accept_revived",
    is_flag=True,
    help="Let tokens work again that were revoked after FILE was made.",
)
@json_flag
@with_settings(*STORE_FLAGS)
@click.pass_obj
def restore(
    backstage: Backstage, file: Path, revoke_all: bool, accept_revived: bool, as_json: bool, settings: Settings
) -> None:
    """Put a backup in the store's place, with the service stopped. The store that was there is kept beside it.

    FILE knows nothing of what was revoked after it was made, so one of the two choices must be given. Without one,
    nothing is changed and it says how many tokens each of them concerns.

    \b
    Example: watchword db restore /backup/watchword-monday.db --revoke-all-issued-before-now
    """
    if revoke_all == accept_revived:
        _ask_to_choose(backstage.restore_preview(settings, file), as_json)
    restored = backstage.restore_store(
        settings, file, RestoreChoice.REVOKE_ALL if revoke_all else RestoreChoice.ACCEPT_REVIVED
    )
    if as_json:
        click.echo(json.dumps(_shown_restored(restored)))
        return
    for line in _told(restored, settings):
        click.echo(one_line(line))


def _ask_to_choose(seen: RestorePreview, as_json: bool) -> NoReturn:
    if as_json:
        click.echo(json.dumps(_shown_preview(seen)))
    since = seen.since
    if since is None:
        revived = f"any of them that was revoked since works again: how many cannot be known, {seen.unknown_because}"
    else:
        revived = f"{len(since.revived):,} of them, revoked since, work again"
    click.echo(
        f"watchword: Choose one of --{RestoreChoice.REVOKE_ALL.value} "
        f"(all {_unrevoked(seen.contents)} of {seen.file} are revoked) "
        f"and --{RestoreChoice.ACCEPT_REVIVED.value} ({revived}). Nothing was changed.",
        err=True,
    )
    raise SystemExit(2)


def _told(restored: RestoreResult, settings: Settings) -> Iterator[str]:
    seen, since = restored.preview, restored.preview.since
    yield f"Restored {seen.file} to {restored.store}: {_tokens(seen.contents)}."
    if restored.choice is RestoreChoice.REVOKE_ALL:
        yield f"Revoked: all {_unrevoked(seen.contents)} in it."
    elif since is None:
        yield f"Tokens revoked after the backup work again: which cannot be known, {seen.unknown_because}."
        yield f"The backup holds {seen.contents.live:,} live tokens."
    else:
        yield f"Tokens that were revoked and work again: {len(since.revived):,}."
        yield from (f"  {token_id}" for token_id in since.revived[:SHOWN])
        if len(since.revived) > SHOWN:
            yield f"  and {len(since.revived) - SHOWN:,} more: --json lists all"
    if since is not None:
        yield from _undone(since)
    if restored.kept is not None:
        kind = "the schema " if settings.is_shared else ""
        yield f"The store that was there is kept: {kind}{restored.kept}"


def _unrevoked(contents: BackupContents) -> str:
    """What the first choice concerns: also what has expired, because a clock may be wrong."""
    return f"{contents.unrevoked:,} tokens not revoked yet ({contents.live:,} live)"


def _undone(since: ChangesSinceBackup) -> Iterator[str]:
    yield f"Tokens made after the backup, now unknown: {since.unknown:,} ({since.unknown_live:,} live)."
    if since.suspensions:
        yield f"Actors suspended since, no longer so: {since.suspensions:,}."
    if since.policies:
        yield f"Policies that differ from those in force before: {since.policies:,}."
    if since.memberships:
        yield f"Memberships of groups that differ: {since.memberships:,}."
    if since.keys:
        yield "An older signing key is in use again. If it was rotated for a reason, run: watchword keys rotate"


def _shown_preview(seen: RestorePreview) -> dict[str, object]:
    since = seen.since
    return {
        "file": str(seen.file),
        **_numbers(seen.contents),
        "compared": since is not None,
        "notComparedBecause": seen.unknown_because,
        "revived": None if since is None else list(since.revived),
        "unknown": None if since is None else since.unknown,
        "unknownLive": None if since is None else since.unknown_live,
        "suspensionsUndone": None if since is None else since.suspensions,
        "policiesChanged": None if since is None else since.policies,
        "membershipsChanged": None if since is None else since.memberships,
        "signingKeysLost": None if since is None else since.keys,
    }


def _shown_restored(restored: RestoreResult) -> dict[str, object]:
    return {
        **_shown_preview(restored.preview),
        "choice": restored.choice.value,
        "revoked": restored.revoked,
        "store": restored.store,
        "kept": restored.kept,
    }


@contextmanager
def progress() -> Iterator[Told]:
    """On a terminal, how far it is; elsewhere nothing. Standard output is for the outcome."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    drawn = console(stderr=True)
    with Progress(*columns, console=drawn, transient=True, disable=not drawn.is_terminal) as shown:
        task = shown.add_task("Copying", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _shown(made: Backup, settings: Settings) -> dict[str, str | int | bool | None]:
    return {
        "file": str(made.file),
        "bytes": made.size,
        **_numbers(made.contents),
        "masterKey": str(settings.master_key_path),
        "masterKeyIncluded": False,
        "masterKeyOpens": made.key_opens,
    }


def _numbers(contents: BackupContents) -> dict[str, int | None]:
    return {
        "schemaVersion": contents.schema_version,
        "tokens": contents.tokens,
        "live": contents.live,
        "lastChange": contents.last_change,
    }


def _tokens(contents: BackupContents) -> str:
    word = "token" if contents.tokens == 1 else "tokens"
    return f"{contents.tokens:,} {word} ({contents.live:,} live), schema version {contents.schema_version}"
