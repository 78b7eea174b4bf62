"""The addresses of a host, resolved once for each request. Every one must be allowed, and the connection goes to one of
them, so a name cannot lead elsewhere between the check and the connection.
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from watchword.basics.networks import Address
from watchword.outbound.rules import AddressRule, OutboundError, OutboundProblem, OutboundUrl, is_allowed, is_within

MAX_LOOKUPS = 32
STACK = 512 * 1024
# A lookup cannot be cancelled. Those of webhooks' hosts, which may hang, must not delay that of the identity provider.
_lookups, _operator_lookups = ThreadPoolExecutor(MAX_LOOKUPS), ThreadPoolExecutor(MAX_LOOKUPS)
_NEEDS_HTTPS = "it must begin with https://. WATCHWORD_WEBHOOK_ALLOW_HTTP can allow http."


async def addresses_of(url: OutboundUrl, rule: AddressRule | None) -> list[Address]:
    try:
        addresses = await _resolve(url, _operator_lookups if rule is None else _lookups)
    except OSError as error:
        check_scheme(url, rule, is_inside=False)
        reason = f"The host name {url.host} cannot be resolved ({error.strerror or error})."
        raise OutboundError(OutboundProblem.UNRESOLVED, reason) from None
    if rule is not None:
        for address in addresses:
            if not is_allowed(address, rule.networks):
                raise OutboundError(
                    OutboundProblem.NOT_ALLOWED,
                    f"{url.host} has the address {address}, which is not public. "
                    "WATCHWORD_WEBHOOK_ALLOWED_NETWORKS can allow its network.",
                )
        check_scheme(url, rule, is_inside=all(is_within(address, rule.networks) for address in addresses))
    return addresses


def check_scheme(url: OutboundUrl, rule: AddressRule | None, *, is_inside: bool) -> None:
    if rule is not None and url.scheme == "http" and not (rule.allow_http or is_inside):
        raise OutboundError(OutboundProblem.NOT_ALLOWED, _NEEDS_HTTPS)


async def _resolve(url: OutboundUrl, lookups: ThreadPoolExecutor) -> list[Address]:
    """In a thread of its own: a slow name server delays no other request."""
    with suppress(ValueError):
        return [ipaddress.ip_address(url.host)]
    if f".{url.host.rstrip('.').lower()}".endswith(".localhost"):  # RFC 6761
        return [ipaddress.IPv4Address("127.0.0.1")]
    look_up = partial(socket.getaddrinfo, url.host, url.port, type=socket.SOCK_STREAM)
    try:
        rows = await asyncio.get_running_loop().run_in_executor(lookups, look_up)
        # Without the zone of a link-local address, which is not allowed anyway.
        texts = dict.fromkeys(str(row[4][0]).partition("%")[0] for row in rows)
        return [ipaddress.ip_address(text) for text in texts]
    except ValueError as error:
        raise OSError(str(error)) from None
