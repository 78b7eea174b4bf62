"""Lists are paged to the end; each item that stays is returned once."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, Server
from watchword.client import Client, TokenFilter
from watchword.client.requests import ResultPage
from watchword.client.synchronous.lists import pages_by_offset


def fill(client: Client, actor: str, names: str) -> dict[str, str]:
    """Create tokens with these names; return ids by name."""
    return {name: client.tokens.create(actor, name, duration="ONE_DAY").metadata.id for name in names}


@pytest.mark.parametrize("page_size", [2, 3, 7, 8, 1_000])
def test_all_pages_together_are_the_list(server: Server, connect: Clients, actor: str, page_size: int) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "abcdefg")
    found = client.tokens.list(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=page_size)
    assert "".join(token.name for token in found) == "abcdefg"


def test_revocation_while_paging_hides_no_other_token(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "abcdefghij")
    given = []
    for token in client.tokens.list(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=3):
        client.tokens.revoke(token.id)
        given.append(token.name)
    assert "".join(given) == "abcdefghij"


def test_creation_while_paging_repeats_no_token(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "mnopqrst")
    found = client.tokens.list(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=3)
    first = list(islice(found, 2))
    fill(client, actor, "abc")
    given = [token.name for token in [*first, *found]]
    assert "".join(name for name in given if name in "mnopqrst") == "mnopqrst"
    assert len(given) == len(set(given))


def test_list_is_fetched_only_as_far_as_it_is_asked_for(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    ids = fill(client, actor, "abcdef")
    found = client.tokens.list(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=2)
    assert next(found).name == "a"
    client.tokens.revoke(ids["f"])
    assert "".join(token.name for token in found) == "bcde"


def test_pages_of_a_list_are_iterated(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    fill(client, actor, "abcde")
    found = client.tokens.list(TokenFilter("actorUrn", actor), sort="name", descending=False, page_size=3)
    assert ["".join(token.name for token in page) for page in found.pages()] == ["abc", "de"]
    urns = [f"{actor}-{number}" for number in range(3)]
    server.grant(*urns)
    assert [[one.urn for one in page] for page in client.actors.list(prefix=f"{actor}-", page_size=2).pages()] == [
        urns[:2],
        urns[2:],
    ]


def test_page_of_one_is_rejected(server: Server, connect: Clients) -> None:
    with pytest.raises(ValueError, match="page_size"):
        list(connect(server.url, actor=ADMIN).tokens.list(page_size=1))


numbers = st.integers(0, 40)
changes = st.lists(st.tuples(st.sets(numbers, max_size=12), st.sets(numbers, max_size=6)), max_size=30)


@given(st.sets(numbers), st.integers(2, 6), changes)
def test_changes_while_paging_keep_each_stable_item_once_and_in_order(
    listed: set[int], page_size: int, changes: list[tuple[set[int], set[int]]]
) -> None:
    now, stayed = set(listed), set(listed)

    def fetch(start: int, count: int) -> ResultPage[int]:
        nonlocal now, stayed
        page = ResultPage(tuple(sorted(now)[start : start + count]), len(now))
        if changes:
            gone, came = changes.pop()
            now = (now - gone) | came
            stayed = stayed - gone
        return page

    given = [number for page in pages_by_offset(fetch, str, page_size) for number in page]
    assert len(given) == len(set(given))
    assert [number for number in given if number in stayed] == sorted(stayed)


def test_list_that_never_comes_to_rest_has_an_end_all_the_same() -> None:
    places: list[int] = []

    def fetch(start: int, _: int) -> ResultPage[int]:
        places.append(start)
        page = len(places)
        return ResultPage((page * 2, page * 2 + 1) if start < 20 else (), 20)

    given = list(islice(pages_by_offset(fetch, str, 2), 1_000))
    assert len(given) < 1_000
    assert len(places) < 1_000
