import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from watchword.basics.networks import network_of, origin_of


@given(st.ip_addresses(v=4))
def test_ipv4_address_is_stored_as_its_24_bit_network(address: ipaddress.IPv4Address) -> None:
    network = ipaddress.ip_network(network_of(str(address)))
    assert address in network
    assert network.prefixlen == 24


@given(st.ip_addresses(v=6))
def test_ipv6_address_is_stored_as_its_48_bit_network(address: ipaddress.IPv6Address) -> None:
    assume(address.ipv4_mapped is None)
    network = ipaddress.ip_network(network_of(str(address)))
    assert address in network
    assert network.prefixlen == 48


@given(st.ip_addresses(v=4))
def test_ipv4_mapped_address_is_stored_as_ipv4(address: ipaddress.IPv4Address) -> None:
    assert network_of(f"::ffff:{address}") == network_of(str(address))


def test_ipv6_zone_is_removed() -> None:
    assert network_of("fe80::1%eth0") == "fe80::/48"


@pytest.mark.parametrize("client", ["unix", "", "not an address"])
def test_non_address_is_stored_unchanged(client: str) -> None:
    assert network_of(client) == client


@pytest.mark.parametrize(
    ("other", "same"), [("2001:db8::8000:0:0:1", True), ("2001:db8:0:1::1", False), ("2001:db8:0:8000::1", False)]
)
def test_ipv6_addresses_with_the_same_64_bits_are_one_origin(other: str, same: bool) -> None:
    assert (origin_of("2001:db8::1") == origin_of(other)) is same
