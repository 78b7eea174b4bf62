"""The service: its address and TLS certificate, and what a running service answers."""

import errno
import http.client
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.x509 import load_pem_x509_certificate

from watchword import __version__
from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.store_urls import LastStart
from watchword.settings import Settings, bind_error

ANSWER_SECONDS = 3.0
MAX_BYTES = 65_536
EXPIRES_SOON = timedelta(days=30)
_METADATA = "/.well-known/oauth-authorization-server"


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
    try:
        with _connected(url) as connected:
            parts = urlsplit(url)
            is_named = parts.scheme in ("http", "https") and not _is_unspecified(parts.hostname or "")
            connection = http.client.HTTPConnection(parts.hostname if is_named and parts.hostname else "localhost")
            connection.sock = connected
            connection.auto_open = 0  # never connects to another address
            path = parts.path.rstrip("/") if is_named else ""
            version = _get(connection, f"{path}/config")["watchword"]["version"]
            metadata = _get(connection, f"{path}{_METADATA}")
            session = _get(connection, f"{path}/session", {"X-Watchword-Console": "1"})
            return ServiceAnswer(url, str(version), metadata.get("issuer"), session.get("localMode"))
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    connection.request("GET", path, headers=headers or {})
    with connection.getresponse() as answer:
        content = json.loads(answer.read(MAX_BYTES) or b"{}")
    return content if isinstance(content, dict) else {}


def _connected(url: str) -> socket.socket:
    if url.startswith("unix:"):
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.settimeout(ANSWER_SECONDS)
        connected.connect(url.removeprefix("unix:"))
        return connected
    parts = urlsplit(url)
    encrypted = parts.scheme == "https"
    connected = socket.create_connection((parts.hostname, parts.port or (443 if encrypted else 80)), ANSWER_SECONDS)
    if not encrypted:
        return connected
    # Nothing secret is sent. `tls` checks the certificate.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connected, server_hostname=parts.hostname)


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def ask_own_service(settings: Settings, last_start: LastStart | None) -> ServiceAnswer | None:
    """The service that runs on this store, at the address of its last start. If instances share the store, the address
    of the settings comes first.
    """
    last = [] if last_start is None else [last_start.listens_at]
    for url in [settings.listens_at, *last] if settings.is_shared else last or [settings.listens_at]:
        answer = ask(url)
        if answer is not None and (last_start is None or answer.issuer in (None, last_start.issuer)):
            return answer
    return None


def listen_address(
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
        if path.stat().st_mode & 0o077:
            yield bad("port", f"{path} is open to other users", f"chmod 600 {path}")


def _port(settings: Settings, *, running: bool) -> Diagnostic:
    where, problem = settings.listens_at, bind_error(settings.endpoint)
    if problem is None and running:
        return warn(
            "port", f"{where} is free, but the service runs on {settings.data_dir}", "Name its --host and --port."
        )
    if problem is None:
        return ok("port", f"{where} is free")
    if problem.errno != errno.EADDRINUSE:
        return bad(
            "port", f"the service cannot listen at {where}: {problem.strerror}", "Choose another --host or --port."
        )
    return _taken(where)


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


def tls(settings: Settings) -> Iterator[Diagnostic]:
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
    if settings.tls_key.stat().st_mode & 0o077:
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


def exposure(settings: Settings, answer: ServiceAnswer | None) -> Iterator[Diagnostic]:
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


def _is_outside(where: str) -> bool:
    """Whether other machines reach it without TLS."""
    parts = urlsplit(where)
    if parts.scheme != "http":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def server_of_commands(url: str | None, last_start: LastStart | None) -> Iterator[Diagnostic]:
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
