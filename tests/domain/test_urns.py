import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.faults import fault_of, fault_or_none
from tests.support.strategies import namespaces, numbered_id, urns, visible
from watchword.basics.errors import Reason
from watchword.basics.names import (
    GROUP_PREFIX,
    MAX_URN,
    SYSTEM_ACTOR,
    check_actor,
    check_group,
    check_urn,
    is_reserved,
    name_of,
    token_urn,
    username_of,
)
from watchword.tokens.rules import check_token_id

KINDS_THAT_ARE_NO_USERS = (
    "corpGroup",
    "role",
    "policy",
    "token",
    "accessToken",
    "serviceRole",
    "servicePolicy",
    "serviceAccessToken",
    "dataHubRole",
    "dataHubPolicy",
    "dataHubAccessToken",
)


def is_actor(urn: str) -> bool:
    return fault_or_none(lambda: check_actor(urn, "actorUrn")) is None


@given(urns)
def test_valid_urn_is_kept_unchanged(urn: str) -> None:
    assert check_urn(urn, "urn") == urn


@given(namespaces, st.text(visible.filter(lambda c: c not in ":_"), min_size=1, max_size=40))
def test_user_urn_is_an_actor(namespace: str, name: str) -> None:
    urn = f"urn:{namespace}:corpuser:{name}"
    assert check_actor(urn, "actorUrn") == urn


@given(st.text())
def test_any_text_is_an_actor_or_rejected(value: str) -> None:
    fault = fault_or_none(lambda: check_actor(value, "actorUrn"))
    if fault is None:
        assert check_actor(value, "actorUrn") == value
    else:
        assert fault.reason is Reason.INVALID_FIELD
        assert fault.details == {"field": "actorUrn"}
        assert fault.message.startswith("actorUrn must ")


@given(urns, st.characters(exclude_categories=()), st.data())
def test_invisible_or_non_ascii_character_is_rejected_in_a_urn(urn: str, odd: str, data: st.DataObject) -> None:
    assume(not "\x21" <= odd <= "\x7e")
    place = data.draw(st.integers(0, len(urn)))
    assert not is_actor(urn[:place] + odd + urn[place:])


@given(namespaces)
def test_urn_has_at_most_255_characters(namespace: str) -> None:
    start = f"urn:{namespace}:u:"
    longest = start + "x" * (MAX_URN - len(start))
    assert is_actor(longest)
    assert "255" in fault_of(lambda: check_actor(longest + "x", "actorUrn")).message


@pytest.mark.parametrize(
    "urn", ["", "urn", "urn:", "urn:li", "urn:li:", "urn::x", "li:corpuser:x", "URN:li:x", "urn:-a:x"]
)
def test_incomplete_urn_is_rejected(urn: str) -> None:
    assert fault_of(lambda: check_urn(urn, "urn")).details == {"field": "urn"}


@given(st.sampled_from(KINDS_THAT_ARE_NO_USERS), st.data())
def test_group_role_policy_and_token_urns_are_not_actors(kind: str, data: st.DataObject) -> None:
    cased = "".join(data.draw(st.sampled_from([c.upper(), c.lower()])) for c in kind)
    assert "not of a group" in fault_of(lambda: check_actor(f"urn:li:{cased}:name", "actorUrn")).message


@given(namespaces, st.text(visible.filter(lambda c: c != ":"), max_size=20))
def test_names_starting_with_two_underscores_are_reserved(namespace: str, name: str) -> None:
    urn = f"urn:{namespace}:corpuser:__{name}"
    assert is_reserved(urn)
    assert "reserved" in fault_of(lambda: check_actor(urn, "actorUrn")).message


def test_system_actor_is_rejected() -> None:
    assert not is_actor(SYSTEM_ACTOR)


def test_urn_name_follows_the_last_colon() -> None:
    assert name_of("urn:li:corpuser:a:b") == "b"
    assert is_reserved("urn:li:corpuser:a:__b")
    assert is_actor("urn:li:corpuser:__a:b")


@given(st.text(visible, min_size=1, max_size=50))
def test_group_urn_is_accepted(name: str) -> None:
    assert check_group(GROUP_PREFIX + name, "groupUrn") == GROUP_PREFIX + name


@pytest.mark.parametrize("urn", [GROUP_PREFIX, "urn:li:corpuser:ann", "ops"])
def test_non_group_urn_is_rejected(urn: str) -> None:
    assert fault_of(lambda: check_group(urn, "groupUrn")).details == {"field": "groupUrn"}


@given(st.integers(0))
def test_token_is_named_by_id_or_urn(number: int) -> None:
    token_id = numbered_id(number)
    for name in (token_id, token_urn(token_id), f"urn:li:dataHubAccessToken:{token_id}"):
        assert check_token_id(name, "tokenId") == token_id


@given(urns, urns)
def test_no_two_urns_have_the_same_username(one: str, other: str) -> None:
    for urn in (other, f"urn:li:corpuser:{other}", f"urn:li:corpuser:x:{name_of(one)}", f"urn:other:{name_of(one)}"):
        assert (username_of(one) == username_of(urn)) is (one == urn)


def test_username_of_a_user_is_its_name() -> None:
    assert username_of("urn:li:corpuser:alice") == "alice"
