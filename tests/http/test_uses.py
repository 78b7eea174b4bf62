"""What is known of a token's use is written apart from the request, and at the latest when the server stops."""

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
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Change]]:
    """Two workers on each store, and a way past them to do what only time would."""
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


def used(server: Server, **wanted: Any) -> dict[str, dict[str, Any]]:
    """By name, after all that was gathered has been written."""
    server.stop()
    server.start()
    found = server.ask(USES, {"input": wanted}, actor=ADMIN)["listAccessTokens"]["tokens"]
    return {token["name"]: token for token in found}


def named(server: Server, *filters: dict[str, Any], **wanted: Any) -> list[str]:
    found = server.ask(USES, {"input": {"filters": list(filters), **wanted}}, actor=ADMIN)["listAccessTokens"]
    assert found["total"] == len(found["tokens"])
    return [token["name"] for token in found["tokens"]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """What is known of tokens that were used at /auth, at the API, before and after they were revoked, or never."""
    with Server(tmp_path_factory.mktemp("uses")) as server:
        made = {name: server.create(ADMIN, name=name) for name in ("auth", "api", "revoked", "idle")}
        tokens = {name: one["accessToken"] for name, one in made.items()}
        assert server.verify(tokens["auth"]).status_code == 204
        server.ask("{ me { corpUser { urn } } }", token=tokens["api"])
        assert server.verify(tokens["revoked"]).status_code == 204
        server.revoke(made["revoked"]["metadata"]["id"])
        for _ in range(3):
            assert server.verify(tokens["revoked"]).status_code == 401
        yield used(server, filters=[{"field": "status", "condition": "EXISTS"}])


def test_use_at_auth_and_at_the_api_is_kept_and_no_use_is_none(seen: dict[str, dict[str, Any]]) -> None:
    for name in ("auth", "api"):
        assert seen[name]["lastUsedAt"] >= seen[name]["createdAt"]
        assert (seen[name]["useCount"], seen[name]["lastNetwork"]) == (1, "127.0.0.0/24")
    idle = seen["idle"]
    assert (idle["lastUsedAt"], idle["useCount"], idle["lastNetwork"]) == (None, 0, None)


def test_a_use_that_was_refused_is_none(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["revoked"]["useCount"] == 1


def test_what_each_worker_saw_before_and_after_a_restart_adds_up_and_the_network_is_that_of_the_last(
    kept: tuple[Server, Change],
) -> None:
    server, _ = kept
    names = ("direct", "ipv4", "ipv6")
    tokens = {name: server.create(ADMIN, name=name)["accessToken"] for name in names}
    for line in lines_to_each_worker(server):
        for token in tokens.values():
            for _ in range(3):
                assert line.verify(token) == 204
        line.close()
    before = used(server)
    for name, client in (("direct", None), ("ipv4", "203.0.113.77"), ("ipv6", "2001:db8:1:2::3")):
        headers = {"Authorization": f"Bearer {tokens[name]}"} | ({"X-Forwarded-For": client} if client else {})
        assert server.http.get("/auth", headers=headers).status_code == 204
    after = used(server)
    assert [(before[name]["useCount"], before[name]["lastNetwork"]) for name in names] == [(6, "127.0.0.0/24")] * 3
    assert [(after[name]["useCount"], after[name]["lastNetwork"]) for name in names] == [
        (7, "127.0.0.0/24"),
        (7, "203.0.113.0/24"),
        (7, "2001:db8:1::/48"),
    ]
    assert all(after[name]["lastUsedAt"] > before[name]["lastUsedAt"] for name in names)


def test_what_was_not_used_for_long_is_one_filter_and_its_order_one_word(kept: tuple[Server, Change]) -> None:
    server, change = kept
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
    assert set(named(server, idle)) == {"made long ago", "used long ago"}
    assert set(named(server, {**idle, "negated": True})) == {"new", "used lately"}
    assert named(server, idle, {"field": "lastUsedAt", "condition": "EXISTS"}) == ["used long ago"]
    by_activity = {"field": "lastActivityAt", "order": "ASCENDING"}
    assert named(server, sort=by_activity) == ["made long ago", "used long ago", "used lately", "new"]
    assert named(server, {"field": "useCount", "condition": "LESS_THAN", "value": "1"}) == ["new"]
    assert named(server, sort={"field": "useCount", "order": "ASCENDING"})[0] == "new"


def test_a_duration_that_is_none_is_refused_with_an_example(server: Server) -> None:
    for value in ("P1Y", "90 days", "P"):
        with pytest.raises(GraphQLRefused, match="such as P") as refused:
            named(server, {"field": "lastActivityAt", "condition": "LESS_THAN", "value": value})
        assert refused.value.errors[0]["extensions"]["field"] == "filters[0].values"
