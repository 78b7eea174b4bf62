"""Every call ends: responses are limited in size and time."""

import gzip
import json

import httpx
import pytest

from tests.support.both_clients import Clients
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.strangers import endless, web_server
from tests.support.waiting import until
from watchword.client import Client, Secret, UnexpectedAnswer, Unreachable, WatchwordError
from watchword.client.http_clients import MAX_BYTES, AnswerBody

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PIECE = b"%x\r\n%s\r\n" % (65_536, b" " * 65_536)


def test_endless_answer_is_cut_off(connect: Clients) -> None:
    with endless(CHUNKED, PIECE) as stranger, pytest.raises(UnexpectedAnswer, match="more than"):
        connect(stranger.url, actor=ADMIN).me()


def test_response_that_decompresses_to_too_much_is_cut_off(connect: Clients) -> None:
    packed = gzip.compress(b" " * (MAX_BYTES + 1))
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with endless(head + packed, b"") as stranger, pytest.raises(UnexpectedAnswer, match="more than"):
        connect(stranger.url, actor=ADMIN).me()


def test_decompression_is_limited() -> None:
    body = AnswerBody(httpx.Response(200, headers={"Content-Encoding": "gzip"}))
    packed = gzip.compress(b" " * (8 * MAX_BYTES))
    with pytest.raises(UnexpectedAnswer):
        body.add(packed)
    assert len(body.content) == MAX_BYTES + 1


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "deflate"])
def test_unrequested_encoding_is_not_decompressed(connect: Clients, encoding: str) -> None:
    with (
        web_server(200, "x", Content_Encoding=encoding) as stranger,
        pytest.raises(UnexpectedAnswer, match="content encoding"),
    ):
        connect(stranger.url, actor=ADMIN).me()


def test_response_that_is_not_compressed_as_declared_is_reported(connect: Clients) -> None:
    with (
        web_server(200, "{}", Content_Encoding="gzip") as stranger,
        pytest.raises(UnexpectedAnswer, match="decompressed"),
    ):
        connect(stranger.url, actor=ADMIN).me()


def test_gzipped_response_of_a_gateway_is_read(connect: Clients) -> None:
    packed = gzip.compress(
        json.dumps({"data": {"me": {"corpUser": {"urn": ADMIN, "username": "a", "displayName": None}}}}).encode()
    )
    head = HEAD + b"Content-Encoding: GZIP\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with endless(head + packed, b"", pause=0.05) as gateway:
        assert connect(gateway.url, actor=ADMIN).me().urn == ADMIN


@pytest.mark.parametrize(
    ("head", "again", "pause"),
    [
        (HEAD + b"Content-Length: 1000000\r\n\r\n", b" ", 0.02),
        (HEAD, b"X-More: x\r\n", 0.02),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0),
    ],
    ids=["drip", "headers", "interim"],
)
def test_timeout_covers_the_whole_response(connect: Clients, head: bytes, again: bytes, pause: float) -> None:
    with endless(head, again, pause=pause) as slow, pytest.raises(Unreachable, match="in time"):
        connect(slow.url, actor=ADMIN, timeout=0.5, retries=0).me()


def test_timeout_applies_through_a_proxy(connect: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    with endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with pytest.raises(Unreachable, match="in time"):
            connect("http://192.0.2.1", actor=ADMIN, timeout=0.5, retries=0).me()
        until(lambda: bool(proxy.came), "the proxy has been asked")  # perhaps only after the client has gone


def test_request_of_a_token_source_does_not_shorten_the_timeout(server: Server) -> None:
    token = server.create(ADMIN)["accessToken"]

    class Renewed:
        def read(self) -> Secret[str]:
            hurried = Client(server.url, actor=ADMIN, timeout=0.000_001, retries=0)
            with hurried, pytest.raises(Unreachable):
                hurried.me()
            return Secret(token)

    with Client(server.url, token=Renewed()) as client:
        assert client.me().urn == ADMIN


def test_timeout_restarts_for_each_call(server: Server, connect: Clients) -> None:
    client = connect(server.url, actor=ADMIN)
    assert {client.me().urn for _ in range(3)} == {ADMIN}


def test_deeply_nested_response_is_reported(connect: Clients) -> None:
    with web_server(200, "[" * 200_000) as stranger, pytest.raises(UnexpectedAnswer):
        connect(stranger.url, actor=ADMIN).me()


def test_huge_number_in_a_response_is_reported(connect: Clients) -> None:
    error = '{"errors": [{"message": "x", "extensions": {"code": 1e999, "type": "x", "reason": "x"}}]}'
    with web_server(200, error) as stranger, pytest.raises(UnexpectedAnswer):
        connect(stranger.url, actor=ADMIN).me()


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "ftp://127.0.0.1:1", "http://a b:x"])
def test_client_reports_an_unusable_proxy(connect: Clients, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(WatchwordError, match="ALL_PROXY"):
        connect("http://192.0.2.1", actor=ADMIN)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/\r\nX-Other: 1",
        "http://127.0.0.1\n:1",
        "http://two words",
        "http://127.0.0.1/two words",
        "http://300.1.1.1",
        "http://[::1",
        "http://-a_%zz/\x7f",
        f"http://127.0.0.1/{'x' * 70_000}",
        "unix:",
        "unix:/tmp/\0",
    ],
)
def test_invalid_server_url_is_rejected(connect: Clients, url: str) -> None:
    with pytest.raises(ValueError, match="url must be"):
        connect(url, actor=ADMIN)


def test_loopback_requests_bypass_the_proxy(server: Server, connect: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with web_server(200) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for host in ("localhost.", "LOCALHOST", "127.0.0.1"):
            with pytest.raises(WatchwordError):
                connect(f"http://{host}:{free_port()}", token="secret-token", retries=0).me()
        assert connect(server.url.upper(), actor=ADMIN).me().urn == ADMIN
        assert proxy.came == []


def test_hook_of_own_client_may_read_the_answer(server: Server) -> None:
    sizes: list[int] = []
    with httpx.Client(event_hooks={"response": [lambda response: sizes.append(len(response.read()))]}) as own:
        assert Client(server.url, actor=ADMIN, http=own).me().urn == ADMIN
    assert sizes
    assert sizes[0] > 0
