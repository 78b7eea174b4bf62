"""Tokens of the client reach the server and are never printed or logged."""

import logging
import pickle
import traceback
from pathlib import Path

import httpx
import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, Server
from tests.support.strangers import cut_line, web_server
from watchword import __version__
from watchword.client import Client, Unauthenticated, UnexpectedAnswer, Unreachable

TOKEN = "eyJhbGciOiJFZERTQSJ9.c2VjcmV0LXBheWxvYWQtb2YtdG9rZW4.c2lnbmF0dXJl"


def everything_told(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(told.format()) + repr(error) + repr(vars(error))


def test_token_shows_in_no_repr_traceback_or_log(
    server: Server, connect: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = connect(server.url, token=TOKEN)
    with pytest.raises(Unauthenticated) as refused:
        client.me()
    with cut_line() as cut, pytest.raises(Unreachable) as lost:
        connect(cut.url, token=TOKEN, retries=0).me()
    with web_server(200) as stranger, pytest.raises(UnexpectedAnswer) as strange:
        connect(stranger.url, token=TOKEN, retries=0).me()
    assert any(TOKEN in came for came in (*cut.came, *stranger.came))
    for error in (refused.value, lost.value, strange.value):
        assert TOKEN not in everything_told(error)
    assert TOKEN not in repr(client) + repr(vars(client)) + caplog.text


def test_new_token_is_a_secret(server: Server, connect: Clients, actor: str) -> None:
    made = connect(server.url, actor=ADMIN).tokens.create(actor, "laptop", duration="ONE_DAY")
    assert made.token.reveal() not in f"{made} {made!r}"
    with pytest.raises(TypeError):
        pickle.dumps(made)


def test_request_says_which_client_it_is_and_what_it_accepts(connect: Clients) -> None:
    with web_server(200) as stranger, pytest.raises(UnexpectedAnswer):
        connect(stranger.url, actor=ADMIN).me()
    (headers,) = stranger.came
    assert f"User-Agent: watchword/{__version__}\n" in headers.replace("\r", "")
    assert "Accept: application/json\n" in headers.replace("\r", "")
    assert f"X-Service-Actor: {ADMIN}" in headers


@pytest.mark.parametrize(
    ("url", "how", "named"),
    [
        ("http://127.0.0.1:1", {"token": "t", "actor": ADMIN}, "token or actor"),
        ("http://127.0.0.1:1", {"token": "two words"}, "token must be"),
        ("http://127.0.0.1:1", {"token": "line\nX-Other: 1"}, "token must be"),
        ("http://127.0.0.1:1", {"token": ""}, "token must be"),
        ("http://127.0.0.1:1", {"actor": "ürn"}, "actor must be"),
        ("http://127.0.0.1:1", {"retries": -1}, "retries"),
        ("ftp://127.0.0.1", {}, "url must be"),
        ("127.0.0.1:8080", {}, "url must be"),
        ("http://user:pass@127.0.0.1", {}, "url must be"),
        ("http://127.0.0.1:port", {}, "url must be"),
    ],
)
def test_wrong_arguments_are_rejected_before_anything_is_sent(
    connect: Clients, url: str, how: dict[str, str], named: str
) -> None:
    with pytest.raises(ValueError, match=named) as refused:
        connect(url, **how)
    for secret in ("two words", "X-Other", "pass@"):
        assert secret not in str(refused.value)


def test_http_client_of_own_is_used_and_left_open(server: Server) -> None:
    seen: list[str] = []
    with httpx.Client(event_hooks={"request": [lambda request: seen.append(request.url.path)]}) as own:
        with Client(server.url, actor=ADMIN, http=own) as client:
            client.me()
        assert seen == ["/api/graphql"]
        assert not own.is_closed
        with pytest.raises(ValueError, match="transport"):
            Client("unix:/x.sock", actor=ADMIN, http=own)


def test_neither_a_netrc_nor_a_proxy_changes_who_calls_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    with web_server(200) as proxy:
        monkeypatch.setenv("NETRC", str(netrc))
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with Client(server.url, actor=ADMIN) as client:
            assert client.me().urn == ADMIN
        assert proxy.came == []
