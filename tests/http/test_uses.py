"""Token uses are written after the request, at the latest when the server stops."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lines import lines_to_each_worker
from tests.support.postgres import Address, home
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.store_file import change_store

USES = """query ($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { total tokens { id name createdAt lastUsedAt useCount lastNetwork } } }"""
DAY = 86_400_000
OF_PROXY = ("--local-mode", "on", "--trusted-proxies", "127.0.0.1/32")

Change = Callable[[str], None]


@pytest.fixture(params=["sqlite", "postgres"])
def store_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Change]]:
    """Two workers on each store, and a function that changes the store directly."""
    folder, flags = tmp_path / "server", ("--workers", "2", *OF_PROXY)
    if request.param == "sqlite":
        with Server(folder, *flags) as server:
            yield server, lambda statement: change_store(server, statement)
        return
    postgres: Address = request.getfixturevalue("postgres")
    with home(postgres, tmp_path) as place, Server(folder, *flags, env=place.env) as server:
        yield server, lambda statement: _change(place.connect, statement)


def _change(connect: Callable[[], Any], statement: str) -> None:
    with connect() as connection:
        connection.execute(statement)


def read_uses(server: Server, **wanted: Any) -> dict[str, dict[str, Any]]:
    """Return tokens by name, after all uses have been written."""
    server.stop()
    server.start()
    found = server.ask(USES, {"input": wanted}, actor=ADMIN)["listAccessTokens"]["tokens"]
    return {token["name"]: token for token in found}


def list_names(server: Server, *filters: dict[str, Any], **wanted: Any) -> list[str]:
    found = server.ask(USES, {"input": {"filters": list(filters), **wanted}}, actor=ADMIN)["listAccessTokens"]
    assert found["total"] == len(found["tokens"])
    return [token["name"] for token in found["tokens"]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """Return the records of tokens used at /auth, at the API, before and after revocation, or never."""
    with Server(tmp_path_factory.mktemp("uses")) as server:
        made = {name: server.create(ADMIN, name=name) for name in ("auth", "api", "revoked", "idle")}
        tokens = {name: one["accessToken"] for name, one in made.items()}
        assert server.verify(tokens["auth"]).status_code == 204
        server.ask("{ me { corpUser { urn } } }", token=tokens["api"])
        assert server.verify(tokens["revoked"]).status_code == 204
        server.revoke(made["revoked"]["metadata"]["id"])
        for _ in range(3):
            assert server.verify(tokens["revoked"]).status_code == 401
        yield read_uses(server, filters=[{"field": "status", "condition": "EXISTS"}])


def test_uses_at_auth_and_api_are_recorded(recorded: dict[str, dict[str, Any]]) -> None:
    for name in ("auth", "api"):
        assert recorded[name]["lastUsedAt"] >= recorded[name]["createdAt"]
        assert (recorded[name]["useCount"], recorded[name]["lastNetwork"]) == (1, "127.0.0.0/24")
    idle = recorded["idle"]
    assert (idle["lastUsedAt"], idle["useCount"], idle["lastNetwork"]) == (None, 0, None)


def test_rejected_use_is_not_recorded(recorded: dict[str, dict[str, Any]]) -> None:
    assert recorded["revoked"]["useCount"] == 1


def test_uses_of_all_workers_are_summed_with_the_last_network(
    store_server: tuple[Server, Change],
) -> None:
    server, _ = store_server
    names = ("direct", "ipv4", "ipv6")
    tokens = {name: server.create(ADMIN, name=name)["accessToken"] for name in names}
    for line in lines_to_each_worker(server):
        for token in tokens.values():
            for _ in range(3):
                assert line.verify(token) == 204
        line.close()
    before = read_uses(server)
    for name, client in (("direct", None), ("ipv4", "203.0.113.77"), ("ipv6", "2001:db8:1:2::3")):
        headers = {"Authorization": f"Bearer {tokens[name]}"} | ({"X-Forwarded-For": client} if client else {})
        assert server.http.get("/auth", headers=headers).status_code == 204
    after = read_uses(server)
    assert [(before[name]["useCount"], before[name]["lastNetwork"]) for name in names] == [(6, "127.0.0.0/24")] * 3
    assert [(after[name]["useCount"], after[name]["lastNetwork"]) for name in names] == [
        (7, "127.0.0.0/24"),
        (7, "203.0.113.0/24"),
        (7, "2001:db8:1::/48"),
    ]
    assert all(after[name]["lastUsedAt"] > before[name]["lastUsedAt"] for name in names)


def test_unused_tokens_are_filtered_and_sorted_by_last_activity(store_server: tuple[Server, Change]) -> None:
    server, change = store_server
    now = time.time_ns() // 1_000_000
    ages: dict[str, tuple[int, int | None]] = {
        "new": (0, None),
        "made long ago": (200, None),
        "used long ago": (200, 91),
        "used lately": (200, 89),
    }
    for name, (made, last) in ages.items():
        token_id = server.create(ADMIN, name=name, duration="ONE_YEAR")["metadata"]["id"]
        uses = "NULL" if last is None else str(now - last * DAY)
        change(
            f"UPDATE tokens SET created_at = {now - made * DAY}, last_used_at = {uses}, use_count = {made} "
            f"WHERE id = '{token_id}'"
        )
    idle = {"field": "lastActivityAt", "condition": "LESS_THAN", "value": "P90D"}
    assert set(list_names(server, idle)) == {"made long ago", "used long ago"}
    assert set(list_names(server, {**idle, "negated": True})) == {"new", "used lately"}
    assert list_names(server, idle, {"field": "lastUsedAt", "condition": "EXISTS"}) == ["used long ago"]
    by_activity = {"field": "lastActivityAt", "order": "ASCENDING"}
    assert list_names(server, sort=by_activity) == ["made long ago", "used long ago", "used lately", "new"]
    assert list_names(server, {"field": "useCount", "condition": "LESS_THAN", "value": "1"}) == ["new"]
    assert list_names(server, sort={"field": "useCount", "order": "ASCENDING"})[0] == "new"


def test_invalid_filter_duration_is_rejected_with_an_example(server: Server) -> None:
    for value in ("P1Y", "90 days", "P"):
        with pytest.raises(GraphQLRefused, match="such as P") as refused:
            list_names(server, {"field": "lastActivityAt", "condition": "LESS_THAN", "value": value})
        assert refused.value.errors[0]["extensions"]["field"] == "filters[0].values"
