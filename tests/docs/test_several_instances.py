"""The nginx recipe of the page about several instances, unchanged, in front of instances that trust this machine."""

import json
import os
import secrets
import signal
import ssl
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.docs.test_blocks import SEVERAL
from tests.support.pages import blocks, environment
from tests.support.ports import free_port
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

ME = {"query": "{ me { corpUser { urn } } }"}
CREATE = {
    "query": f"""mutation {{ createAccessToken(input: {{
        type: PERSONAL, actorUrn: "{ADMIN}", duration: ONE_HOUR, name: "rolling"}}) {{ accessToken }} }}"""
}


@dataclass(frozen=True)
class Balanced:
    servers: list[Server]
    address: str
    trusted: ssl.SSLContext

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.address, verify=self.trusted, headers=headers, timeout=SECONDS)


@pytest.fixture
def balanced(database: Home, make_server: Callable[..., Server], tmp_path: Path) -> Iterator[Balanced]:
    """Two instances that trust peers and proxies on this machine, with the page's nginx in front of them."""
    nginx = Path(need_program("nginx", "nginx-light"))
    believing = ("--trusted-peers", "127.0.0.1/32", "--trusted-proxies", "127.0.0.1/32")
    servers = [make_server(*believing, env=database.env) for _ in range(2)]
    here = str(free_port())
    script = next(block.code for block in blocks(SEVERAL) if "upstream watchword" in block.code)
    for port, meant in (("8081", str(servers[0].port)), ("8082", str(servers[1].port)), ("8443", here)):
        assert port in script
        script = script.replace(f":{port}", f":{meant}")
    folder = tmp_path / "nginx"
    folder.mkdir()
    with (folder / "out").open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-eu", "-c", script],
            cwd=folder, env=environment(nginx.parent), stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        assert shell.wait(SECONDS) == 0, (folder / "out").read_text()
        trusted = ssl.create_default_context(cafile=folder / "cert.pem")
        yield Balanced(servers, f"https://localhost:{here}", trusted)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.parametrize("header", ["X-Service-Actor", "X-DataHub-Actor"])
def test_recipe_strips_the_actor_header(balanced: Balanced, header: str) -> None:
    for server in balanced.servers:
        believed = server.http.post("/api/graphql", json=ME, headers={header: ADMIN})
        assert believed.json()["data"]["me"]["corpUser"]["urn"] == ADMIN
    with balanced.client() as client:
        assert client.post("/api/graphql", json=ME, headers={header: ADMIN}).status_code == 401


def test_recipe_overwrites_a_forged_client_address(balanced: Balanced) -> None:
    sent = {"X-Forwarded-For": "192.0.2.7", "X-Request-Id": "made-up"}
    with balanced.client() as client:
        assert client.post("/api/graphql", json=ME, headers=sent).status_code == 401
    logs = [server.err for server in balanced.servers]
    until(lambda: any('"made-up"' in log.read_text() for log in logs), "the request is logged")
    (line,) = [line for log in logs for line in log.read_text().splitlines() if '"made-up"' in line]
    assert json.loads(line)["client"] == "127.0.0.1"


def await_more(count: Callable[[], int]) -> None:
    before = count()
    until(lambda: count() > before + 20, "more requests are answered")


def test_rolling_restart_answers_every_request(balanced: Balanced) -> None:
    token = balanced.servers[0].create(ADMIN)["accessToken"]
    told, over = Counter[str](), threading.Event()

    def ask(method: str, path: str, body: object) -> None:
        with balanced.client(Authorization=f"Bearer {token}") as client:
            while not over.is_set():
                key = {"Idempotency-Key": secrets.token_hex(8)}
                answer = client.request(method, path, json=body, headers=key)
                if method == "POST" and answer.status_code == 502:
                    # nginx sent it on a kept connection just as the instance closed it. nginx does not retry a POST,
                    # but with a key the client may.
                    answer = client.request(method, path, json=body, headers=key)
                told[f"{method} {answer.status_code} {'errors' in answer.text}"] += 1

    def taken(server: Server) -> int:
        return server.err.read_text().count('"POST"')

    calls = [("GET", "/auth", None), ("POST", "/api/graphql", CREATE)] * 2
    threads = [threading.Thread(target=ask, args=call) for call in calls]
    for thread in threads:
        thread.start()
    try:
        for server in balanced.servers:
            await_more(told.total)
            assert server.stop() == 0
            await_more(told.total)
            server.start()
            await_more(lambda server=server: taken(server))  # type: ignore[misc]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert set(told) == {"GET 204 False", "POST 200 False"}, told
