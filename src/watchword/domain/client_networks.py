"""Networks of client addresses.

Uses of a token are stored with the network, not the address: enough to notice a token used from the wrong place, too
little to track a person. IPv4 networks have 24 bits, IPv6 networks 48, the usual size of a site.
"""

import ipaddress
from functools import lru_cache

IPV4_BITS = 24
IPV6_SITE_BITS = 48
IPV6_SUBSCRIBER_BITS = 64
CACHE_SIZE = 4_096


@lru_cache(CACHE_SIZE)
def network_of(client: str) -> str:
    """The network of a client's address. Anything else, such as a Unix socket, is returned unchanged."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    address = getattr(address, "ipv4_mapped", None) or address
    bits = IPV4_BITS if address.version == 4 else IPV6_SITE_BITS
    return str(ipaddress.ip_network((int(address), bits), strict=False))


def subscriber_of(peer: str) -> str:
    """The address, or the IPv6 network that one subscriber gets. Text that is not an address stays as it is."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if address.version == 4 or address.ipv4_mapped is not None:
        return peer
    return str(ipaddress.ip_network((int(address), IPV6_SUBSCRIBER_BITS), strict=False))
