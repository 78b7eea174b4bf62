"""The service: where it listens or would, and, if one runs on this store, what it answers itself."""

import errno
import http.client
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from watchword import __version__
from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.domain.store_urls import LastStart
from watchword.settings import Settings

ANSWER_SECONDS = 3.0
MOST_BYTES = 65_536
_METADATA = "/.well-known/oauth-authorization-server"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Watchword says of itself."""

    url: str
    version: str
    issuer: str | None
    """None where it does not say, as on a Unix socket."""
    local_mode: bool | None
    """Whether it believes who we say we are; None where it does not say, as without a console."""


def ask(url: str) -> Answer | None:
    """What the Watchword answers that listens at this address; None when nobody does in time, or a stranger."""
    told: list[Answer | None] = []
    # In a thread that may be left behind: a stranger can say one byte a second for ever.
    asking = threading.Thread(target=lambda: told.append(_asked(url)), daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    return told[0] if told else None


def _asked(url: str) -> Answer | None:
    try:
        with _connected(url) as connected:
            parts = urlsplit(url)
            is_named = parts.scheme in ("http", "https") and not _is_unspecified(parts.hostname or "")
            connection = http.client.HTTPConnection(parts.hostname if is_named and parts.hostname else "localhost")
            connection.sock = connected
            connection.auto_open = 0  # never to anywhere else
            path = parts.path.rstrip("/") if is_named else ""
            version = _get(connection, f"{path}/config")["watchword"]["version"]
            metadata = _get(connection, f"{path}{_METADATA}")
            session = _get(connection, f"{path}/session", {"X-Watchword-Console": "1"})
            return Answer(url, str(version), metadata.get("issuer"), session.get("localMode"))
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
        return None


def _get(connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    connection.request("GET", path, headers=headers or {})
    with connection.getresponse() as answer:
        content = json.loads(answer.read(MOST_BYTES) or b"{}")
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
    # Nothing secret is said there: whether its certificate is good is another check.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connected, server_hostname=parts.hostname)


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def ask_own(settings: Settings, started: LastStart | None) -> Answer | None:
    """The service that runs on this store: at the address of the last start, which doctor need not be given. Where
    instances share the store, the one with our settings comes first.
    """
    last = [] if started is None else [started.listens_at]
    for url in [settings.listens_at, *last] if settings.is_shared else last or [settings.listens_at]:
        answer = ask(url)
        if answer is not None and (started is None or answer.issuer in (None, started.issuer)):
            return answer
    return None


def address(
    settings: Settings, started: LastStart | None, answer: Answer | None, *, running: bool
) -> Iterator[Diagnostic]:
    if answer is not None:
        yield from _answered(answer)
        if settings.public_url is not None and answer.issuer not in (None, settings.issuer):
            what = f"the running service calls itself {answer.issuer}, and WATCHWORD_PUBLIC_URL is {settings.issuer}"
            yield warn("port", what, "Start the service again with that address, or correct WATCHWORD_PUBLIC_URL.")
    elif running and started is not None and started.listens_at != settings.listens_at and not settings.is_shared:
        what = f"the service runs on {settings.data_dir}, but does not answer at {started.listens_at}"
        yield warn("port", what, "See its log.")
    elif settings.socket_path is not None:
        yield from _socket(settings.socket_path, settings.listens_at)
    else:
        yield _port(settings, running=running)


def _answered(answer: Answer) -> Iterator[Diagnostic]:
    named = "" if answer.issuer is None else f" as {answer.issuer}"
    yield ok("port", f"the running service is Watchword {answer.version}; it answers at {answer.url}{named}")
    if answer.version != __version__:
        what = f"the running service is version {answer.version}, this command is {__version__}"
        yield warn("port", what, "Run both from one version: start the service again, or use its command.")
    if answer.url.startswith("unix:"):
        path = Path(answer.url.removeprefix("unix:"))
        if path.stat().st_mode & 0o077:
            yield bad("port", f"{path} is open to others", f"chmod 600 {path}")


def _port(settings: Settings, *, running: bool) -> Diagnostic:
    where, problem = settings.listens_at, _bind(settings)
    if problem is None and running:
        return warn(
            "port", f"{where} is free, but the service runs on {settings.data_dir}", "Name its --host and --port."
        )
    if problem is None:
        return ok("port", f"{where} is free")
    if problem.errno != errno.EADDRINUSE:
        return bad("port", f"{where} cannot be listened at: {problem.strerror}", "Choose another --host or --port.")
    return _taken(where)


def _taken(where: str) -> Diagnostic:
    if ask(where) is None:
        return bad("port", f"another program listens at {where}", "End that program, or choose another --port.")
    fix = "Choose another --port, or name that service's --data-dir."
    return bad("port", f"the Watchword at {where} runs on another data folder", fix)


def _socket(path: Path, where: str) -> Iterator[Diagnostic]:
    if not path.parent.is_dir():
        yield bad("port", f"the folder of {path} is not there", f"mkdir -p {path.parent}")
    elif not path.exists():
        yield ok("port", f"{path} is free")
    elif not path.is_socket():
        yield bad("port", f"{path} is there and no socket", "Name another with WATCHWORD_HOST or --host.")
    elif ask(where) is None:
        yield ok("port", f"{path} was left by a killed service; the next start removes it")
    else:
        yield _taken(where)


def _bind(settings: Settings) -> OSError | None:
    family, where = settings.endpoint
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            return error
    return None


def exposure(settings: Settings, answer: Answer | None) -> Iterator[Diagnostic]:
    """Of the running service what it answers; else what the settings would make of it."""
    where = settings.listens_at if answer is None else answer.url
    if _is_outside(where):
        fix = "Set WATCHWORD_TLS_CERT and WATCHWORD_TLS_KEY, or put a TLS proxy before it."
        yield warn("exposure", f"{where} can be reached from other machines without TLS", fix)
    for network in settings.trusted_peers:
        if network is not None and network.prefixlen == 0:
            fix = "Name the machines that you trust in WATCHWORD_TRUSTED_PEERS."
            yield warn("exposure", f"{settings.actor_headers[0]} is believed from every address ({network})", fix)
    off_because, name = settings.local_mode_off_because, settings.actor_headers[0]
    if answer is not None and answer.local_mode is not None:
        on = f"in local mode: this user may name an actor by {name}"
        off = "not in local mode, or runs as another user"
        yield ok("exposure", f"the running service is {on if answer.local_mode else off}")
    elif off_because is None:
        yield ok("exposure", f"local mode is on: processes of the server's own user may name an actor by {name}")
    else:
        yield ok("exposure", f"local mode is off: {off_because}")


def _is_outside(where: str) -> bool:
    """Whether it is reached from other machines, and without TLS."""
    parts = urlsplit(where)
    if parts.scheme != "http":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def named_server(url: str | None, started: LastStart | None) -> Iterator[Diagnostic]:
    """The server that commands ask: whether it is the one of this store."""
    if url is None:
        return
    answer = ask(url)
    if answer is None:
        yield warn("server", f"no Watchword answers at WATCHWORD_URL, {url}", "Start it, or correct WATCHWORD_URL.")
    elif started is not None and answer.issuer not in (None, started.issuer):
        what = f"WATCHWORD_URL, {url}, is another service ({answer.issuer}) than that of this store ({started.issuer})"
        yield warn("server", what, "Name that service's --data-dir, or unset WATCHWORD_URL.")
    else:
        yield ok("server", f"Watchword {answer.version} answers at WATCHWORD_URL, {url}")
