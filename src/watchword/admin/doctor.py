"""`doctor`: check everything that a start needs, and change nothing.

Each check yields diagnostics. To add one, write it beside its kind and call it in `diagnose`.
"""

import errno
import json
import os
import resource
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography.x509 import load_pem_x509_certificate

from watchword import __version__
from watchword.accounts.rules import AccountGain
from watchword.admin.check import DatabaseServer, StoreSummary, summarize
from watchword.admin.rules import Diagnostic, bad, ok, warn
from watchword.authority.policies import POLICY_PART
from watchword.basics.errors import Fault, OperatorError
from watchword.basics.files import open_bits, owner_in_the_way
from watchword.basics.networks import is_loopback, parse_address
from watchword.basics.times import Clock
from watchword.database.sqlite.file import companions
from watchword.database.urls import STANDBYS_ADVICE, LastStart, PostgresUrl, SqliteUrl, objection_to_standbys
from watchword.declared.policy_file import PolicyFileError, read_policy_file
from watchword.journal.events import CLOCK_BEHIND
from watchword.settings import Settings, bind_error
from watchword.tokens.keys_service import Sealer, check_master_key, load_master_key

LOW_DISK_BYTES = 1024**3
FULL_DISK_BYTES = 64 * 1024**2
FEW_FILES = 4_096
PLAUSIBLE_YEARS = range(2025, 2100)
CLOCK_DIFFERENCE_MS = 5_000
VERIFY_CONNECTIONS = 2
"""Connections of a worker besides its pool."""
MAX_LISTED = 5
ANSWER_SECONDS = 3.0
MAX_BYTES = 65_536
EXPIRES_SOON = timedelta(days=30)


def diagnose(
    settings: Settings,
    now: Clock,
    probe_index: Callable[[], str],
    count_ignored: Callable[[], Mapping[str, int]],
    url: str | None,
    *,
    running: bool,
) -> Iterator[Diagnostic]:
    """`url` is the address that commands use, if it is set. `running`: whether a service runs on the data folder.
    `probe_index` describes the search index, or raises. `count_ignored` counts the parameters at `/auth` that look like
    requirements and are none.
    """
    closed = _is_closed(settings.data_dir)
    last_start: LastStart | None = None
    elsewhere = None if closed or _has_store(settings) else (url and ask(url)) or None
    if elsewhere is None or settings.data_dir.exists():
        yield from _data_folder(settings.data_dir)
    if elsewhere is not None:
        what = f"there is no store in {settings.data_dir}; the server at WATCHWORD_URL, {url}, uses another folder"
        yield warn("store", what, "Name that server's folder with --data-dir, if it is on this machine.")
    elif settings.is_shared or not closed:
        summary = summarize(settings.store_url, now)
        last_start = summary.last_start
        yield from _store(settings, summary, now)
    if settings.index_url is not None or not (closed or elsewhere):
        yield from _index(settings, probe_index)
    yield from _policy_file(settings.policy_file)
    answer = elsewhere or (_ask_own_service(settings, last_start) if running or closed else None)
    if elsewhere is None:
        yield from _listen_address(settings, last_start, answer, running=running)
    yield from _tls(settings)
    yield from _exposure(settings, answer)
    if not closed:
        yield from _ignored_parameters(count_ignored())
    yield from _server_of_commands(url, last_start)
    yield from _open_files()


def _has_store(settings: Settings) -> bool:
    url = settings.store_url
    return not isinstance(url, SqliteUrl) or url.path.exists() or url.path.is_symlink()


def _is_closed(folder: Path) -> bool:
    """Whether this user may not read the folder."""
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)
    except PermissionError:  # for a folder above it
        return True


def _no_access(folder: Path) -> Diagnostic:
    what, found = f"this user cannot read and write {folder}", owner_in_the_way(folder)
    if found is None:
        return bad("data folder", what, f"chmod 700 {folder}")
    return bad("data folder", f"{what}; {found[0]} belongs to user {found[1]}", f"Run this as user {found[1]}.")


def _data_folder(folder: Path) -> Iterator[Diagnostic]:
    if _is_closed(folder):
        yield _no_access(folder)
    elif folder.is_symlink() and not folder.exists():
        yield bad("data folder", f"{folder} is a link to a missing folder", "Name another with --data-dir.")
    elif not folder.exists():
        yield warn("data folder", f"{folder} does not exist", "The first start creates it: watchword serve")
    elif not folder.is_dir():
        yield bad("data folder", f"{folder} is not a folder", "Name another with WATCHWORD_DATA_DIR or --data-dir.")
    else:
        yield _access(folder)
        yield _disk(folder)


def _access(folder: Path) -> Diagnostic:
    seen = folder.stat()
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return _no_access(folder)
    if open_bits(seen):
        level = bad if open_bits(seen, 0o002) else warn
        what = f"{folder} is open to other users (mode {seen.st_mode & 0o777:04o})"
        is_owner = seen.st_uid == os.geteuid()
        return level("data folder", what, f"chmod 700 {folder}" if is_owner else f"As its owner: chmod o= {folder}")
    return ok("data folder", f"only its owner can access {folder}")


def _disk(folder: Path) -> Diagnostic:
    free = shutil.disk_usage(folder).free
    what = f"{free / 1_000_000:,.0f} MB are free on the disk of {folder}"
    if free >= LOW_DISK_BYTES:
        return ok("disk", what)
    level = bad if free < FULL_DISK_BYTES else warn
    return level("disk", what, "Free some space: a full disk stops every write.")


def _bad_by_message(about: str, message: str, otherwise: str) -> Diagnostic:
    """The first sentence of an error message is the finding, the rest its fix."""
    sentence, _, fix = message.partition(". ")
    return bad(about, sentence.rstrip("."), fix or otherwise)


def _index(settings: Settings, probe: Callable[[], str]) -> Iterator[Diagnostic]:
    if settings.index_url is None and not settings.index_path.exists():
        yield ok("index", f"{settings.index_path} does not exist yet; the first start creates it")
        return
    where = settings.index_url or settings.index_path
    try:
        yield ok("index", f"{where} answers: {probe()}")
    except OperatorError as error:
        yield _bad_by_message("index", str(error), "Move it away, or name another data folder.")
    except Fault as fault:
        fix = "Check that it runs, and check WATCHWORD_INDEX_URL and its credentials. Tokens work without the index."
        yield bad("index", f"{where}: {fault.message.rstrip('.')}", fix)


def _policy_file(path: Path | None) -> Iterator[Diagnostic]:
    if path is None:
        yield ok("policy file", "none is set (WATCHWORD_POLICY_FILE)")
        return
    try:
        declared = read_policy_file(path, at_start=True).declared
    except PolicyFileError as error:
        yield bad("policy file", str(error).rstrip("."), "Correct the file: the service does not start with it.")
    else:
        yield ok("policy file", f"{path} declares {len(declared[POLICY_PART])} policies of the set {declared.set_name}")


def _open_files() -> Iterator[Diagnostic]:
    """The server raises its soft limit to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        fix = f"Raise the limit to {FEW_FILES} or more (ulimit -Hn, or LimitNOFILE of the supervisor)."
        yield warn("open files", f"a process may open {hard} files, which limits its connections", fix)
    else:
        yield ok("open files", "the limit is high enough")


def _store(settings: Settings, summary: StoreSummary, now: Clock) -> Iterator[Diagnostic]:
    url, server = settings.store_url, summary.server
    if isinstance(url, SqliteUrl):
        yield from _file(url.path, summary)
    elif server is None:
        yield _bad_by_message("store", summary.problem or "", "Check WATCHWORD_DATABASE_URL, and the server's log.")
        return
    else:
        yield from _schema(url, summary, server)
        yield from _database_server(settings, url, server)
    yield from _master_key(settings, summary)
    yield from _clock(summary, now) if server is None else [_database_clock(server.clock_ahead_ms)]
    yield from _account_managers(summary.account_gains)
    if summary.has_imported and settings.datahub_salt is None:
        what = "the store has tokens of DataHub, and WATCHWORD_DATAHUB_SALT is not set: the service rejects them"
        yield warn("DataHub", what, "Set it to DataHub's DATAHUB_TOKEN_SERVICE_SALT, for the service.")


def _file(path: Path, summary: StoreSummary) -> Iterator[Diagnostic]:
    if summary.is_missing:
        if path.exists() or path.is_symlink():
            yield bad("store", f"{path} is not a file", "Move it away, or name another data folder.")
        else:
            yield warn("store", f"there is no store at {path}", "The first start creates it: watchword serve")
        return
    for file in [path, *companions(path)]:
        if file.exists() and open_bits(file.stat()):
            yield bad("store", f"other users can read or change {file}", f"chmod 600 {file}")
    if summary.problem is not None:
        yield bad("store", f"{path}: {summary.problem.rstrip('.')}", "Restore a backup: watchword db restore --help")
    elif summary.version < summary.latest:
        yield _outdated(str(path), summary)
    else:
        opens = "opens (too large for a quick check: watchword db check)"
        how = "passes a quick check" if summary.quick_checked else opens
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
    yield from _standbys(settings, server.standbys)
    if server.public:
        fix = f"Revoke it: REVOKE CONNECT ON DATABASE {url.database} FROM PUBLIC"
        yield warn("store", "every role of the server may connect to the database and block its writes", fix)


def _standbys(settings: Settings, names: str) -> Iterator[Diagnostic]:
    """`names` are those of the synchronous standbys."""
    problem = objection_to_standbys(names)
    if settings.database_reads == "confirmed":
        if problem is None:
            yield ok("store", "reads are confirmed by the synchronous standbys")
        else:
            yield bad("store", problem, STANDBYS_ADVICE)
    elif names:
        what = (
            "reads are not confirmed: after a failover an old primary that still runs may show revoked tokens as valid"
        )
        fix = "Set WATCHWORD_DATABASE_READS=confirmed."
        yield warn("store", what, fix if problem is None else f"{fix} First: {STANDBYS_ADVICE}")


def _master_key(settings: Settings, summary: StoreSummary) -> Iterator[Diagnostic]:
    path, sealed = settings.master_key_path, summary.sealed
    is_new = not settings.is_shared and (summary.is_missing or (sealed is not None and sealed.salt is None))
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
        yield _bad_by_message("keys", str(error), "Put the master key of this store there.")
    else:
        yield ok("keys", f"{path} opens the store's salt and signing keys ({len(sealed.private_keys)})")


def _clock(summary: StoreSummary, now: Clock) -> Iterator[Diagnostic]:
    moment = datetime.fromtimestamp(now() / 1000, UTC)
    fix = "Set this machine's clock, and keep it set by NTP: tokens expire by it."
    newest = summary.newest_event
    if moment.year not in PLAUSIBLE_YEARS:
        yield bad("clock", f"it says {moment:%Y-%m-%d}", fix)
    elif newest is not None and newest - now() > CLOCK_BEHIND:
        latest = datetime.fromtimestamp(newest / 1000, UTC)
        what = f"it says {moment:%Y-%m-%d %H:%M:%SZ}, but the store's newest event is of {latest:%Y-%m-%d %H:%M:%SZ}"
        yield bad("clock", what, fix)
    elif not summary.is_missing:
        yield ok("clock", f"it says {moment:%Y-%m-%d %H:%M:%SZ}, which fits the store")


def _database_clock(ahead_ms: int) -> Diagnostic:
    if abs(ahead_ms) <= CLOCK_DIFFERENCE_MS:
        return ok("clock", "it agrees with the database's clock, by which tokens expire")
    ahead = "ahead of" if ahead_ms > 0 else "behind"
    what = f"the database's is {abs(ahead_ms) / 1000:,.0f} s {ahead} this machine's; tokens expire by the database's"
    return warn("clock", what, "Keep both set by NTP.")


def _account_managers(gains: Sequence[AccountGain]) -> Iterator[Diagnostic]:
    """Managers of service accounts can create tokens for every account, and so use its privileges and scopes."""
    fix = (
        "Grant the manager the same too, or revoke them from the account, or MANAGE_SERVICE_ACCOUNTS from the "
        "manager: watchword policy list"
    )
    for manager, account, rights in gains[:MAX_LISTED]:
        yield warn(
            "policies", f"{manager} can use {', '.join(rights)} with tokens of the service account {account}", fix
        )
    if len(gains) > MAX_LISTED:
        yield warn("policies", f"there are {len(gains) - MAX_LISTED:,} more like these", fix)


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """What a running Watchword says about itself."""

    url: str
    version: str
    issuer: str | None
    """None if it does not say, as on a Unix socket."""
    local_mode: bool | None
    """None if it does not say, as without a console."""


def ask(url: str) -> ServiceAnswer | None:
    """The answer of the Watchword at this address; None if there is none in time, or if it is another program."""
    answers: list[ServiceAnswer | None] = []
    # In a daemon thread: another program could send one byte a second for ever.
    asking = threading.Thread(target=lambda: answers.append(_asked(url)), daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    return answers[0] if answers else None


def _asked(url: str) -> ServiceAnswer | None:
    socket_path = url.removeprefix("unix:") if url.startswith("unix:") else None
    # Nothing secret is sent. `_tls` checks the certificate.
    transport = httpx.HTTPTransport(verify=False, uds=socket_path)
    base = url if socket_path is None else "http://localhost"
    # The service reports local mode only to a loopback name.
    address, headers = parse_address(urlsplit(base).hostname or ""), {"Accept-Encoding": "identity"}
    if address is not None and address.is_unspecified:
        headers["Host"] = "localhost"
    try:
        with httpx.Client(
            base_url=base,
            headers=headers,
            auth=lambda request: request,  # else httpx sends the name and password of the URL
            transport=transport,
            timeout=ANSWER_SECONDS,
            trust_env=False,
        ) as client:
            version = _get(client, "/config")["watchword"]["version"]
            issuer = _get(client, "/.well-known/oauth-authorization-server").get("issuer")
            local_mode = _get(client, "/session", {"X-Watchword-Console": "1"}).get("localMode")
            return ServiceAnswer(url, str(version), issuer, local_mode)
    except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError, AttributeError):
        return None


def _get(client: httpx.Client, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    with client.stream("GET", path, headers=headers) as answer:
        content = json.loads(next(answer.iter_raw(MAX_BYTES), b"{}"))
    return content if isinstance(content, dict) else {}


def _ask_own_service(settings: Settings, last_start: LastStart | None) -> ServiceAnswer | None:
    """The service that runs on this store, at the address of its last start. If instances share the store, the address
    of the settings comes first.
    """
    last = [] if last_start is None else [last_start.listens_at]
    for url in [settings.listens_at, *last] if settings.is_shared else last or [settings.listens_at]:
        answer = ask(url)
        if answer is not None and (last_start is None or answer.issuer in (None, last_start.issuer)):
            return answer
    return None


def _listen_address(
    settings: Settings, last_start: LastStart | None, answer: ServiceAnswer | None, *, running: bool
) -> Iterator[Diagnostic]:
    if answer is not None:
        yield from _answered(answer)
        if settings.public_url is not None and answer.issuer not in (None, settings.issuer):
            what = f"the running service's issuer is {answer.issuer}, and WATCHWORD_PUBLIC_URL is {settings.issuer}"
            yield warn("port", what, "Restart the service with that address, or correct WATCHWORD_PUBLIC_URL.")
    elif running and last_start is not None and last_start.listens_at != settings.listens_at and not settings.is_shared:
        what = f"the service runs on {settings.data_dir}, but does not answer at {last_start.listens_at}"
        yield warn("port", what, "See the log of the service.")
    elif settings.socket_path is not None:
        yield from _socket(settings.socket_path, settings.listens_at)
    else:
        yield _port(settings, running=running)


def _answered(answer: ServiceAnswer) -> Iterator[Diagnostic]:
    named = "" if answer.issuer is None else f" as {answer.issuer}"
    yield ok("port", f"the running service is Watchword {answer.version}; it answers at {answer.url}{named}")
    if answer.version != __version__:
        what = f"the running service is version {answer.version}, this command is {__version__}"
        yield warn("port", what, "Use one version of both: restart the service, or use its command.")
    if answer.url.startswith("unix:"):
        path = Path(answer.url.removeprefix("unix:"))
        if open_bits(path.stat()):
            yield bad("port", f"{path} is open to other users", f"chmod 600 {path}")


def _port(settings: Settings, *, running: bool) -> Diagnostic:
    where, problem = settings.listens_at, bind_error(settings.endpoint)
    if problem is None and running:
        what = f"{where} is free, but the service runs on {settings.data_dir}"
        return warn("port", what, "Name its --host and --port.")
    if problem is None:
        return ok("port", f"{where} is free")
    if problem.errno == errno.EADDRINUSE:
        return _taken(where)
    what = f"the service cannot listen at {where}: {problem.strerror}"
    return bad("port", what, "Choose another --host or --port.")


def _taken(where: str) -> Diagnostic:
    if ask(where) is None:
        return bad("port", f"another program listens at {where}", "Stop that program, or choose another --port.")
    fix = "Choose another --port, or name that service's --data-dir."
    return bad("port", f"the Watchword at {where} runs on another data folder", fix)


def _socket(path: Path, where: str) -> Iterator[Diagnostic]:
    if not path.parent.is_dir():
        yield bad("port", f"the folder of {path} does not exist", f"mkdir -p {path.parent}")
    elif not path.exists():
        yield ok("port", f"{path} is free")
    elif not path.is_socket():
        yield bad("port", f"{path} is not a socket", "Name another with WATCHWORD_HOST or --host.")
    elif ask(where) is None:
        yield ok("port", f"{path} is left from a killed service; the next start removes it")
    else:
        yield _taken(where)


def _tls(settings: Settings) -> Iterator[Diagnostic]:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, "")
        certificate = load_pem_x509_certificate(settings.tls_cert.read_bytes())
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        fix = "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must name a certificate chain and its private key, as PEM."
        yield bad("TLS", f"{settings.tls_cert} and {settings.tls_key} cannot be used: {problem}", fix)
        return
    yield _validity(settings.tls_cert, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    if open_bits(settings.tls_key.stat()):
        yield warn("TLS", f"other users can read {settings.tls_key}", f"chmod 600 {settings.tls_key}")


def _validity(path: Path, begins: datetime, ends: datetime) -> Diagnostic:
    now = datetime.now(UTC)
    fix = "Renew the certificate, then restart the service."
    if ends <= now:
        return bad("TLS", f"{path} expired on {ends:%Y-%m-%d}", fix)
    if begins > now:
        fix = "Check the clock, or use another certificate."
        return bad("TLS", f"{path} is valid only from {begins:%Y-%m-%d}", fix)
    if ends - now < EXPIRES_SOON:
        return warn("TLS", f"{path} expires on {ends:%Y-%m-%d}", fix)
    return ok("TLS", f"{path} matches its key; valid until {ends:%Y-%m-%d}")


def _exposure(settings: Settings, answer: ServiceAnswer | None) -> Iterator[Diagnostic]:
    """By the answer of the running service or, if none runs, by the settings."""
    where = settings.listens_at if answer is None else answer.url
    if _is_outside(where):
        fix = "Set WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY, or put a TLS proxy in front of it."
        yield warn("exposure", f"other machines can reach {where} without TLS", fix)
    for network in settings.trusted_peers:
        if network is not None and network.prefixlen == 0:
            fix = "Name the machines that you trust in WATCHWORD_TRUSTED_PEERS."
            yield warn("exposure", f"{settings.actor_headers[0]} is trusted from every address ({network})", fix)
    off_because, name = settings.local_mode_off_because, settings.actor_headers[0]
    if answer is not None and answer.local_mode is not None:
        on = f"in local mode: this user may name an actor by {name}"
        off = "not in local mode, or runs as another user"
        yield ok("exposure", f"the running service is {on if answer.local_mode else off}")
    elif off_because is None:
        yield ok("exposure", f"local mode is on: processes of the server's user may name an actor by {name}")
    else:
        yield ok("exposure", f"local mode is off: {off_because}")


def _ignored_parameters(counts: Mapping[str, int]) -> Iterator[Diagnostic]:
    for name, number in sorted(counts.items()):
        if number == 0:
            continue
        requests = "1 request" if number == 1 else f"{number:,} requests"
        what = f"{requests} at /auth or /resources/…/auth had the parameter {name}, which requires nothing"
        fix = (
            "Requirements have the prefix: watchword.scope, watchword.privilege, watchword.audience. "
            "If the gateway sends the application's query string, let it send none."
        )
        yield warn("gateway", what, fix)


def _is_outside(where: str) -> bool:
    """Whether other machines reach it without TLS."""
    parts = urlsplit(where)
    host = parts.hostname or ""
    return parts.scheme == "http" and host != "localhost" and not is_loopback(host)


def _server_of_commands(url: str | None, last_start: LastStart | None) -> Iterator[Diagnostic]:
    """Whether the server that commands call is the one of this store."""
    if url is None:
        return
    answer = ask(url)
    if answer is None:
        yield warn("server", f"no Watchword answers at WATCHWORD_URL, {url}", "Start it, or correct WATCHWORD_URL.")
    elif last_start is not None and answer.issuer not in (None, last_start.issuer):
        what = f"WATCHWORD_URL, {url}, is the service {answer.issuer}; this store's is {last_start.issuer}"
        yield warn("server", what, "Name that service's --data-dir, or unset WATCHWORD_URL.")
    else:
        yield ok("server", f"Watchword {answer.version} answers at WATCHWORD_URL, {url}")
