"""Lists are paged to the end; each item that stays is returned once."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, Server
from watchword.client import Client, TokenFilter
from watchword.client.requests import ApiRequest, ResultPage, list_by_offset


def fill(client: Client, actor: str, names: str) -> dict[str, str]:
    """Create tokens with these names; return ids by name."""
    return {name: client.create_token(actor, name, duration="ONE_DAY").metadata.id for name in names}


@pytest.mark.parametrize("page_size", [2, 3, 7, 8, 1_000])
def test_all_pages_together_are_the_list(server: Server, connect: Clients, actor: str, page_size: int) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "abcdefg")
    found = client.tokens(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=page_size)
    assert "".join(token.name for token in found) == "abcdefg"


def test_revocation_while_paging_hides_no_other_token(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "abcdefghij")
    given = []
    for token in client.tokens(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=3):
        client.revoke_token(token.id)
        given.append(token.name)
    assert "".join(given) == "abcdefghij"


def test_creation_while_paging_repeats_no_token(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "mnopqrst")
    found = client.tokens(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=3)
    first = list(islice(found, 2))
    fill(client, actor, "abc")
    given = [token.name for token in [*first, *found]]
    assert "".join(name for name in given if name in "mnopqrst") == "mnopqrst"
    assert len(given) == len(set(given))


def test_list_is_fetched_only_as_far_as_it_is_asked_for(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    ids = fill(client, actor, "abcdef")
    found = client.tokens(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=2)
    assert next(found).name == "a"
    client.revoke_token(ids["f"])
    assert "".join(token.name for token in found) == "bcde"


def test_page_of_one_is_rejected(server: Server, connect: Clients) -> None:
    with pytest.raises(ValueError, match="page_size"):
        list(connect(server.url, actor=ADMIN).tokens(page_size=1))


numbers = st.integers(0, 40)
changes = st.lists(st.tuples(st.sets(numbers, max_size=12), st.sets(numbers, max_size=6)), max_size=30)


@given(st.sets(numbers), st.integers(2, 6), changes)
def test_changes_while_paging_keep_each_stable_item_once_and_in_order(
    listed: set[int], page_size: int, changes: list[tuple[set[int], set[int]]]
) -> None:
    now, stayed, asked = set(listed), set(listed), (0, 0)

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[int]]:
        nonlocal asked
        asked = (start, count)
        return ApiRequest(lambda _: ResultPage((), 0))

    given: list[int] = []
    listing = list_by_offset(fetch, str, page_size)
    step = next(listing)
    while step.request is not None:
        start, count = asked
        step = listing.send(ResultPage(tuple(sorted(now)[start : start + count]), len(now)))
        given += step.items
        if changes:
            gone, came = changes.pop()
            now = (now - gone) | came
            stayed -= gone
    assert len(given) == len(set(given))
    assert [number for number in given if number in stayed] == sorted(stayed)


def test_list_that_never_comes_to_rest_has_an_end_all_the_same() -> None:
    places: list[int] = []

    def fetch(start: int, _: int) -> ApiRequest[ResultPage[int]]:
        places.append(start)
        return ApiRequest(lambda _: ResultPage((), 0))

    listing = list_by_offset(fetch, str, 2)
    step = next(listing)
    while step.request is not None and len(places) < 1_000:
        page = len(places)
        step = listing.send(ResultPage((page * 2, page * 2 + 1) if places[-1] < 20 else (), 20))
    assert step.request is None
