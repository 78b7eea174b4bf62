"""Two processes on one store: each sees the other's commits at its next request."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.support.concurrent_load import RETRIABLE
from tests.support.lines import Line, lines_to_each_worker
from tests.support.server import ADMIN, CREATE_POLICY, GENERATE, GraphQLRefused, Server
from tests.support.store_file import assert_sound, events
from tests.support.waiting import SECONDS, until

QUIET = {"WATCHWORD_ACCESS_LOG": "off", "WATCHWORD_ACTOR_DAILY_CHANGES": "0"}
MakeServer = Callable[..., Server]


@pytest.fixture(params=["two workers", "two servers"])
def lines(request: pytest.FixtureRequest, make_server: MakeServer) -> list[Line]:
    """A connection to each of two worker processes: of one server, or of two servers on one data directory."""
    if request.param == "two workers":
        return lines_to_each_worker(make_server("--workers", "2", env=QUIET))
    one = make_server(env=QUIET)
    other = make_server("--data-dir", str(one.data_dir), env=QUIET)
    return [Line(one), Line(other)]


@pytest.mark.parametrize("times", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_revoked_token_is_rejected_by_the_other_worker_immediately(lines: list[Line], actor: str, times: int) -> None:
    for here, there in (lines, lines[::-1]):
        for token_id, token in bulk(lines, f"{actor}-{here.port}", times):
            assert there.verify(token) == 204
            assert here.revoke(token_id)
            assert there.verify(token) == 401


def test_policy_change_applies_to_the_other_worker_immediately(lines: list[Line], actor: str) -> None:
    for here, there in (lines, lines[::-1]):
        for _ in range(50):
            policy = grant(here, actor)
            there.create(actor, actor=actor)
            here.withdraw(policy)
            with pytest.raises(GraphQLRefused) as refused:
                there.create(actor, actor=actor)
            assert refused.value.reason == "missing_privilege"


def test_suspended_actor_is_rejected_by_the_other_worker_immediately(lines: list[Line], actor: str) -> None:
    (_, token), *_ = bulk(lines, actor, 2)
    for here, there in (lines, lines[::-1]):
        for _ in range(50):
            here.set_status(actor, "SUSPENDED")
            assert there.verify(token) == 401
            here.set_status(actor, "ACTIVE")
            assert there.verify(token) == 204


def test_no_token_is_signed_with_the_old_key_after_rotation(make_server: MakeServer, actor: str) -> None:
    server = make_server("--workers", "2", env=QUIET)
    lines, others = lines_to_each_worker(server), lines_to_each_worker(server)
    over = threading.Event()
    made: list[tuple[str, str]] = []

    def create(line: Line) -> None:
        while not over.is_set():
            try:
                made.append(line.create(actor))
            except GraphQLRefused as refusal:
                if refusal.reason not in RETRIABLE:
                    raise

    threads = [threading.Thread(target=create, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    try:
        kids = [kid_of(others[0].create(actor)[1])]
        for _ in range(2):
            until(lambda: any(kid_of(token) == kids[-1] for _, token in made[-20:]), "it was used under load")
            rotated = server.command_line("key", "rotate")
            assert rotated.returncode == 0, rotated.stderr
            (new,) = {kid_of(line.create(actor)[1]) for line in others}
            assert new not in kids
            assert new in rotated.stdout
            kids.append(new)
        until(lambda: any(kid_of(token) == kids[-1] for _, token in made[-20:]), "the last was used under load")
    finally:
        over.set()
        for thread in threads:
            thread.join(SECONDS)

    # In commit order, each token is signed with the key active at its commit.
    kids_of = {token_id: kid_of(token) for token_id, token in made}
    in_use, used = kids[0], set()
    for event in events(server):
        if event.action == "key.rotated":
            in_use = event.target
        elif event.target in kids_of:
            assert kids_of[event.target] == in_use
            used.add(in_use)
    assert used == set(kids)

    published = {key["kid"]: jwt.PyJWK(key) for key in server.http.get("/.well-known/jwks.json").json()["keys"]}
    assert published.keys() > set(kids)
    sample = [token for _, token in made[:: 1 + len(made) // 200]]
    for token in sample:
        claims = jwt.decode(token, published[kid_of(token)], ["EdDSA"], audience=server.url, issuer=server.url)
        assert claims["sub"] == actor
    assert {line.verify(token) for line in lines for token in sample} == {204}
    assert_sound(server)


def test_servers_started_concurrently_on_a_new_folder_accept_each_others_tokens(tmp_path: Path) -> None:
    servers = [Server(tmp_path / name, env=QUIET) for name in ("one", "other")]
    for server in servers:
        server.data_dir = tmp_path / "data"
    threads = [threading.Thread(target=server.start) for server in servers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one, other = servers
        assert other.verify(one.create(ADMIN)["accessToken"]).status_code == 204
        assert one.verify(other.create(ADMIN)["accessToken"]).status_code == 204
        assert_sound(one)
    finally:
        for server in servers:
            server.stop()
            server.http.close()


def bulk(lines: list[Line], of: str, count: int) -> list[tuple[str, str]]:
    """Create this many tokens through all connections concurrently."""
    made: list[list[tuple[str, str]]] = [[] for _ in lines]

    def create(line: Line, into: list[tuple[str, str]]) -> None:
        into += line.create_many(of, count // len(lines))

    threads = [threading.Thread(target=create, args=pair) for pair in zip(lines, made, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    tokens = [token for part in made for token in part]
    assert len(tokens) == count
    return tokens


def grant(line: Line, actor: str) -> str:
    wanted: dict[str, Any] = {
        "type": "PLATFORM",
        "name": "may create",
        "state": "ACTIVE",
        "privileges": [GENERATE],
        "actors": {"users": [actor]},
    }
    urn: str = line.ask(CREATE_POLICY, {"input": wanted})["createPolicy"]
    return urn


def kid_of(token: str) -> str:
    kid: str = jwt.get_unverified_header(token)["kid"]
    return kid
