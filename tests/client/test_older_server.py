"""A client that is newer than the server asks without the fields that the server does not know."""

import json
from datetime import datetime

import pytest

from tests.support.both_clients import Clients
from tests.support.breaker import Breaker
from tests.support.server import ADMIN, Server
from watchword.client import BadRequest, TokenFilter, WatchwordError
from watchword.client.records import Record
from watchword.client.requests import ask, ask_page


class NewerPart(Record):
    urn: str
    mood: str


class NewerUser(Record):
    urn: str
    display_name: str | None
    seen_in_future_at: datetime
    friends: tuple[NewerPart, ...]
    username: str


class NewerToken(Record):
    id: str
    one: int
    two: int
    name: str
    three: int
    four: int
    five: int
    six: int


def test_fields_that_the_server_does_not_know_are_none(server: Server, connect: Clients) -> None:
    request = ask("me", NewerUser, part="corpUser")
    with Breaker(server.url) as between:
        client = connect(between.url, actor=ADMIN)
        for requests in (2, 3):
            found = client._send(request)
            assert (found.urn, found.username, found.display_name) == (ADMIN, "admin", None)
            assert [getattr(found, name) for name in ("seen_in_future_at", "friends")] == [None, None]
            assert len(between.seen) == requests, "what the server does not know is remembered"


def test_more_unknown_fields_than_the_server_reports_at_once_are_left_out(
    server: Server, connect: Clients, actor: str
) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "laptop", duration="ONE_DAY").metadata
    wanted = {"filters": [TokenFilter("actorUrn", actor).as_input()]}
    page = client._send(ask_page("listAccessTokens", "tokens", NewerToken, "ListAccessTokensInput", wanted))
    assert [(token.id, token.name, vars(token)["six"]) for token in page.items] == [(made.id, "laptop", None)]


def test_change_is_made_once_without_the_unknown_fields(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "laptop", duration="ONE_DAY").metadata
    variables = {"tokenId: String!": made.id, "input: UpdateAccessTokenInput!": {"name": "desktop"}}
    assert client._send(ask("updateAccessToken", NewerToken, variables, mutation=True)).name == "desktop"
    changes = [event for event in client.events.list(targets=[made.id]) if event.action == "token.updated"]
    assert len(changes) == 1


def test_call_that_the_server_does_not_know_is_rejected(server: Server, connect: Clients) -> None:
    with pytest.raises(BadRequest, match="Cannot query field 'weather'"):
        connect(server.url, actor=ADMIN)._send(ask("weather", NewerUser))


@pytest.mark.parametrize("place", [{}, {"line": 1, "column": 10**9}, {"line": 1, "column": -5}])
def test_impossible_place_of_an_unknown_field_ends_the_request(
    server: Server, connect: Clients, place: dict[str, int]
) -> None:
    detail = {"code": 400, "type": "BAD_REQUEST", "reason": "invalid_document"}
    error = {"message": "Cannot query field 'x' on type 'Y'.", "extensions": detail, "locations": [place]}
    with Breaker(server.url) as between:
        between.answer(lambda _: True, 400, json.dumps({"errors": [error]}).encode(), times=5)
        with pytest.raises(WatchwordError):
            connect(between.url, actor=ADMIN).me()
        assert len(between.seen) < 5
