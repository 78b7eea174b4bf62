"""IP addresses of clients, and networks.

Uses of a token are stored with the network, not the address: enough to notice a token used from the wrong place, too
little to track a person. IPv4 networks have 24 bits, IPv6 networks 48, the usual size of a site.
"""

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IPV6_SUBSCRIBER_BITS = 64
IPV6_SITE_BITS = 56
MAX_NETWORKS = 16
"""Networks stored of one token."""


def within(address: str, networks: Iterable[Network]) -> bool:
    """Whether the address, or the IPv4 address mapped to it, is in one of the networks."""
    parsed = parse_address(address)
    return parsed is not None and any(parsed in network for network in networks)


@lru_cache(4_096)
def network_of(client: str) -> str:
    """The network of a client's address. Anything else, such as a Unix socket, is returned unchanged."""
    address = parse_address(client)
    if address is None:
        return client
    return str(ipaddress.ip_network((int(address), 24 if address.version == 4 else 48), strict=False))


def subscriber_of(peer: str, bits: int = IPV6_SUBSCRIBER_BITS) -> str:
    """The address, or the IPv6 network that one subscriber gets. Text that is not an address stays as it is."""
    address = parse_address(peer)
    if address is None or address.version == 4:
        return peer
    return str(ipaddress.ip_network((int(address), bits), strict=False))


def origin_of(peer: str) -> str:
    """The subscriber of a peer, for limits. All loopback addresses are one origin."""
    address = parse_address(peer)
    return "loopback" if address is not None and address.is_loopback else subscriber_of(peer)


def origins_of(peer: str) -> tuple[str, str, str]:
    """For limits on strangers: the origin, the largest IPv6 network that a provider usually gives one subscriber, and
    the network.
    """
    return origin_of(peer), subscriber_of(peer, IPV6_SITE_BITS), network_of(peer)


def is_loopback(text: str) -> bool:
    """Whether this is an address of loopback. An IPv4 address that is mapped to IPv6 is not."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address | None:
    """An IPv4 address in place of the IPv6 address that it is mapped to."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


Endpoint = tuple[socket.AddressFamily, str | tuple[str, int]]
"""An address family and address, as the socket module has them."""
