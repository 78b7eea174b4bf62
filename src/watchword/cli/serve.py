"""`watchword serve`, `health` and `doctor`: run the service and check it."""

import http.client
import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import click

from watchword.admin.rules import Diagnostic, Level, bad, ok
from watchword.basics.errors import OperatorError
from watchword.basics.files import trust_group
from watchword.basics.interpreter import exit_now
from watchword.cli import output as out
from watchword.cli.local import wiring
from watchword.cli.options import format_flags, setting_flags, with_settings
from watchword.cli.run import Command, WrongUse, allow_closed_output
from watchword.settings import TABLE, Settings, load_with_defaults

HEALTH_SECONDS = 8
MAX_HEALTH_BYTES = 65_536


@click.command(cls=Command)
@with_settings(*(setting.name for setting in TABLE))
def serve(settings: Settings) -> None:
    """Example: watchword serve --port 8080 --data-dir ./watchword-data"""
    allow_closed_output()
    wiring.serve(settings)
    exit_now()


@click.command(cls=Command)
@click.option("--url", metavar="URL", help="Check this service. [default: the one that the flags describe]")
@format_flags
@with_settings("host", "port", "tls_cert", "tls_key")
def health(url: str | None, settings: Settings) -> None:
    """Without --url, the service on this machine is checked where the settings say it listens, so pass the same flags
    as `serve`. A service without its search index is degraded but healthy: tokens are issued, verified and revoked
    without it.

    Example: watchword health --port 8080
    Example: watchword health --url https://tokens.example.org --json
    """
    status, answer = _ask_health(url, settings)
    out.say_data(answer)
    if status != 200:
        raise OperatorError(f"The service at {url or settings.listens_at} is {_health_sentence(answer)}.")
    if not out.is_data():
        out.say(_health_sentence(answer))


def _ask_health(url: str | None, settings: Settings) -> tuple[int, Any]:
    shown = url or settings.listens_at
    connection, path = _connection_to(url or "http://localhost")
    try:
        if url is None:
            _connect_locally(connection, settings)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(MAX_HEALTH_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        from watchword.client.http_clients import speaks_tls

        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        next_step = "If the service is not running, start it: watchword serve"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            next_step = "It does not use TLS on this port: use http."
        elif shown.startswith("http://") and speaks_tls(shown):
            next_step = "It uses TLS on this port: use https, or pass --tls-cert and --tls-key."
        raise OperatorError(f"No answer at {shown} ({reason}). {next_step}") from None
    finally:
        connection.close()


def _connection_to(url: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection that is not open yet, and the path of the health check."""
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in kinds and parts.hostname and parts.username is None:
            # Without a port, http.client would split ::1 at its last colon.
            port = parts.port or (443 if parts.scheme == "https" else 80)
            return kinds[parts.scheme](parts.hostname, port, timeout=HEALTH_SECONDS), f"{parts.path.rstrip('/')}/health"
    raise WrongUse("--url must be an address such as http://127.0.0.1:8080, without a password.")


def _connect_locally(connection: http.client.HTTPConnection, settings: Settings) -> None:
    family, address = settings.endpoint
    if not isinstance(address, str) and ipaddress.ip_address(address[0]).is_unspecified:
        address = ("::1" if family is socket.AF_INET6 else "127.0.0.1", address[1])
    connection.sock = socket.socket(family)
    connection.sock.settimeout(HEALTH_SECONDS)
    connection.sock.connect(address)
    if settings.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The certificate has the public name. No secret is sent, and the connection stays on this machine.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection.sock = context.wrap_socket(connection.sock)


def _health_sentence(answer: Any) -> str:
    """`degraded: index: …`, from the answer of /health."""
    try:
        parts = [f"{name}: {part['message']}" for name, part in answer.get("parts", {}).items() if "message" in part]
        status = str(answer["status"])
    except (AttributeError, KeyError, TypeError):
        raise OperatorError("The answer is not one of Watchword's. Is this its address?") from None
    return ": ".join([status, " ".join(parts).rstrip(".")]) if parts else status


@click.command(cls=Command)
@format_flags
@setting_flags(*(setting.name for setting in TABLE))
def doctor(**flags: str | None) -> None:
    """It changes nothing and works whether the service runs or not. A running service is checked by its answers, the
    next start by the settings given here.

    Example: watchword doctor --data-dir ./watchword-data
    """
    found = list(_diagnose(flags))
    out.say_data([{"level": one.level.value, "about": one.about, "what": one.what, "fix": one.fix} for one in found])
    for one in found:
        end = "" if one.what.endswith("?") else "."
        fix = f"{end} Fix: {one.fix}" if one.fix else ""
        out.say(f"{one.level.value:<5}{one.about}: {one.what}{fix}")
    if any(one.level is Level.BAD for one in found):
        raise SystemExit(1)


def _diagnose(flags: dict[str, str | None]) -> Iterator[Diagnostic]:
    from watchword.client.profiles import read_environment

    settings, problems, given = load_with_defaults(flags)
    trust_group(settings.trusted_group)
    for problem in problems:
        yield bad("settings", problem.rstrip("."), "Correct it. The checks below ignore it.")
    if not problems:
        yield ok("settings", f"{', '.join(given)} given and valid" if given else "none given, the defaults apply")
    yield from wiring.diagnose(settings, read_environment().url)
