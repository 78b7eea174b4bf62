"""Reads are tried again when no answer came, and so are new tokens, which are asked for under a key; other changes
only when the server says that it changed nothing.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_clients import KINDS, Clients
from tests.support.breaker import Breaker
from tests.support.server import ADMIN, Server
from tests.support.store_file import locked
from tests.support.strangers import cut_line, web_server
from watchword.client import Client, Conflict, PolicyActors, ServerError, TokenFilter, Unavailable, Unreachable
from watchword.client.http_clients import LONGEST_PAUSE, RequestRetries
from watchword.client.requests import ApiRequest


def test_read_is_tried_again_after_a_cut_line(connect: Clients) -> None:
    with cut_line() as stranger:
        with pytest.raises(Unreachable):
            connect(stranger.url, actor=ADMIN, retries=2).me()
        assert len(stranger.came) == 3


def test_read_is_tried_once_where_no_retries_are_wanted(connect: Clients) -> None:
    with cut_line() as stranger:
        with pytest.raises(Unreachable):
            connect(stranger.url, actor=ADMIN, retries=0).me()
        assert len(stranger.came) == 1


def test_change_is_never_tried_again_after_a_cut_line(connect: Clients, actor: str) -> None:
    with cut_line() as stranger:
        client = connect(stranger.url, actor=ADMIN, retries=5)
        with pytest.raises(Unreachable):
            client.policies.create("laptops", [], PolicyActors(users=(actor,)))
        with pytest.raises(Unreachable):
            client.tokens.revoke("x")
        assert len(stranger.came) == 2
        assert not any("idempotency-key" in came.lower() for came in stranger.came)


MAKINGS: dict[str, Any] = {
    "create": lambda client: client.tokens.create("urn:li:corpuser:a", "laptop", duration="ONE_DAY"),
    "derive": lambda client: client.tokens.derive("narrower"),
    "rotate": lambda client: client.tokens.rotate("x"),
}


@pytest.mark.parametrize("making", MAKINGS)
def test_new_token_is_asked_for_again_after_a_cut_line_under_one_key_that_is_a_fresh_one_for_each(
    connect: Clients, making: str
) -> None:
    with cut_line() as stranger:
        client = connect(stranger.url, actor=ADMIN, retries=1)
        for _ in range(2):
            with pytest.raises(Unreachable):
                MAKINGS[making](client)
        keys = [re.findall(r"(?i)idempotency-key: (\S{32})\r", came) for came in stranger.came]
        assert [len(key) for key in keys] == [1, 1, 1, 1]
        assert keys[0] == keys[1] != keys[2] == keys[3]


def every(_: bytes) -> bool:
    return True


def test_token_whose_answer_was_lost_is_asked_for_again_and_is_the_only_one(
    server: Server, connect: Clients, actor: str
) -> None:
    with Breaker(server.url) as between:
        between.lose_answer(every, times=1)
        between.answer(every, 502, b"<h1>Hello</h1>", times=1)
        made = connect(between.url, actor=ADMIN).tokens.create(actor, "laptop", duration="ONE_DAY")
        assert len(between.seen) == 3
    assert server.verify(made.token.reveal()).status_code == 204
    assert [token.id for token in connect(server.url, actor=ADMIN).tokens.list(TokenFilter("actorUrn", actor))] == [
        made.metadata.id
    ]


def test_token_is_asked_for_again_after_a_fault_of_the_server_and_another_change_is_not(
    server: Server, connect: Clients, actor: str
) -> None:
    fault = b'{"errors": [{"message": "x", "extensions": {"code": 500, "type": "SERVER_ERROR", "reason": "internal"}}]}'
    with Breaker(server.url) as between:
        between.answer(every, 500, fault, times=1)
        made = connect(between.url, actor=ADMIN).tokens.create(actor, "laptop", duration="ONE_DAY")
        between.answer(every, 500, fault, times=1)
        with pytest.raises(ServerError):
            connect(between.url, actor=ADMIN).tokens.revoke(made.metadata.id)
        assert len(between.seen) == 3


def test_key_of_own_gives_the_same_token_again_and_is_good_for_no_other(
    server: Server, connect: Clients, actor: str
) -> None:
    def make(client: Client, name: str) -> str:
        return client.tokens.create(actor, name, duration="ONE_DAY", idempotency_key=f"mine of {actor}").token.reveal()

    client = connect(server.url, actor=ADMIN)
    assert make(client, "laptop") == make(client, "laptop")
    with pytest.raises(Conflict) as refused:
        make(client, "other")
    assert refused.value.reason == "idempotency_key_reused"


def test_change_is_not_tried_again_on_the_word_of_a_gateway(connect: Clients, actor: str) -> None:
    with web_server(503) as gateway:
        with pytest.raises(Unreachable):
            connect(gateway.url, actor=ADMIN, retries=5).actors.suspend(actor)
        assert len(gateway.came) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_change_refused_by_a_locked_store_is_made_just_once_when_the_store_is_free(
    server: Server, actor: str, kind: str
) -> None:
    """The lock is let go only after a client without retries was told 503, so that the first try of the other
    client, which waited together with it, was refused as well."""

    def make(retries: int) -> str:
        clients = Clients(kind)
        try:
            client = clients(server.url, actor=ADMIN, retries=retries)
            return client.tokens.create(actor, f"{retries}", duration="ONE_DAY").metadata.id
        finally:
            clients.close()

    with ThreadPoolExecutor() as pool:
        with locked(server):
            patient, hasty = pool.submit(make, 50), pool.submit(make, 0)
            assert isinstance(hasty.exception(), Unavailable)
        made = patient.result()
    clients = Clients(kind)
    assert [token.id for token in clients(server.url, actor=ADMIN).tokens.list(TokenFilter("actorUrn", actor))] == [
        made
    ]
    clients.close()


unavailable = st.builds(
    lambda seconds: Unavailable("x", reason="deadline", code=503, details={}, retry_after=seconds),
    st.none() | st.floats(0, 100),
)


@given(
    st.booleans(),
    st.none() | st.just("key"),
    st.integers(0, 6),
    st.lists(unavailable | st.builds(Unreachable), min_size=8),
    st.floats(0, 1),
)
def test_tries_are_bounded_and_no_pause_is_shorter_than_asked(
    changes: bool, key: str | None, retries: int, failures: list[Unavailable | Unreachable], jitter: float
) -> None:
    retries_left, pauses = RequestRetries(ApiRequest(str, changes=changes, key=key), retries, lambda: jitter), []
    for failure in failures:
        pause = retries_left.pause_after(failure)
        if pause is None:
            break
        assert not (changes and key is None and isinstance(failure, Unreachable))
        asked = failure.retry_after if isinstance(failure, Unavailable) else None
        assert (asked or 0) <= pause <= LONGEST_PAUSE * 1.5
        pauses.append(pause)
    assert len(pauses) <= retries
