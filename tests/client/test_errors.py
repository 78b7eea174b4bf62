"""Errors have a class and the server's reason; foreign responses are reported as such."""

import socket

import pytest

from tests.support.both_clients import Clients
from tests.support.ports import free_port
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.strangers import cut_line, web_server
from watchword.basics import errors
from watchword.basics.errors import Fault, Kind, Reason
from watchword.client import (
    BadRequest,
    NotFound,
    RequestRejected,
    Throttled,
    TokenFilter,
    Unauthenticated,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    WatchwordError,
)
from watchword.client.errors import BY_CODE
from watchword.client.http_clients import read_answer
from watchword.client.requests import ApiRequest
from watchword.http.errors import fault_response


def test_every_kind_of_error_that_a_caller_handles_has_a_class() -> None:
    """The other reasons are about HTTP and cannot come from a request of this client."""
    kinds = {value.code for value in vars(errors).values() if isinstance(value, Kind)}
    of_http = {errors.METHOD_NOT_ALLOWED, errors.TIMEOUT, errors.TOO_LARGE, errors.URI_TOO_LONG}
    assert kinds - set(BY_CODE) == {kind.code for kind in (*of_http, errors.UNSUPPORTED_MEDIA_TYPE)}
    assert len(set(BY_CODE.values())) == len(BY_CODE)


@pytest.mark.parametrize("graphql", [True, False], ids=["graphql", "rest"])
@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.word)
def test_every_reason_arrives_as_its_word_and_class(reason: Reason, graphql: bool) -> None:
    sent = fault_response(Fault(reason, "A sentence.", revokedAt=7), graphql=graphql)
    headers = dict(sent.headers) | {"x-request-id": "r-1"}
    with pytest.raises(BY_CODE.get(reason.kind.code, RequestRejected)) as told:
        read_answer(ApiRequest(lambda answer: answer), sent.status, headers, sent.body)
    error = told.value
    assert isinstance(error, RequestRejected)
    assert (error.reason, error.code, error.message) == (reason.word, reason.kind.code, "A sentence.")
    assert (error.details, error.request_id) == ({"revokedAt": 7}, "r-1")
    assert (error.retry_after is not None) == (reason.kind.code == 503)


def test_word_of_a_newer_server_is_still_a_refusal() -> None:
    body = b'{"errors": [{"message": "No.", "extensions": {"code": 418, "type": "TEAPOT", "reason": "teapot"}}]}'
    with pytest.raises(RequestRejected) as told:
        read_answer(ApiRequest(lambda answer: answer), 418, {}, body)
    assert (type(told.value), told.value.reason, told.value.code) == (RequestRejected, "teapot", 418)


def test_refusals_of_a_real_server_carry_what_is_wrong(server: Server, connect: Clients, actor: str) -> None:
    admin, nobody = connect(server.url, actor=ADMIN), connect(server.url, actor=actor)
    with pytest.raises(Unauthorized) as denied:
        nobody.tokens.create(actor, "laptop", duration="ONE_DAY")
    with pytest.raises(BadRequest) as wrong:
        admin.tokens.create(actor, "", duration="ONE_DAY")
    with pytest.raises(BadRequest) as unknown:
        admin.tokens.page(TokenFilter("colour", "red"))
    with pytest.raises(NotFound) as missing:
        admin.tokens.revoke("A" * 43 + "=")
    with pytest.raises(Unauthenticated) as anonymous:
        connect(server.url).me()
    assert denied.value.privilege == GENERATE
    assert wrong.value.field == "name"
    assert "filters" in (unknown.value.field or "")
    assert missing.value.reason == "token_not_found"
    assert anonymous.value.reason == "missing_credential"
    assert all(e.value.request_id for e in (denied, wrong, missing, anonymous))


def test_too_many_tokens_are_throttled(server: Server, connect: Clients, actor: str) -> None:
    with Server(server.folder / actor.rpartition(":")[2], "--max-live-tokens", "1") as small:
        client = connect(small.url, actor=ADMIN)
        client.tokens.create(actor, "first", duration="ONE_DAY")
        with pytest.raises(Throttled):
            client.tokens.create(actor, "second", duration="ONE_DAY")


def test_closed_port_is_unreachable(connect: Clients) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=url):
        connect(url, actor=ADMIN, retries=0).me()


def test_killed_server_is_unreachable_and_back_after_a_restart(server: Server, connect: Clients, actor: str) -> None:
    with Server(server.folder / f"killed-{actor.rpartition(':')[2]}") as own:
        client = connect(own.url, actor=ADMIN, retries=1)
        assert client.me().urn == ADMIN
        own.kill()
        with pytest.raises(Unreachable):
            client.me()
        own.start()
        assert client.me().urn == ADMIN


@pytest.mark.parametrize("status", [200, 404, 500])
def test_page_of_another_program_is_not_taken_for_an_answer(connect: Clients, status: int) -> None:
    with web_server(status) as stranger:
        for call in (connect(stranger.url, actor=ADMIN).me, connect(stranger.url).server_info):
            with pytest.raises(UnexpectedAnswer, match=str(status)):
                call()


@pytest.mark.parametrize(
    "body", ["{}", "[]", "null", '{"data": null}', '{"data": {"me": null}}', '{"data": {"me": {}}}', '{"errors": []}']
)
def test_json_of_another_program_is_not_taken_for_an_answer(connect: Clients, body: str) -> None:
    with web_server(200, body) as stranger, pytest.raises(UnexpectedAnswer):
        connect(stranger.url, actor=ADMIN).me()


def test_redirect_is_not_followed(connect: Clients) -> None:
    with web_server(200) as other, web_server(307, Location=other.url) as stranger:
        with pytest.raises(UnexpectedAnswer, match=other.url):
            connect(stranger.url, token="secret-token").me()
        assert (len(stranger.came), len(other.came)) == (1, 0)


def test_credential_is_not_sent_where_none_is_needed(connect: Clients) -> None:
    with web_server(200) as stranger:
        with pytest.raises(UnexpectedAnswer):
            connect(stranger.url, token="secret-token").server_info()
        assert "secret-token" not in "".join(stranger.came)


def test_gateway_error_means_unreachable(connect: Clients) -> None:
    with web_server(502) as gateway, pytest.raises(Unreachable, match="502"):
        connect(gateway.url, actor=ADMIN, retries=0).me()


def test_server_that_does_not_answer_in_time_is_unreachable(connect: Clients) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="in time"):
            connect(url, actor=ADMIN, retries=0, timeout=0.1).me()


def test_every_error_is_of_one_family() -> None:
    assert all(issubclass(kind, WatchwordError) for kind in (*BY_CODE.values(), Unreachable, UnexpectedAnswer))


def test_cut_line_is_unreachable(connect: Clients) -> None:
    with cut_line() as stranger, pytest.raises(Unreachable):
        connect(stranger.url, actor=ADMIN).me()
