"""Headers of strange bytes: the server shows that they are there and not what they say, and nobody gains by it."""

from collections.abc import Iterator

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


@pytest.fixture(scope="module")
def behind_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--trusted-proxies", "127.0.0.0/8", "--local-mode", "on")
    with Server(tmp_path_factory.mktemp("behind-proxies"), *flags) as running:
        yield running


@pytest.mark.parametrize(
    "lines",
    [
        [STRANGE],
        [STRANGE + b", 127.0.0.9"],
        [b"127.0.0.9, " + STRANGE],
        [STRANGE, b"127.0.0.9"],
        [b"127.0.0.9", STRANGE],
        [b"127.0.0.9", STRANGE + b", 192.0.2.1"],
        [b"127.0.0.9", STRANGE, b"127.0.0.9"],
    ],
)
def test_unreadable_forwarded_line_does_not_pass_for_an_allowed_network(
    behind_proxies: Server, lines: list[bytes]
) -> None:
    """A client sends such a line; a proxy passes all of them on and adds the client's address to any."""
    held = behind_proxies.create(ADMIN, allowedNetworks=["127.0.0.0/8"])["accessToken"]
    bearer = f"Authorization: Bearer {held}"
    assert asked(behind_proxies, bearer, target="/auth").status == 204
    assert asked(behind_proxies, bearer, "X-Forwarded-For: 127.0.0.9", target="/auth").status == 204
    forwarded = [b"X-Forwarded-For: " + line for line in lines]
    assert asked(behind_proxies, bearer, *forwarded, target="/auth").status == 401


def test_a_token_after_an_authorization_that_cannot_be_read_is_one_of_two(server: Server) -> None:
    bearer = f"Authorization: Bearer {server.create(ADMIN)['accessToken']}"
    assert asked(server, bearer, target="/auth").status == 204
    assert asked(server, b"Authorization: Basic " + STRANGE, bearer, target="/auth").status == 400


def test_unreadable_authorization_counts_at_any_position_behind_proxies(behind_proxies: Server) -> None:
    bearer = f"Authorization: Bearer {behind_proxies.create(ADMIN)['accessToken']}".encode()
    strange = b"Authorization: Bearer " + STRANGE
    assert asked(behind_proxies, bearer, target="/auth").status == 204
    assert asked(behind_proxies, strange, target="/auth").status == 401
    for lines in ([strange, bearer], [bearer, strange], [strange, strange]):
        assert asked(behind_proxies, *lines, target="/auth").status == 400


def test_unreadable_actor_header_counts_at_any_position_behind_proxies(behind_proxies: Server) -> None:
    actor, strange = AS_ADMIN.encode(), b"X-Service-Actor: " + STRANGE
    assert asked(behind_proxies, actor).status == 200
    for lines in ([strange], [strange, actor], [actor, strange]):
        assert asked(behind_proxies, *lines).status == 400
