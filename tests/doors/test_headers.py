"""Headers of strange bytes: the server shows that they are there and not what they say, and nobody gains by it."""

from collections.abc import Callable

import pytest

from tests.support.server import ADMIN, Server
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, send

STRANGE = b"\xff\xfe"
QUERY = b'{"query": "{ me { corpUser { urn } } }"}'


def asked(server: Server, *headers: str | bytes, target: str = "/api/graphql") -> Answer:
    return send(server, target=target, headers=[JSON_TYPE, *headers], body=QUERY)


@pytest.mark.parametrize(
    "name", [b"X-Forwarded-For", b"X-Forwarded-Proto", b"Forwarded", b"Via", b"X-Real-Ip", b"Origin"]
)
def test_a_sign_of_a_proxy_is_one_whatever_it_says(server: Server, name: bytes) -> None:
    assert asked(server, AS_ADMIN).status == 200
    assert asked(server, AS_ADMIN, name + b": " + STRANGE + b", 127.0.0.1").status == 401


@pytest.mark.parametrize(
    "lines",
    [[STRANGE], [STRANGE + ADMIN.encode()], [ADMIN.encode(), ADMIN.encode()], [STRANGE, ADMIN.encode()]],
)
def test_an_actor_that_cannot_be_read_or_came_twice_is_refused(server: Server, lines: list[bytes]) -> None:
    answer = asked(server, *(b"X-Service-Actor: " + line for line in lines))
    assert answer.status == 400
    assert answer.json()["errors"][0]["extensions"]["field"] == "x-service-actor"


def test_a_host_that_cannot_be_read_is_not_this_machine(server: Server) -> None:
    answer = send(server, headers=[JSON_TYPE, AS_ADMIN, b"Host: " + STRANGE], body=QUERY, host=None)
    assert answer.status in {400, 401}


def test_a_forwarded_address_that_cannot_be_read_is_nobodys(make_server: Callable[..., Server]) -> None:
    server = make_server("--trusted-proxies", "127.0.0.0/8", "--local-mode", "on")
    held = server.create(ADMIN, allowedNetworks=["127.0.0.0/8"])["accessToken"]
    bearer = f"Authorization: Bearer {held}"
    assert asked(server, bearer, target="/auth").status == 204
    assert asked(server, bearer, "X-Forwarded-For: 127.0.0.9", target="/auth").status == 204
    for line in (STRANGE, STRANGE + b", 127.0.0.9", b"127.0.0.9, " + STRANGE):
        assert asked(server, bearer, b"X-Forwarded-For: " + line, target="/auth").status == 401


def test_a_token_after_an_authorization_that_cannot_be_read_is_one_of_two(server: Server) -> None:
    bearer = f"Authorization: Bearer {server.create(ADMIN)['accessToken']}"
    assert asked(server, bearer, target="/auth").status == 204
    assert asked(server, b"Authorization: Basic " + STRANGE, bearer, target="/auth").status == 400


def test_whoever_stands_before_trusted_proxies_in_a_line_that_cannot_be_read_is_nobody(
    make_server: Callable[..., Server],
) -> None:
    server = make_server("--trusted-proxies", "127.0.0.0/8", "--local-mode", "on")
    held = server.create(ADMIN, allowedNetworks=["127.0.0.0/8"])["accessToken"]
    lines = (b"X-Forwarded-For: " + STRANGE, "X-Forwarded-For: 127.0.0.9")
    assert asked(server, f"Authorization: Bearer {held}", *lines, target="/auth").status == 401
