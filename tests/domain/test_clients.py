import ipaddress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from watchword.domain.networks import network_of


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_kept_as_its_network_of_24_bits(address: ipaddress.IPv4Address) -> None:
    network = ipaddress.ip_network(network_of(str(address)))
    assert address in network
    assert network.prefixlen == 24


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_is_kept_as_its_network_of_48_bits(address: ipaddress.IPv6Address) -> None:
    assume(address.ipv4_mapped is None)
    network = ipaddress.ip_network(network_of(str(address)))
    assert address in network
    assert network.prefixlen == 48


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_that_an_ipv6_one_stands_for_is_kept_as_itself(address: ipaddress.IPv4Address) -> None:
    assert network_of(f"::ffff:{address}") == network_of(str(address))


def test_the_part_of_a_machine_after_an_ipv6_address_is_left_out() -> None:
    assert network_of("fe80::1%eth0") == "fe80::/48"


@pytest.mark.parametrize("client", ["unix", "", "not an address"])
def test_what_is_no_address_is_kept_as_it_is(client: str) -> None:
    assert network_of(client) == client
