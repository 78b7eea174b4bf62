"""What the machine gives: folder, disk, address, certificate, limits; and who can reach the service."""

import errno
import http.client
import json
import os
import resource
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from watchword.domain.findings import Finding, bad, ok, warn
from watchword.settings import Settings
from watchword.signing.certificates import validity

LITTLE_BYTES = 1024**3
TOO_LITTLE_BYTES = 64 * 1024**2
SOON = timedelta(days=30)
FEW_FILES = 4_096
ANSWER_SECONDS = 3.0
MOST_BYTES = 65_536


def data_folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if folder.is_symlink() and not folder.exists():
        yield bad("data folder", f"{folder} is a link that leads nowhere", "Name another with --data-dir.")
        return
    if not folder.exists():
        yield warn("data folder", f"{folder} is not there", "It is made by the first start: watchword serve")
        return
    mode = folder.stat().st_mode & 0o777
    if not folder.is_dir():
        yield bad("data folder", f"{folder} is no folder", "Name another with WATCHWORD_DATA_DIR or --data-dir.")
        return
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield bad("data folder", f"{folder} cannot be written by this user", f"Give it to this user: chown {folder}")
    elif mode & 0o077:
        level = bad if mode & 0o002 else warn
        yield level("data folder", f"{folder} is open to others (mode {mode:04o})", f"chmod 700 {folder}")
    else:
        yield ok("data folder", f"{folder} is for its owner alone")
    yield from _room(folder)


def _room(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    room = f"{free / 1_000_000:,.0f} MB are free on the disk of {folder}"
    fix = "Make room: a full disk stops every write."
    if free < TOO_LITTLE_BYTES:
        yield bad("disk", room, fix)
    elif free < LITTLE_BYTES:
        yield warn("disk", room, fix)
    else:
        yield ok("disk", room)


def address(settings: Settings, *, running: bool) -> Iterator[Finding]:
    where = settings.listens_at
    if settings.socket_path is not None:
        yield from _socket(settings.socket_path, settings, running=running)
        return
    problem = _bind(settings)
    if problem is None and running:
        yield warn(
            "port", f"{where} is free, but the service runs on {settings.data_dir}", "Name its --host and --port."
        )
    elif problem is None:
        yield ok("port", f"{where} is free")
    elif problem.errno != errno.EADDRINUSE:
        yield bad("port", f"{where} cannot be listened at: {problem.strerror}", "Choose another --host or --port.")
    else:
        yield _taken(settings, running=running)


def _taken(settings: Settings, *, running: bool) -> Finding:
    version = _version_at(settings)
    if version is None:
        fix = "End that program, or choose another --port."
        return bad("port", f"another program listens at {settings.listens_at}", fix)
    if not running:
        fix = "Choose another --port, or name that service's --data-dir."
        return bad("port", f"the Watchword at {settings.listens_at} runs on another data folder", fix)
    return ok("port", f"Watchword {version} answers at {settings.listens_at}")


def _socket(path: Path, settings: Settings, *, running: bool) -> Iterator[Finding]:
    if not path.parent.is_dir():
        yield bad("port", f"the folder of {path} is not there", f"mkdir -p {path.parent}")
    elif not path.exists():
        yield ok("port", f"{path} is free")
    elif not path.is_socket():
        yield bad("port", f"{path} is there and no socket", "Name another with WATCHWORD_HOST or --host.")
    elif not running:
        if _version_at(settings) is None:
            yield ok("port", f"{path} was left by a killed service; the next start removes it")
        else:
            yield _taken(settings, running=running)
    else:
        yield _taken(settings, running=running)
        if path.stat().st_mode & 0o077:
            yield bad("port", f"{path} is open to others", f"chmod 600 {path}")


def _bind(settings: Settings) -> OSError | None:
    family, where = settings.endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            return error
    return None


def _version_at(settings: Settings) -> str | None:
    """The version of the Watchword that answers there in time; None when nobody does, or a stranger."""
    told: list[str | None] = []
    # In a thread that may be left behind: a stranger can say one byte a second for ever.
    asking = threading.Thread(target=lambda: told.append(_asked_version(settings)), daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    return told[0] if told else None


def _asked_version(settings: Settings) -> str | None:
    family, where = settings.endpoint
    try:
        with socket.socket(family, socket.SOCK_STREAM) as plain:
            plain.settimeout(ANSWER_SECONDS)
            plain.connect(where)
            connection = http.client.HTTPConnection("localhost")
            connection.sock = _without_proof().wrap_socket(plain) if settings.tls else plain
            connection.request("GET", "/config")
            told = json.loads(connection.getresponse().read(MOST_BYTES))
            return str(told["watchword"]["version"])
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None


def _without_proof() -> ssl.SSLContext:
    """Nothing secret is said there: whether its certificate is good is another check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def tls(settings: Settings) -> Iterator[Finding]:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key, "")
        begins, ends = validity(settings.tls_cert)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        fix = "WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY must name a certificate chain and its private key, as PEM."
        yield bad("TLS", f"{settings.tls_cert} and {settings.tls_key} cannot be used: {problem}", fix)
        return
    yield _valid(settings.tls_cert, begins, ends)
    if settings.tls_key.stat().st_mode & 0o077:
        yield warn("TLS", f"{settings.tls_key} can be read by others", f"chmod 600 {settings.tls_key}")


def _valid(path: Path, begins: datetime, ends: datetime) -> Finding:
    now = datetime.now(UTC)
    fix = "Renew the certificate, then start the service again."
    if ends <= now:
        return bad("TLS", f"{path} ended on {ends:%Y-%m-%d}", fix)
    if begins > now:
        return bad(
            "TLS", f"{path} is valid only from {begins:%Y-%m-%d}", "Check the clock, or use another certificate."
        )
    if ends - now < SOON:
        return warn("TLS", f"{path} ends on {ends:%Y-%m-%d}", fix)
    return ok("TLS", f"{path} and its key belong together; valid until {ends:%Y-%m-%d}")


def exposure(settings: Settings) -> Iterator[Finding]:
    outside = not settings.is_loopback and settings.socket_path is None
    if outside and not settings.tls:
        fix = "Set WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY, or put a TLS proxy before it."
        yield warn("exposure", f"{settings.listens_at} can be reached from other machines without TLS", fix)
    for network in settings.trusted_peers:
        if network is not None and network.prefixlen == 0:
            fix = "Name the machines that you trust in WATCHWORD_TRUSTED_PEERS."
            yield warn("exposure", f"{settings.actor_headers[0]} is believed from every address ({network})", fix)
    off_because = settings.local_mode_off_because
    if off_because is None:
        name = settings.actor_headers[0]
        yield ok("exposure", f"local mode is on: processes of the server's own user may name an actor by {name}")
    else:
        yield ok("exposure", f"local mode is off: {off_because}")


def file_limit() -> Iterator[Finding]:
    """The server raises its own limit as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        fix = f"Raise it to {FEW_FILES} or more (ulimit -Hn, or LimitNOFILE of the supervisor)."
        yield warn("open files", f"a process may open {hard}, which bounds its connections", fix)
    else:
        yield ok("open files", "a process may open enough of them")
