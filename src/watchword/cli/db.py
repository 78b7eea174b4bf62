"""`watchword db`: migrate, check, back up, restore and copy the database; and `watchword key`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from watchword.admin.rules import Backup, BackupContents, RestoreChoice, RestorePreview, RestoreResult, describe_rows
from watchword.basics.errors import OperatorError
from watchword.cli import output as out
from watchword.cli.local import Progress, need_store, run_locally, wiring, with_store
from watchword.cli.options import format_flags, limit_flags, with_settings
from watchword.cli.run import CommandGroup
from watchword.client.records import from_millis
from watchword.database.urls import PostgresUrl, StoreUrl
from watchword.journal.preconditions import system_precondition
from watchword.settings import Settings, read_store_url
from watchword.tokens.keys import KeyKind, SealedKey

if TYPE_CHECKING:
    from watchword.app.services import StoreServices

MAX_SHOWN = 20
_FILE = click.argument("file", type=click.Path(path_type=Path))
_SCHEMA = "Schema of {} if that is PostgreSQL. [default: WATCHWORD_DATABASE_SCHEMA]"
# What a restore undoes, as JSON has it.
_CHANGES = (
    *("revived", "unknown", "unknownLive", "holds", "deletedAccounts", "suspensions", "linksChanged", "releasedHolds"),
    *("resumedActors", "policiesChanged", "membershipsChanged", "retentionRulesChanged", "webhooksChanged"),
    "signingKeysLost",
)


@click.group(cls=CommandGroup)
def db() -> None: ...


@db.command()
@format_flags
@with_store
def migrate(settings: Settings) -> None:
    """Create the store, or migrate it to this version's schema. Only this command and `serve` migrate.

    Example: watchword db migrate --data-dir ./watchword-data
    """
    done = wiring.prepare_store(settings)
    out.show_result(str(done), {"schemaBefore": done.before or None, "schema": done.after})


@db.command()
@format_flags
@with_store
def check(settings: Settings) -> None:
    """Check the store's integrity; exit with 1 if a check fails. Safe while the service runs.

    Example: watchword db check --data-dir ./watchword-data
    """
    need_store(settings)
    problems: dict[str, str | None] = {}
    for law, problem in wiring.check_store(settings):
        problems[law] = problem
        out.say(f"{'ok  ' if problem is None else 'BAD '} {law}{f': {problem}' if problem else ''}")
    out.say_data([{"check": law, "ok": problem is None, "problem": problem} for law, problem in problems.items()])
    if any(problems.values()):
        raise SystemExit(1)


@db.command()
@_FILE
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@format_flags
@with_store
def backup(file: Path, force: bool, settings: Settings) -> None:
    """Back up the store to FILE while the service runs: one consistent, checked snapshot.

    Example: watchword db backup /backup/watchword-monday.db
    """
    need_store(settings)
    with _copy_progress() as update:
        made = wiring.back_up_store(settings, file, force, update)
    key = {"masterKey": str(settings.master_key_path), "masterKeyIncluded": False, "masterKeyOpens": made.key_opens}
    out.say_data({"file": str(made.file), "bytes": made.size, **_contents_json(made.contents), **key})
    out.say(f"Wrote {made.file}: {out.byte_size(made.size)}, {_contents(made.contents)}.")
    out.say(_about_key(made, settings))
    out.say("Without that key the backup cannot be opened; with both, anyone can sign tokens.")


def _about_key(made: Backup, settings: Settings) -> str:
    if made.key_opens is None:
        return "The master key is NOT in it. Back up the key that the service runs with too, in another place."
    if not made.key_opens:
        return f"The master key is NOT in it, and {settings.master_key_path} is ANOTHER key. Back up the right one."
    return f"The master key is NOT in it. Back up {settings.master_key_path} too, in another place."


@db.command()
@_FILE
@click.option("--revoke-all-issued-before-now", "revoke_all", is_flag=True, help="Revoke every live token of FILE.")
@click.option(
    "--accept-revived-tokens",
    "revived",
    is_flag=True,
    help="Accept that tokens revoked after the backup are valid again.",
)
@click.option(
    "--without-current-store",
    "without_current",
    is_flag=True,
    help="Restore although the current store is damaged and nothing can be carried over from it.",
)
@format_flags
@with_store
def restore(file: Path, revoke_all: bool, revived: bool, without_current: bool, settings: Settings) -> None:
    """Replace the store with a backup while the service is stopped. The old store is kept beside it.

    FILE does not know what was revoked after it was written, so you must choose one of two flags. Without either,
    nothing is changed and the command shows what each choice affects. The first also carries over from the current
    store its holds, deleted accounts, suspensions and links to identities; the second brings back those of FILE.

    Example: watchword db restore /backup/watchword-monday.db --revoke-all-issued-before-now
    """
    if revoke_all == revived:
        _ask_to_choose(wiring.restore_preview(settings, file))
    choice = RestoreChoice.REVOKE_ALL if revoke_all else RestoreChoice.ACCEPT_REVIVED
    restored = wiring.restore_store(settings, file, choice, without_current=without_current)
    outcome = {"choice": restored.choice.value, "revoked": restored.revoked, "carriedOver": restored.carried_over}
    out.say_data(_preview_json(restored.preview) | outcome | {"store": restored.store, "kept": restored.kept})
    for line in _restored_lines(restored, settings):
        out.say(line)


def _ask_to_choose(seen: RestorePreview) -> NoReturn:
    out.say_data(_preview_json(seen))
    since = seen.since
    if since is None:
        revived, kept = f"tokens revoked since are valid again: how many is unknown, {seen.unknown_reason}", ""
    else:
        lost = f"; loses {since.protections}" if since.protections else ""
        revived = f"{len(since.names['revived']):,} of them, revoked since, are valid again{lost}"
        kept = f"; carries over {since.protections}" if since.protections else ""
    out.warn(
        f"Choose --{RestoreChoice.REVOKE_ALL.value} (revokes all {_unrevoked(seen.contents)} of {seen.file}{kept}) "
        f"or --{RestoreChoice.ACCEPT_REVIVED.value} ({revived}). Nothing was changed."
    )
    raise SystemExit(2)


def _restored_lines(restored: RestoreResult, settings: Settings) -> Iterator[str]:
    seen, since = restored.preview, restored.preview.since
    yield f"Restored {seen.file} to {restored.store}: {_contents(seen.contents)}."
    if restored.choice is RestoreChoice.REVOKE_ALL:
        yield f"Revoked now: all {_unrevoked(seen.contents)} in it."
    elif since is None:
        yield f"Tokens revoked after the backup are valid again: which is unknown, {seen.unknown_reason}."
        yield f"The backup holds {out.plural(seen.contents.live, 'live token')}."
    else:
        yield f"Revoked tokens that are valid again: {len(since.names['revived']):,}."
        yield from (f"  {token_id}" for token_id in since.names["revived"][:MAX_SHOWN])
        if len(since.names["revived"]) > MAX_SHOWN:
            yield f"  and {len(since.names['revived']) - MAX_SHOWN:,} more: --json lists all"
    if since is None:
        if restored.choice is RestoreChoice.REVOKE_ALL:
            yield f"Carried over: no holds, deleted accounts, suspensions and links, {seen.unknown_reason}."
    else:
        unknown, live = since.counts["unknown"], since.counts["unknownLive"]
        yield f"Tokens created after the backup, now unknown: {unknown:,} ({live:,} live)."
        if since.protections:
            what = "Carried over from" if restored.carried_over else "Lost with"
            yield f"{what} the old store: {since.protections}."
        if since.names["releasedHolds"]:
            yield f"Series released since, held again: {', '.join(since.names['releasedHolds'])}."
        if since.names["resumedActors"]:
            yield f"Actors resumed since, suspended again: {', '.join(since.names['resumedActors'])}."
        undone = {
            "Policies that differ from the old store": since.counts["policiesChanged"],
            "Group memberships that differ": since.counts["membershipsChanged"],
            "Retention rules that differ": since.counts["retentionRulesChanged"],
            "Webhooks that differ": since.counts["webhooksChanged"],
        }
        yield from (f"{what}: {count:,}." for what, count in undone.items() if count)
        if since.counts["signingKeysLost"]:
            yield "An older signing key is in use again. If it was rotated for a reason, run: watchword key rotate"
    if restored.kept is not None:
        kind = "the schema " if settings.is_shared else ""
        yield f"The old store is kept: {kind}{restored.kept}"


def _unrevoked(contents: BackupContents) -> str:
    """Expired tokens are included, because a clock may be wrong."""
    return f"{contents.unrevoked:,} tokens not revoked yet ({contents.live:,} live)"


@db.command()
@click.option("--from", "source", required=True, metavar="URL", help="Store to copy: sqlite:///… or postgresql://…")
@click.option("--to", "target", required=True, metavar="URL", help="Empty store to copy it to, as a URL too.")
@click.option("--from-schema", help=_SCHEMA.format("--from"))
@click.option("--to-schema", help=_SCHEMA.format("--to"))
@format_flags
@with_settings("data_dir", "master_key_file")
def copy(source: str, target: str, from_schema: str | None, to_schema: str | None, settings: Settings) -> None:
    """Copy a store into an empty one of either kind, with the service stopped, and compare both.

    A URL must not hold a password, which every user of this machine could read: put it into ~/.pgpass.

    Example: watchword db copy --from sqlite:///watchword-data/watchword.db --to postgresql://ww@db.example.org/ww
    """
    here = read_store_url("--from", source, "--from-schema", from_schema, settings)
    there = read_store_url("--to", target, "--to-schema", to_schema, settings)
    with _copy_progress() as update:
        copied = wiring.copy_store(settings, here, there, update)
    stores = {"from": _store_name(here), "to": _store_name(there)}
    key = {"masterKey": str(settings.master_key_path), "masterKeyIncluded": False}
    out.say_data({**stores, "rows": copied.rows, "sha256": copied.digest, **key})
    out.say(
        f"Copied {_store_name(here)} to {_store_name(there)}: {describe_rows(copied.rows) or 'nothing, it is empty'}."
    )
    out.say(f"Both hold the same: sha256 {copied.digest}")
    out.say(f"The master key was NOT copied. Start the service on the copy with {settings.master_key_path},")
    out.say(
        f"and run no service on {_store_name(here)} any more: a token revoked in one store stays valid in the other."
    )


def _store_name(place: StoreUrl) -> str:
    return f"{place} (schema {place.schema})" if isinstance(place, PostgresUrl) else str(place)


@contextmanager
def _copy_progress() -> Iterator[Progress]:
    with out.progress("Copying") as update:
        yield lambda done, total: update("Copying", done, total)


def _preview_json(seen: RestorePreview) -> dict[str, object]:
    changes: dict[str, object] = {} if seen.since is None else {**seen.since.names, **seen.since.counts}
    return {
        "file": str(seen.file),
        **_contents_json(seen.contents),
        "compared": seen.since is not None,
        "notComparedBecause": seen.unknown_reason,
        **{name: changes.get(name) for name in _CHANGES},
    }


def _contents_json(contents: BackupContents) -> dict[str, object]:
    return {name: value for name, value in out.json_value(contents).items() if name != "unrevoked"}


def _contents(contents: BackupContents) -> str:
    return f"{out.plural(contents.tokens, 'token')} ({contents.live:,} live), schema version {contents.schema_version}"


@click.group(cls=CommandGroup)
def key() -> None: ...


@key.command("list")
@limit_flags
@format_flags
@with_store
def list_keys(settings: Settings) -> None:
    """List signing keys, newest first. The first signs; the others stay published until their last token has expired.
    The last line is the next key, which is published and signs after the next rotation.

    Example: watchword key list --json
    """

    async def read(service: "StoreServices") -> tuple[tuple[SealedKey, ...], SealedKey]:
        return await service.keys.all(), await service.keys.following()

    found, following = run_locally(settings, read)
    rows = [_key_row(key, "signs" if key.retired_at is None else "retired") for key in found]
    out.show_list([*rows, _key_row(following, "next")], _KEY_COLUMNS, "")


@dataclass(frozen=True, slots=True)
class _KeyRow:
    kid: str
    kind: str
    state: str
    created_at: datetime
    retired_at: datetime | None
    published_until: datetime | None


_KEY_COLUMNS = out.columns(
    "ID=kid, kind, state, CREATED=created_at",
    out.Column(
        "PUBLISHED UNTIL", lambda key: out.TimeCell(key.published_until, "removed") if key.state == "retired" else None
    ),
)


def _key_row(key: SealedKey, state: str) -> _KeyRow:
    times = (None if at is None else from_millis(at) for at in (key.retired_at, key.published_until))
    return _KeyRow(key.kid, key.kind.value, state, from_millis(key.created_at), *times)


@key.command()
@click.option("--kind", type=click.Choice([kind.name.lower() for kind in KeyKind]), help="Change to keys of this kind.")
@format_flags
@with_store
def rotate(kind: str | None, settings: Settings) -> None:
    """Sign with the next key from now on, on every instance. Existing tokens stay valid.

    With --kind and a next key of another kind, publish one of that kind instead: it signs when you run the command
    again after five minutes, when services that cache the keys know it. Later keys are of the same kind.

    Example: watchword key rotate
    Example: watchword key rotate --kind rs256
    """
    by = system_precondition("command line")

    async def run(service: "StoreServices") -> tuple[str, dict[str, str | None]]:
        prepared = None if kind is None else await service.keys.prepare(by, KeyKind[kind.upper()])
        if prepared is None or prepared.waits_until is None:
            key = await service.keys.rotate(by)
            return f"Signing with {key.kid} ({key.kind.value}) from now on.", _rotated(key, None)
        key = prepared.key
        again = f"Run this again after {out.iso(prepared.waits_until)}, when services that cache the keys know it."
        if not prepared.is_new:
            raise OperatorError(
                f"{key.kid} ({key.kind.value}) was published at {out.iso(key.created_at)}. {again} "
                "To sign with it now: watchword key rotate"
            )
        sentence = f"Published {key.kid} ({key.kind.value}). It does not sign yet. {again}"
        return sentence, _rotated(key, prepared.waits_until)

    sentence, record = run_locally(settings, run)
    out.show_result(sentence, record)


def _rotated(key: SealedKey, waits_until: int | None) -> dict[str, str | None]:
    waits = None if waits_until is None else out.iso(waits_until)
    return {"kid": key.kid, "kind": key.kind.value, "state": "next" if waits else "signs", "waitsUntil": waits}


@key.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@format_flags
def new_master(file: Path) -> None:
    """Create a master key for a store on PostgreSQL. Every instance needs the same one: WATCHWORD_MASTER_KEY_FILE.

    It encrypts the signing keys. Keep a copy apart from the database's backups. An existing file is not overwritten.

    Example: watchword key new-master /etc/watchword/master.key
    """
    wiring.make_key(file)
    sentence = f"Created {file}. Keep a copy in a safe place: without it the store cannot be opened."
    out.show_result(sentence, {"file": str(file)})
