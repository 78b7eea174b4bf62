"""DataHub's MCP server in HTTP mode, unmodified: it lets in whom we vouch for.

It keeps a verdict for five minutes, and drops it when a call is refused: what a token may read ends with the token.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.clients import client_env, surroundings
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server, plain_client
from tests.support.store_file import change_store
from tests.support.waiting import SECONDS


class McpServer:
    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, token: str | None, method: str = "tools/list", **params: Any) -> httpx.Response:
        headers = {"Accept": "application/json, text/event-stream"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with plain_client(self._url, SECONDS) as client:
            return client.post("/mcp", json=asked, headers=headers)

    def search(self, token: str) -> httpx.Response:
        """A tool that queries us, as the caller, for something that does not exist."""
        return self.ask(token, "tools/call", name="search", arguments={"query": "*"})


@pytest.fixture(scope="module")
def mcp(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    home = tmp_path_factory.mktemp("mcp")
    port = free_port()
    address = {"FASTMCP_HOST": "127.0.0.1", "FASTMCP_PORT": str(port)}
    env = surroundings(home, DATAHUB_GMS_URL=f"{server.url}/gms", TOOLS_IS_USER_ENABLED="true", **address)
    program = client_env("mcp") / "bin/mcp-server-datahub-http"
    url = f"http://127.0.0.1:{port}"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([program], env=env, cwd=home, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SECONDS
        with plain_client(url) as client:
            while not answers(client):
                assert process.poll() is None, (home / "log").read_text()
                assert time.monotonic() < deadline, (home / "log").read_text()
                time.sleep(0.1)
        yield McpServer(url)
    finally:
        process.terminate()
        process.wait(SECONDS)


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def result(response: httpx.Response) -> Any:
    (line,) = (line for line in response.text.splitlines() if line.startswith("data: "))
    return json.loads(line.removeprefix("data: "))["result"]


def test_valid_token_is_let_in(server: Server, mcp: McpServer, actor: str) -> None:
    answer = mcp.ask(server.create(ADMIN, of=actor)["accessToken"])
    assert answer.status_code == 200
    assert {"search", "get_me"} <= {tool["name"] for tool in result(answer)["tools"]}


def test_get_me_tells_who_the_token_acts_as(server: Server, mcp: McpServer, actor: str) -> None:
    group = server.ask('mutation { createGroup(input: {name: "Operators"}) }', actor=ADMIN)["createGroup"]
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    server.ask(add, {"input": {"groupUrn": group, "userUrns": [actor]}}, actor=ADMIN)
    person = {"urn": actor, "displayName": "Ann", "email": "ann@example.com"}
    server.ask("mutation ($input: SetActorInput!) { setActor(input: $input) }", {"input": person}, actor=ADMIN)
    answer = result(mcp.ask(server.create(ADMIN, of=actor)["accessToken"], "tools/call", name="get_me", arguments={}))
    assert not answer.get("isError"), answer
    me = json.loads(answer["content"][0]["text"])["data"]["corpUser"]
    assert (me["urn"], me["exists"], me["info"]["active"], me["info"]["email"]) == (
        actor,
        True,
        True,
        "ann@example.com",
    )
    entity = {"urn": group, "name": "Operators", "properties": {"displayName": "Operators"}}
    assert me["groups"] == {"relationships": [{"entity": entity}]}


@pytest.mark.parametrize("token", [None, "not-a-token"], ids=["none", "nonsense"])
def test_no_token_and_nonsense_are_401(mcp: McpServer, token: str | None) -> None:
    answer = mcp.ask(token)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_revoked_token_is_401(server: Server, mcp: McpServer, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    server.revoke(made["metadata"]["id"])
    assert mcp.ask(made["accessToken"]).status_code == 401


def test_expired_token_is_401(server: Server, mcp: McpServer, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    change_store(server, "UPDATE tokens SET expires_at = created_at + 1 WHERE id = ?", made["metadata"]["id"])
    assert mcp.ask(made["accessToken"]).status_code == 401


def test_suspended_actors_token_is_401(server: Server, mcp: McpServer, actor: str) -> None:
    made = server.create(ADMIN, of=actor)
    server.set_status(actor, "SUSPENDED")
    assert mcp.ask(made["accessToken"]).status_code == 401


def test_token_revoked_after_it_was_let_in_reads_nothing_and_is_401_from_then_on(
    server: Server, mcp: McpServer, actor: str
) -> None:
    made = server.create(ADMIN, of=actor)
    token = made["accessToken"]
    assert mcp.ask(token).status_code == 200
    server.revoke(made["metadata"]["id"])
    refused = result(mcp.search(token))
    assert refused["isError"]
    assert "token_revoked" in refused["content"][0]["text"]
    assert mcp.ask(token).status_code == 401
