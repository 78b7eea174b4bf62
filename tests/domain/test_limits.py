"""Limits only narrow: a derived token never has more than its parent."""

import ipaddress
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import SCOPES
from watchword.authority.limits import UNLIMITED, Limits, check_limits, inherited, unpacked
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Reason

WORDS = [*(privilege.name for privilege in Privilege), *SCOPES]
AUDIENCES = ["https://a.example", "https://b.example", "c"]
NETWORKS = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "2001:db8::/32", "2001:db8:1::/48", "::/0"]
CLIENTS = ["10.1.2.3", "10.1.9.9", "10.9.9.9", "192.0.2.1", "2001:db8:1::1", "2001:db8:2::1", "::1", "::ffff:10.1.2.3"]


def some(words: list[str], least: int = 0) -> st.SearchStrategy[list[str] | None]:
    return st.none() | st.lists(st.sampled_from(words), min_size=least, max_size=3)


limits = st.builds(check_limits, some(WORDS), some(AUDIENCES, 1), some(NETWORKS, 1))


@given(limits, limits)
def test_derived_limits_never_exceed_the_parent(maker: Limits, asked: Limits) -> None:
    try:
        made = inherited(maker, asked)
    except Fault as refusal:
        if refusal.reason is not Reason.WIDER_THAN_MAKER:
            raise
        return
    assert made.privileges <= maker.privileges
    assert all(maker.allow(word) for word in SCOPES if made.allow(word))
    if maker.audience is not None:
        assert made.audience is not None
        assert all(maker.holds_audience(word) for word in AUDIENCES if made.holds_audience(word))
    assert all(maker.allow_from(client) for client in CLIENTS if made.allow_from(client))


@given(limits)
def test_omitted_limits_are_inherited(maker: Limits) -> None:
    assert inherited(maker, UNLIMITED) == maker
    assert inherited(maker, maker) == maker
    assert inherited(UNLIMITED, maker) == maker


@given(limits, st.none() | st.integers(0, 2**50))
def test_limits_survive_packing(given_limits: Limits, until: int | None) -> None:
    bounded = given_limits._replace(until=until)
    assert unpacked(bounded.packed()) == bounded


@given(limits, st.sampled_from(CLIENTS))
def test_only_addresses_in_the_networks_are_allowed(given_limits: Limits, client: str) -> None:
    address = ipaddress.ip_address(client)
    meant = getattr(address, "ipv4_mapped", None) or address
    expected = given_limits.networks is None or any(meant in ipaddress.ip_network(n) for n in given_limits.networks)
    assert given_limits.allow_from(client) == expected
    assert given_limits.networks is None or not given_limits.allow_from("unknown")


def test_network_limits_use_bounded_memory() -> None:
    texts = [
        check_limits(None, None, [f"10.{n % 250}.{n // 250}.{host}/32" for host in range(50)]).packed()
        for n in range(400)
    ]
    tracemalloc.start()
    for _ in range(2):
        for n, text in enumerate(texts):
            found = unpacked(text)
            assert found.allow_from(f"10.{n % 250}.{n // 250}.49")
            assert not found.allow_from(f"10.{n % 250}.{n // 250}.50")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept <= 16 * 1024 * 1024
