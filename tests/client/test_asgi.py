"""The ASGI middleware in a real FastAPI application with a real Watchword."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.support.ports import free_port
from tests.support.server import ADMIN, Server, plain_client
from tests.support.system import need_program
from tests.support.waiting import SECONDS
from watchword.client import Client
from watchword.client.middleware import VerifyTokens

APPLICATIONS = Path(__file__).parent / "applications"
PROGRAMS = {
    "uvicorn": ("uvicorn", "--no-proxy-headers", "shop:app"),
    "granian": ("granian", "--interface", "asgi", "shop:app"),
}


class Shop:
    def __init__(self, port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        self.http = plain_client(self.url)

    def get(self, path: str, token: str | None = None, **headers: str) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.get(path, headers=sent | ({} if token is None else bearer(token)))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def serving(program: str, server: Server, folder: Path, **addresses: str) -> Iterator[Shop]:
    port = free_port()
    nobody = f"http://127.0.0.1:{free_port()}"
    where = {"SERVER": server.url, "ABSENT": nobody, "SILENT": nobody, "STRANGER": nobody, **addresses}
    shop = Shop(port, folder / f"{program}.log")
    with shop.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *PROGRAMS[program], "--port", str(port)],
            cwd=APPLICATIONS,
            env={**os.environ, **where},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                assert shop.get("/health").status_code == 200
                break
            except httpx.TransportError:
                assert process.poll() is None, shop.log.read_text()
                assert time.monotonic() < deadline, shop.log.read_text()
                time.sleep(0.05)
        yield shop
    finally:
        process.terminate()
        process.wait(SECONDS)
        shop.http.close()


@pytest.fixture(scope="module", params=PROGRAMS)
def shop(request: pytest.FixtureRequest, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "auth").write_text("a page like any other")
    stranger = free_port()
    website = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder), str(stranger)]
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        (folder / "website.log").open("wb") as log,
        subprocess.Popen(website, stdout=log, stderr=log) as stranger_process,
    ):
        addresses = {
            "SILENT": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "STRANGER": f"http://127.0.0.1:{stranger}",
        }
        with serving(request.param, server, folder, **addresses) as running:
            yield running
        stranger_process.terminate()


def test_application_gets_the_identity_of_the_token(shop: Shop, server: Server, actor: str) -> None:
    server.grant(actor, scopes=("orders:*", "shop"))
    made = server.create(ADMIN, of=actor, scopes=["orders:read", "shop"])
    answer = shop.get("/orders", made["accessToken"])
    assert answer.status_code == 200
    assert (answer.json()["urn"], answer.json()["token"]) == (actor, made["metadata"]["id"])
    assert answer.json()["scopes"] == ["orders:read", "shop"]
    assert answer.json()["shop"] == "corner shop"  # the application's own state is kept


def test_revoked_token_is_rejected_at_the_next_request(shop: Shop, server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    assert shop.get("/orders", made["accessToken"]).status_code == 200
    server.revoke(made["metadata"]["id"])
    refused = shop.get("/orders", made["accessToken"])
    assert refused.status_code == 401
    assert refused.json()["error"]["reason"] == "token_revoked"
    assert refused.headers["www-authenticate"].startswith('Bearer realm="watchword", error="invalid_token"')


def test_cached_acceptance_outlives_revocation_only_if_configured(shop: Shop, server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    assert shop.get("/remembering/orders", made["accessToken"]).status_code == 200
    server.revoke(made["metadata"]["id"])
    assert shop.get("/remembering/orders", made["accessToken"]).json()["urn"] == actor
    assert shop.get("/orders", made["accessToken"]).status_code == 401


def test_rejections_are_not_cached(shop: Shop, server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    server.set_status(actor, "SUSPENDED")
    assert shop.get("/remembering/orders", made["accessToken"]).status_code == 401
    server.set_status(actor, "ACTIVE")
    assert shop.get("/remembering/orders", made["accessToken"]).status_code == 200


def test_missing_token_gets_a_bearer_challenge(shop: Shop) -> None:
    refused = shop.get("/orders")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == 'Bearer realm="watchword"'
    assert refused.json()["error"]["reason"] == "missing_credential"


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer x", "Basic YTpi", "Bearer " + "x" * 9_000])
def test_invalid_token_gets_the_watchword_error(shop: Shop, value: str) -> None:
    refused = shop.get("/orders", Authorization=value)
    assert refused.status_code in {400, 401}
    assert refused.json()["error"]["reason"] in {"missing_credential", "invalid_token", "invalid_header"}


def test_two_tokens_at_once_are_rejected(shop: Shop, server: Server, actor: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    refused = shop.http.get("/orders", headers=[("Authorization", f"Bearer {token}")] * 2)
    assert refused.status_code == 401


def test_token_without_a_required_scope_is_rejected_and_one_with_all_passes(
    shop: Shop, server: Server, actor: str
) -> None:
    policy = server.grant(actor, scopes=("orders:read", "shop", "more"))
    narrow = server.create(ADMIN, of=actor, scopes=["orders:read"])["accessToken"]
    enough = server.create(ADMIN, of=actor, scopes=["orders:read", "shop", "more"])["accessToken"]
    refused = shop.get("/reading/orders", narrow)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (403, "missing_scope")
    assert shop.get("/reading/orders", enough).status_code == 200
    server.withdraw(policy)
    assert shop.get("/reading/orders", enough).status_code == 403


def test_privilege_and_an_audience_can_be_required(shop: Shop, server: Server, actor: str) -> None:
    audience = ["https://shop.example.org", server.url]
    weak = server.create(ADMIN, of=actor, audience=audience)["accessToken"]
    astray = server.create(ADMIN, audience=["https://else.example.org"])["accessToken"]
    not_here = server.create(ADMIN, audience=audience[:1])["accessToken"]
    right = server.create(ADMIN, audience=audience)["accessToken"]
    reasons = [shop.get("/ruling/orders", token).json()["error"]["reason"] for token in (weak, astray, not_here)]
    assert reasons == ["missing_privilege", "wrong_audience", "wrong_audience"]
    assert shop.get("/ruling/orders", right).status_code == 200


def test_application_that_is_a_resource_accepts_only_tokens_for_it(shop: Shop, server: Server) -> None:
    declared = [{"name": "shop", "id": "https://shop.example.org/api"}]
    with Client(server.url, actor=ADMIN) as admin:
        admin.policies.apply(resources=declared, set="shop")
        assert [(one.name, one.id) for one in admin.resources.list() if one.set == "shop"] == [
            ("shop", declared[0]["id"])
        ]
    right, wrong = (server.create(ADMIN, audience=audience)["accessToken"] for audience in ([declared[0]["id"]], None))
    assert shop.get("/resource/orders", right).status_code == 200
    refused = shop.get("/resource/orders", wrong)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (401, "wrong_resource")
    assert shop.get("/orders", right).json()["error"]["reason"] == "wrong_audience"


def test_token_for_another_audience_is_rejected_where_none_is_required(shop: Shop, server: Server) -> None:
    astray = server.create(ADMIN, audience=["https://else.example.org"])["accessToken"]
    refused = shop.get("/orders", astray)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (403, "wrong_audience")


def test_forged_identity_does_not_reach_the_asgi_application(shop: Shop, server: Server, actor: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    lies = dict.fromkeys(("X-Auth-Urn", "X-AUTH-SCOPES", "X_Auth_Urn", "X-Service-Actor", "X-DataHub-Actor"), ADMIN)
    answer = shop.http.get("/orders", headers={**lies, **bearer(token)}).json()
    assert answer["urn"] == actor
    assert ADMIN not in str(answer["headers"])
    assert ADMIN not in str(shop.http.get("/health", headers=lies).json()["headers"])


def test_public_path_needs_no_token_and_has_no_identity(shop: Shop) -> None:
    assert shop.get("/health").json()["known"] is False
    for near in ("/health/", "//health", "/Health", "/health/../orders"):
        assert shop.get(near).status_code == 401


@pytest.mark.parametrize("length", [8_193, 40_000])
def test_too_long_token_is_a_client_error(shop: Shop, length: int) -> None:
    refused = shop.get("/orders", "x" * length)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "invalid_header")


@pytest.mark.parametrize("part", ["absent", "silent", "stranger"])
def test_requests_are_rejected_if_watchword_is_unreachable(shop: Shop, server: Server, actor: str, part: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    refused = shop.get(f"/{part}/orders", token)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["reason"] == "watchword_unavailable"
    assert token not in shop.log.read_text()


def test_concurrent_requests_keep_their_own_identity(shop: Shop, server: Server, actor: str) -> None:
    made = {f"{actor}-{number}": server.create(ADMIN, of=f"{actor}-{number}")["accessToken"] for number in range(5)}

    async def ask_all() -> list[tuple[str, str]]:
        async with httpx.AsyncClient(base_url=shop.url, timeout=SECONDS, verify=False) as http:

            async def ask(urn: str, token: str) -> tuple[str, str]:
                return urn, (await http.get("/orders", headers=bearer(token))).json()["urn"]

            return await asyncio.gather(*(ask(urn, token) for urn, token in list(made.items()) * 20))

    seen = asyncio.run(ask_all())
    assert len(seen) == 100
    assert [pair for pair in seen if pair[0] != pair[1]] == []


def test_pipelined_requests_are_checked_by_their_own_token(shop: Shop, server: Server, actor: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    lines = [f"GET /orders HTTP/1.1\r\nHost: shop\r\n{more}\r\n" for more in (f"Authorization: Bearer {token}\r\n", "")]
    lines.append("GET /health HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n")
    with socket.create_connection(("127.0.0.1", int(shop.url.rpartition(":")[2])), timeout=SECONDS) as line:
        line.sendall("".join(lines).encode())
        answered = b"".join(iter(lambda: line.recv(65_536), b"")).decode()
    statuses = [part.split(" ", 1)[0] for part in answered.split("HTTP/1.1 ")[1:]]
    assert statuses == ["200", "401", "200"]


def test_websocket_opens_only_for_a_live_token(shop: Shop, server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    address = shop.url.replace("http", "ws") + "/live"
    with connect(address, additional_headers=bearer(made["accessToken"]), proxy=None) as opened:
        assert opened.recv() == actor
    server.revoke(made["metadata"]["id"])
    for headers in ({}, bearer(made["accessToken"])):
        with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=headers, proxy=None):
            pass
        assert refused.value.response.status_code in {401, 403}


def test_requests_pass_again_after_watchword_returns(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server()
    token = server.create(ADMIN)["accessToken"]
    with serving("uvicorn", server, tmp_path) as shop:
        assert shop.get("/orders", token).status_code == 200
        server.stop()
        assert shop.get("/orders", token).status_code == 503
        server.start()
        assert shop.get("/orders", token).status_code == 200
        server.stop()
        server.start()
        assert shop.get("/orders", token).status_code == 200


def test_client_address_is_checked_against_allowed_networks(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server("--trusted-proxies", "127.0.0.1/32", "--local-mode", "on")
    token = server.create(ADMIN, allowedNetworks=["127.0.0.9/32"])["accessToken"]
    with serving("uvicorn", server, tmp_path) as shop:
        here = httpx.HTTPTransport(local_address="127.0.0.9")
        with httpx.Client(base_url=shop.url, transport=here, timeout=SECONDS) as near:
            assert near.get("/orders", headers=bearer(token)).status_code == 200
        assert shop.get("/orders", token).status_code == 401
        assert shop.get("/orders", token, X_Forwarded_For="127.0.0.9").status_code == 401


def test_token_with_spaces_over_http2_is_accepted_and_not_logged(server: Server, actor: str, tmp_path: Path) -> None:
    curl = need_program("curl", "curl")
    token = server.create(ADMIN, of=actor)["accessToken"]
    with serving("granian", server, tmp_path) as shop:
        answer = subprocess.run(
            [curl, "-sS", "--http2-prior-knowledge", "-H", "@-", f"{shop.url}/orders"],
            input=f"Authorization: Bearer {token} ",
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        assert token not in shop.log.read_text()
        assert f'"urn":"{actor}"' in answer.stdout


def test_middleware_rejects_wrong_arguments_at_construction() -> None:
    async def nothing(*_: object) -> None: ...

    for wrong in (
        {"require": "orders:read"},
        {"remember": 3_600},
        {"timeout": 0},
        {"server": "tokens.example.org"},
        {"resource": "a/b"},
    ):
        with pytest.raises(ValueError, match=r"must (be|have)"):
            VerifyTokens(nothing, **wrong)
