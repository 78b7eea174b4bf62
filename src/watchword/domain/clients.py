"""Clients: what is kept of where a token was used from.

Its network, not its address: enough to see that a token is used from where it should not be, too little to follow a
person. An IPv4 address stands for its network of 24 bits, an IPv6 address for one of 48, which is what a site is given.
"""

import ipaddress
from functools import lru_cache

IPV4_BITS = 24
IPV6_BITS = 48
REMEMBERED = 4_096


@lru_cache(REMEMBERED)
def network_of(client: str) -> str:
    """The network of a client's address. What is no address, such as a Unix socket, stays as it is."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    address = getattr(address, "ipv4_mapped", None) or address
    bits = IPV4_BITS if address.version == 4 else IPV6_BITS
    return str(ipaddress.ip_network((int(address), bits), strict=False))
