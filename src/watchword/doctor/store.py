"""The store, its master key, its clock, and what its policies allow."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from watchword.domain.accounts import AccountGain
from watchword.domain.backups import SealedSecrets
from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.errors import OperatorError
from watchword.domain.ports import Clock
from watchword.domain.store_urls import PostgresUrl
from watchword.settings import Settings
from watchword.signing.keyring import check_master_key
from watchword.signing.sealing import Sealer, load_master_key
from watchword.sqlite_file import companions
from watchword.stores.admin.summary import DatabaseServer, StoreSummary

PLAUSIBLE_YEARS = range(2025, 2100)
BEHIND_MS = 60_000
CLOCK_DIFFERENCE_MS = 5_000
VERIFY_CONNECTIONS = 2
"""Connections of a worker besides its pool."""
MAX_LISTED = 5


def store(settings: Settings, path: Path, summary: StoreSummary | None, now: Clock) -> Iterator[Diagnostic]:
    """`summary` is None where there is no file."""
    yield from _file(path, summary)
    is_new = summary is None or (summary.sealed is not None and summary.sealed.salt is None)
    yield from _master_key(settings, None if summary is None else summary.sealed, is_new=is_new)
    yield from _clock(summary, now)
    yield from _account_managers(() if summary is None else summary.account_gains)


def store_in_database(settings: Settings, url: PostgresUrl, summary: StoreSummary) -> Iterator[Diagnostic]:
    if summary.problem is not None or summary.server is None:
        sentence, _, fix = (summary.problem or "").partition(". ")
        yield bad("store", sentence.rstrip("."), fix or "Check WATCHWORD_DATABASE_URL, and the server's log.")
        return
    yield from _schema(url, summary, summary.server)
    yield from _database_server(settings, url, summary.server)
    yield from _master_key(settings, summary.sealed, is_new=False)
    yield _database_clock(summary.server.clock_ahead_ms)
    yield from _account_managers(summary.account_gains)


def _file(path: Path, summary: StoreSummary | None) -> Iterator[Diagnostic]:
    if summary is None and (path.exists() or path.is_symlink()):
        yield bad("store", f"{path} is not a file", "Move it away, or name another data folder.")
        return
    if summary is None:
        yield warn("store", f"there is no store at {path}", "The first start creates it: watchword serve")
        return
    for file in [path, *companions(path)]:
        if file.exists() and file.stat().st_mode & 0o077:
            yield bad("store", f"other users can read or change {file}", f"chmod 600 {file}")
    if summary.problem is not None:
        yield bad("store", f"{path}: {summary.problem.rstrip('.')}", "Restore a backup: watchword db restore --help")
    elif summary.version < summary.latest:
        yield _outdated(str(path), summary)
    else:
        how = "opens (too large for a quick check: watchword db check)"
        if summary.quick_checked:
            how = "passes a quick check"
        what = f"has schema version {summary.version} and {how}; tokens not revoked: {summary.tokens:,}"
        yield ok("store", f"{path} {what}")


def _outdated(where: str, summary: StoreSummary) -> Diagnostic:
    what = f"{where} has schema version {summary.version}; this Watchword's is {summary.latest}"
    return warn("store", what, "The next start migrates it, or: watchword db migrate")


def _schema(url: PostgresUrl, summary: StoreSummary, server: DatabaseServer) -> Iterator[Diagnostic]:
    where = f"{url}, schema {url.schema}"
    if not summary.version:
        fix = "The first start creates it: watchword serve"
        yield warn("store", f"there is no store at {where}; PostgreSQL {server.version} answers", fix)
    elif summary.version < summary.latest:
        yield _outdated(where, summary)
    else:
        what = f"has schema version {summary.version}, on PostgreSQL {server.version}, and accepts writes"
        yield ok("store", f"{where} {what}; tokens not revoked: {summary.tokens:,}")


def _database_server(settings: Settings, url: PostgresUrl, server: DatabaseServer) -> Iterator[Diagnostic]:
    for name in server.unsafe:
        fix = f"Set it: ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf()"
        yield warn("store", f"{name} is off: a crash of the machine may lose committed changes", fix)
    wanted = settings.workers * (settings.database_pool + VERIFY_CONNECTIONS)
    if wanted > server.max_connections:
        what = f"this instance may open {wanted} connections; the database allows {server.max_connections}"
        fix = "Raise max_connections (or the role's or database's limit), or lower WATCHWORD_DATABASE_POOL."
        yield warn("store", what, fix)
    if server.public:
        fix = f"Revoke it: REVOKE CONNECT ON DATABASE {url.database} FROM PUBLIC"
        yield warn("store", "every role of the server may connect to the database and block its writes", fix)


def _master_key(settings: Settings, sealed: SealedSecrets | None, *, is_new: bool) -> Iterator[Diagnostic]:
    """`is_new` if the first start would create the key."""
    path = settings.master_key_path
    if is_new and not path.exists() and settings.master_key_file is None:
        yield warn("keys", f"there is no master key at {path}", "The first start creates it: watchword serve")
        return
    try:
        sealer = Sealer(load_master_key(path, create=False))
        if sealed is None or sealed.salt is None:
            yield ok("keys", f"{path} is a master key; the store has no secrets yet")
            return
        check_master_key(sealer, sealed.salt, sealed.private_keys)
    except OperatorError as error:
        sentence, _, fix = str(error).partition(". ")
        yield bad("keys", sentence.rstrip("."), fix or "Put the master key of this store there.")
    else:
        yield ok("keys", f"{path} opens the store's salt and signing keys ({len(sealed.private_keys)})")


def _clock(summary: StoreSummary | None, now: Clock) -> Iterator[Diagnostic]:
    moment = datetime.fromtimestamp(now() / 1000, UTC)
    fix = "Set this machine's clock, and keep it set by NTP: tokens expire by it."
    newest = None if summary is None else summary.newest_event
    if moment.year not in PLAUSIBLE_YEARS:
        yield bad("clock", f"it says {moment:%Y-%m-%d}", fix)
    elif newest is not None and newest - now() > BEHIND_MS:
        latest = datetime.fromtimestamp(newest / 1000, UTC)
        what = f"it says {moment:%Y-%m-%d %H:%M:%SZ}, but the store's newest event is of {latest:%Y-%m-%d %H:%M:%SZ}"
        yield bad("clock", what, fix)
    elif summary is not None:
        yield ok("clock", f"it says {moment:%Y-%m-%d %H:%M:%SZ}, which fits the store")


def _database_clock(ahead_ms: int) -> Diagnostic:
    if abs(ahead_ms) <= CLOCK_DIFFERENCE_MS:
        return ok("clock", "it agrees with the database's clock, by which tokens expire")
    ahead = "ahead of" if ahead_ms > 0 else "behind"
    what = f"the database's is {abs(ahead_ms) / 1000:,.0f} s {ahead} this machine's; tokens expire by the database's"
    return warn("clock", what, "Keep both set by NTP.")


def _account_managers(found: Sequence[AccountGain]) -> Iterator[Diagnostic]:
    """Managers of service accounts can create tokens for every account, and so use its privileges."""
    fix = (
        "Grant the manager these privileges too, or revoke them from the account, or MANAGE_SERVICE_ACCOUNTS from the "
        "manager: watchword policy list"
    )
    for manager, account, privileges in found[:MAX_LISTED]:
        names = ", ".join(privilege.name for privilege in privileges)
        yield warn("policies", f"{manager} can use {names} with tokens of the service account {account}", fix)
    if len(found) > MAX_LISTED:
        yield warn("policies", f"there are {len(found) - MAX_LISTED:,} more like these", fix)
