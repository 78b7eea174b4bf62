"""Headers with undecodable bytes: the server counts them as present but does not read them."""

from collections.abc import Iterator

import pytest

from tests.support.server import ADMIN, Server
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, send

UNDECODABLE = b"\xff\xfe"
QUERY = b'{"query": "{ me { corpUser { urn } } }"}'


def send_query(server: Server, *headers: str | bytes, target: str = "/api/graphql") -> Answer:
    return send(server, target=target, headers=[JSON_TYPE, *headers], body=QUERY)


@pytest.mark.parametrize(
    "name", [b"X-Forwarded-For", b"X-Forwarded-Proto", b"Forwarded", b"Via", b"X-Real-Ip", b"Origin"]
)
def test_undecodable_proxy_header_rejects_the_actor_header(server: Server, name: bytes) -> None:
    assert send_query(server, AS_ADMIN).status == 200
    assert send_query(server, AS_ADMIN, name + b": " + UNDECODABLE + b", 127.0.0.1").status == 401


@pytest.mark.parametrize(
    "lines",
    [[UNDECODABLE], [UNDECODABLE + ADMIN.encode()], [ADMIN.encode(), ADMIN.encode()], [UNDECODABLE, ADMIN.encode()]],
)
def test_undecodable_or_repeated_actor_header_is_rejected(server: Server, lines: list[bytes]) -> None:
    answer = send_query(server, *(b"X-Service-Actor: " + line for line in lines))
    assert answer.status == 400
    assert answer.json()["errors"][0]["extensions"]["field"] == "x-service-actor"


def test_undecodable_host_is_not_local(server: Server) -> None:
    answer = send(server, headers=[JSON_TYPE, AS_ADMIN, b"Host: " + UNDECODABLE], body=QUERY, host=None)
    assert answer.status in {400, 401}


@pytest.fixture(scope="module")
def behind_proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    flags = ("--trusted-proxies", "127.0.0.0/8", "--local-mode", "on")
    with Server(tmp_path_factory.mktemp("behind-proxies"), *flags) as running:
        yield running


@pytest.mark.parametrize(
    "lines",
    [
        [UNDECODABLE],
        [UNDECODABLE + b", 127.0.0.9"],
        [b"127.0.0.9, " + UNDECODABLE],
        [UNDECODABLE, b"127.0.0.9"],
        [b"127.0.0.9", UNDECODABLE],
        [b"127.0.0.9", UNDECODABLE + b", 192.0.2.1"],
        [b"127.0.0.9", UNDECODABLE, b"127.0.0.9"],
    ],
)
def test_unreadable_forwarded_line_does_not_pass_for_an_allowed_network(
    behind_proxies: Server, lines: list[bytes]
) -> None:
    """A client sends such a line; a proxy passes all lines on and appends the client's address to one."""
    held = behind_proxies.create(ADMIN, allowedNetworks=["127.0.0.0/8"])["accessToken"]
    bearer = f"Authorization: Bearer {held}"
    assert send_query(behind_proxies, bearer, target="/auth").status == 204
    assert send_query(behind_proxies, bearer, "X-Forwarded-For: 127.0.0.9", target="/auth").status == 204
    forwarded = [b"X-Forwarded-For: " + line for line in lines]
    assert send_query(behind_proxies, bearer, *forwarded, target="/auth").status == 401


def test_undecodable_authorization_counts_as_a_second_one(server: Server) -> None:
    bearer = f"Authorization: Bearer {server.create(ADMIN)['accessToken']}"
    assert send_query(server, bearer, target="/auth").status == 204
    assert send_query(server, b"Authorization: Basic " + UNDECODABLE, bearer, target="/auth").status == 400


def test_unreadable_authorization_counts_at_any_position_behind_proxies(behind_proxies: Server) -> None:
    bearer = f"Authorization: Bearer {behind_proxies.create(ADMIN)['accessToken']}".encode()
    strange = b"Authorization: Bearer " + UNDECODABLE
    assert send_query(behind_proxies, bearer, target="/auth").status == 204
    assert send_query(behind_proxies, strange, target="/auth").status == 401
    for lines in ([strange, bearer], [bearer, strange], [strange, strange]):
        assert send_query(behind_proxies, *lines, target="/auth").status == 400


def test_unreadable_actor_header_counts_at_any_position_behind_proxies(behind_proxies: Server) -> None:
    actor, strange = AS_ADMIN.encode(), b"X-Service-Actor: " + UNDECODABLE
    assert send_query(behind_proxies, actor).status == 200
    for lines in ([strange], [strange, actor], [actor, strange]):
        assert send_query(behind_proxies, *lines).status == 400
