"""Requests that the service itself sends to strangers: what is asked, within which bounds, and where it may go.

The answer is bounded as a whole: its headers, informational answers, chunk framing and TLS count as its body does.
"""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from watchword.basics.errors import invalid
from watchword.basics.names import check_text
from watchword.basics.networks import Address, Network

MAX_URL = 2_000

_URL = re.compile(r"[\x21-\x5b\x5d-\x7e]+", re.ASCII)  # visible, without the backslash, which parsers disagree on
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


class OutboundUrl(NamedTuple):
    """A URL, parsed once: the address that is checked is the one connected to."""

    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """Includes the query."""

    @property
    def netloc(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    def __repr__(self) -> str:
        """Without the path, which may be secret."""
        return f"OutboundUrl({self.scheme}://{self.netloc})"


class AnswerBounds(NamedTuple):
    seconds: float
    """For the whole request, with the lookup of the name."""
    received: int
    """Bytes of the whole answer, as they come from the network."""
    pieces: int
    """Reads from the network and parts of the answer, which each take time however short they are."""
    kept: int
    """Bytes of the body."""


class AddressRule(NamedTuple):
    """Only public addresses, and those of the networks; http only there, or where it is allowed."""

    networks: tuple[Network, ...]
    allow_http: bool


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """Its repr has nothing secret: paths, headers and bodies may be."""

    method: str
    url: OutboundUrl
    bounds: AnswerBounds
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    rule: AddressRule | None = None
    """None: an address that the operator has chosen, which may be any."""


class OutboundAnswer(NamedTuple):
    status: int
    body: bytes
    """As it came, and at most as much as was asked for."""
    is_whole: bool
    """Whether the body ended within the bounds and is kept as a whole."""


class OutboundProblem(Enum):
    NOT_ALLOWED = "not_allowed"
    UNRESOLVED = "unresolved"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIME = "time"
    TOO_LONG = "too_long"
    INVALID = "invalid"
    """The answer is no HTTP, or ended early."""
    PROCESS = "process"
    """The process that sends ended."""


class OutboundError(Exception):
    """Why there is no answer. The message names what happened, and nothing of the request but its host."""

    def __init__(self, problem: OutboundProblem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def parse_url(url: str, field: str = "url") -> OutboundUrl:
    """A host that ends in a number must be an IPv4 address of four decimal parts: programs read other forms as
    different addresses.
    """
    check_text(url, field, MAX_URL)
    if not _URL.fullmatch(url):
        raise invalid(field, f"{field} must be an https URL in ASCII, without spaces and backslashes.")
    try:
        parts = urlsplit(url)
        host = _host(parts.netloc, parts.hostname or "")
    except ValueError:
        host = ""
    if not host or parts.scheme not in {"https", "http"}:
        raise invalid(
            field, f"{field} must be an https URL such as https://example.com/hooks, with a host name or an IP address."
        )
    if "@" in parts.netloc or "#" in url:
        raise invalid(field, f"{field} must have no user and no fragment.")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise invalid(field, f"{field} must have a port from 1 to 65535, or none.")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return OutboundUrl(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


def _host(netloc: str, host: str) -> str:
    """Empty or a `ValueError` if it is neither a name nor an address. An address with a zone is local."""
    if "[" in netloc or ":" in host:
        return "" if "%" in host else str(ipaddress.IPv6Address(host))
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return str(ipaddress.IPv4Address(host))
    return host if _HOST.fullmatch(host) and len(host) <= 253 else ""


# Addresses

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "3fff::/20",  # documentation
            "2001:20::/28",  # ORCHIDv2, which are not routed
            "192.88.99.0/24",  # 6to4 relays
            "168.63.129.16",  # the metadata service of Azure
        ),
    )
)
"""Addresses that Python calls global."""


def is_allowed(address: Address, networks: Collection[Network]) -> bool:
    """Whether messages may be sent to it: it is global, also as what it contains, or a setting names its network."""
    if is_within(address, networks):
        return True
    inner = _contained(address)
    if inner:
        return all(is_allowed(one, networks) for one in inner)
    if is_within(address, _REFUSED) or (address.version == 6 and address not in _GLOBAL_UNICAST):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def is_within(address: Address, networks: Collection[Network]) -> bool:
    return any(address in network for network in networks)


def _contained(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address leads to: mapped, NAT64, 6to4 and Teredo (its server and its client)."""
    if address.version == 4:
        return []
    assert isinstance(address, ipaddress.IPv6Address)
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address.sixtofour]
    return [] if address.teredo is None else list(address.teredo)
