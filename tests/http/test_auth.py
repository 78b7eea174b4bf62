"""`/auth` for gateways accepts any method and reads no body; DataHub clients ask for their own urn."""

from collections.abc import Iterator
from contextlib import closing
from itertools import product

import pytest

from tests.support.server import ADMIN, Server
from tests.support.wire import AS_ADMIN, Answer, connect, receive, send

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "ANY")
BODIES = ("Content-Length: 5", "Transfer-Encoding: chunked")
NO_BODIES = ("X-Nothing: 1", "Content-Length: 0")
PATHS = ("/auth", "/auth/", "/auth/any/thing?x", "/gms/auth?x=%ff&watchword=1")
URN = "/openapi/operations/identity/user/urn"


@pytest.fixture(scope="module")
def bearer(server: Server) -> str:
    return f"Authorization: Bearer {server.create(ADMIN, name='auth')['accessToken']}"


def request_bytes(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def send_in_turn(server: Server, method: str, *requests: bytes) -> Iterator[Answer]:
    """Send the requests one after another on one connection and yield the responses."""
    with closing(connect(server)) as connection:
        for request in requests:
            connection.sendall(request)
            yield receive(connection, method)


@pytest.mark.parametrize(("method", "body"), [*product(METHODS, BODIES)])
def test_auth_answers_before_the_body_and_closes_the_connection(
    server: Server, bearer: str, method: str, body: str
) -> None:
    for path, expecting in product(PATHS, ([], ["Expect: 100-continue"])):
        for credential, status in (([bearer], 204), ([], 401)):
            with closing(connect(server)) as connection:
                connection.sendall(request_bytes(method, path, body, *expecting, *credential))
                told = connection.recv(4096)
                while piece := connection.recv(4096):
                    told += piece
            assert told.startswith(f"HTTP/1.1 {status} ".encode())
            assert b"\r\nconnection: close\r\n" in told


@pytest.mark.parametrize(("method", "body"), [*product(METHODS, NO_BODIES)])
def test_connection_serves_accepted_and_rejected_requests_in_turn(
    server: Server, bearer: str, method: str, body: str
) -> None:
    yes = request_bytes(method, "/auth/x?y", body, "Expect: 100-continue", bearer)
    no = request_bytes(method, "/auth/x?y", body, "Expect: 100-continue")
    told = [*send_in_turn(server, method, yes, no, yes, no)]
    assert [answer.status for answer in told] == [204, 401, 204, 401]
    assert [answer.header("Connection") for answer in told] == [None] * 4
    assert [bool(answer.body) for answer in told] == [False, method != "HEAD"] * 2


def test_unread_body_is_not_parsed_as_the_next_request(server: Server, bearer: str) -> None:
    hidden = request_bytes("GET", "/auth", bearer)
    with closing(connect(server)) as connection:
        connection.sendall(request_bytes("POST", "/auth", f"Content-Length: {len(hidden)}") + hidden)
        told = receive(connection)
        assert told.status == 401
        assert told.header("Connection") == "close"
        try:
            left = connection.recv(4096)
        except ConnectionResetError:
            left = b""
    assert left == b""


@pytest.mark.parametrize("query", ["watchword.status=200", "a=1&watchword.status=200", "watchword.status=200&scope=x"])
def test_auth_returns_200_on_request(server: Server, bearer: str, query: str) -> None:
    answer = send(server, "GET", f"/auth?{query}", [bearer], None)
    assert (answer.status, answer.body, answer.header("Content-Length")) == (200, b"", "0")
    assert answer.header("X-Auth-Urn") == ADMIN
    assert send(server, "GET", f"/auth?{query}", [], None).status == 401


@pytest.mark.parametrize("query", ["watchword=1", "x=watchword.status=500", "status=500", "%ff&&=&"])
def test_other_query_parameters_do_not_change_204(server: Server, bearer: str, query: str) -> None:
    assert send(server, "GET", f"/auth?{query}", [bearer], None).status == 204


@pytest.mark.parametrize(("length", "status"), [(16_384, 204), (16_385, 403)])
def test_query_longer_than_16384_bytes_is_rejected(server: Server, bearer: str, length: int, status: int) -> None:
    answer = send(server, "GET", "/auth?" + "q" * length, [bearer], None)
    assert answer.status == status
    assert answer.header("X-Auth-Urn") == ADMIN


@pytest.mark.parametrize("query", ["watchword.status=500", "watchword.status=", "watchword.status=200&watchword.x=1"])
def test_unknown_watchword_parameter_is_rejected(server: Server, bearer: str, query: str) -> None:
    answer = send(server, "GET", f"/auth?{query}", [bearer], None)
    assert (answer.status, answer.json()["error"]["code"]) == (403, 403)


class TestCallerUrn:
    @pytest.mark.parametrize("prefix", ["", "/gms", "/api/gms"])
    def test_urn_is_returned_to_a_bearer(self, server: Server, bearer: str, prefix: str) -> None:
        answer = send(server, "GET", prefix + URN, [bearer], None)
        assert (answer.status, answer.json()) == (200, {"urn": ADMIN})
        assert answer.header("Cache-Control") == "no-store"

    @pytest.mark.parametrize("credential", [AS_ADMIN, "Authorization: Bearer made-up", "X-Nothing: 1"])
    def test_urn_is_not_returned_without_a_token(self, server: Server, credential: str) -> None:
        assert send(server, "GET", URN, [credential], None).status == 401

    def test_posting_to_the_urn_address_is_405(self, server: Server, bearer: str) -> None:
        answer = send(server, "POST", URN, [bearer], b"")
        assert (answer.status, answer.header("Allow")) == (405, "GET, HEAD")
