"""`watchword health`: what a supervisor or a container asks, without a token, a shell or a program of others."""

import http.client
import ipaddress
import json
import socket
import ssl
from typing import Any

import click

from watchword.cli.common import with_settings
from watchword.cli.text import one_line
from watchword.domain.errors import OperatorError
from watchword.settings import Settings

_SECONDS = 8


@click.command()
@with_settings("host", "port", "tls_cert", "tls_key")
def health(settings: Settings) -> None:
    """Ask the service on this machine whether it is well; exit code 1 if not.

    It is asked where the settings say that it listens, so give the flags that the service has. Without its search index
    it is degraded, and well enough: tokens are issued, verified and revoked without it.

    \b
    Example: watchword health --port 8080
    """
    status, told = _asked(settings)
    if status != 200:
        raise OperatorError(f"The service at {settings.listens_at} is {_words(told)}.")
    click.echo(one_line(_words(told)))


def _asked(settings: Settings) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", timeout=_SECONDS)
    try:
        connection.sock = _connected(settings)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(65_536))
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise OperatorError(
            f"No answer at {settings.listens_at} ({why}). If it does not run, start it: watchword serve"
        ) from None
    finally:
        connection.close()


def _connected(settings: Settings) -> socket.socket:
    family, address = settings.endpoint
    if not isinstance(address, str) and ipaddress.ip_address(address[0]).is_unspecified:
        address = ("::1" if family is socket.AF_INET6 else "127.0.0.1", address[1])
    plain = socket.socket(family)
    plain.settimeout(_SECONDS)
    plain.connect(address)
    if not settings.tls:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is for the name that others use. Nothing secret is said, and nobody is between us and ourselves.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def _words(told: Any) -> str:
    """`degraded: index: …`, of the answer of /health."""
    parts = [f"{name}: {part['message']}" for name, part in told.get("parts", {}).items() if "message" in part]
    return ": ".join([told["status"], " ".join(parts).rstrip(".")]) if parts else str(told["status"])
