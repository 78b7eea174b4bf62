"""Two instances on one database see each other's changes immediately and take over operations."""

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.indexed import DAY, EmbeddedIndex, Index, NodeIndex, Series, times
from tests.support.nodes import KINDS, SharedNodes
from tests.support.postgres import Address, Home, home
from tests.support.server import ADMIN, GENERATE, GraphQLRefused, Server, watchword
from tests.support.waiting import until

ANN = "urn:li:corpuser:ann"
READS = 'watchword_store_seconds_count{operation="read"}'
ANSWERED = 'watchword_http_requests_total{route="/api/graphql",status="200"}'
ME = "{ me { platformPrivileges { managePolicies } } }"


@pytest.fixture(scope="module")
def shared(postgres: Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(postgres, tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def instances(shared: Home, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    folder = tmp_path_factory.mktemp("pair")
    flags = ("--local-mode", "on")
    with Server(folder / "a", *flags, env=shared.env) as one, Server(folder / "b", *flags, env=shared.env) as other:
        yield one, other


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def kid(token: str) -> Any:
    head = token.partition(".")[0]
    return json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4)))["kid"]


def test_token_works_on_both_instances_until_either_revokes_it(instances: tuple[Server, Server]) -> None:
    for one, other in (instances, instances[::-1]):
        made = one.create(ADMIN)
        assert other.verify(made["accessToken"]).status_code == 204
        assert other.tokens(filters=[{"field": "id", "value": made["metadata"]["id"]}])["total"] == 1
        assert other.revoke(made["metadata"]["id"])
        assert one.verify(made["accessToken"]).status_code == 401
        assert one.tokens(filters=[{"field": "id", "value": made["metadata"]["id"]}])["total"] == 0


def test_concurrent_requests_share_one_policy_load(instances: tuple[Server, Server], shared: Home) -> None:
    one, other = instances
    token = other.create(ADMIN)["accessToken"]
    requests = 60
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'LEFT JOIN policies'"
    with shared.connect() as lock, ThreadPoolExecutor(requests) as pool:
        one.withdraw(one.grant(ANN))
        before, answered = metric(other, READS), metric(other, ANSWERED)
        lock.execute("BEGIN")
        lock.execute("LOCK TABLE policies IN ACCESS EXCLUSIVE MODE")
        asked = [pool.submit(other.ask, ME, token=token) for _ in range(requests)]
        until(lambda: bool(shared.look(waiting)), "a load waits")
        lock.execute("ROLLBACK")
        for one_asked in asked:
            one_asked.result()
        until(lambda: metric(other, ANSWERED) >= answered + requests, "all of them are counted")
        # The operations loop reads too.
        assert metric(other, READS) - before < requests / 2


def metric(server: Server, name: str) -> float:
    (line,) = [line for line in server.http.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(line.rsplit(" ", 1)[1])


def test_policy_change_applies_to_the_next_request_on_the_other_instance(instances: tuple[Server, Server]) -> None:
    one, other = instances
    for _ in range(10):
        with pytest.raises(GraphQLRefused):
            other.create(ANN)
        granted = one.grant(ANN, privileges=(GENERATE,), scopes=("reports:read",))
        made = other.create(ANN)
        assert other.verify(made["accessToken"]).headers["x-auth-scopes"] == "reports:read"
        one.withdraw(granted)
        assert other.verify(made["accessToken"]).headers["x-auth-scopes"] == ""
        with pytest.raises(GraphQLRefused):
            other.create(ANN, token=made["accessToken"])


def test_suspension_applies_to_the_next_request_on_the_other_instance(instances: tuple[Server, Server]) -> None:
    one, other = instances
    made = one.create(ADMIN, of=ANN)
    for _ in range(10):
        assert other.verify(made["accessToken"]).status_code == 204
        one.set_status(ANN, "SUSPENDED")
        assert other.verify(made["accessToken"]).status_code == 401
        one.set_status(ANN, "ACTIVE")


def test_both_instances_sign_with_the_rotated_key(instances: tuple[Server, Server], shared: Home) -> None:
    before = kid(instances[0].create(ADMIN)["accessToken"])
    done = watchword("key", "rotate", env=shared.env)
    assert done.returncode == 0, done.stderr
    kids = {kid(server.create(ADMIN)["accessToken"]) for server in instances}
    assert len(kids) == 1
    assert kids != {before}
    published = [server.http.get("/.well-known/jwks.json").json() for server in instances]
    assert published[0] == published[1]
    assert {key["kid"] for key in published[0]["keys"]} >= {before, *kids}


def test_embedded_indexes_are_separate_per_instance(instances: tuple[Server, Server]) -> None:
    start = now_ms()
    index: Index = EmbeddedIndex()
    token = instances[0].create(ADMIN)["accessToken"]
    series = [Series(server, index, token, "twice") for server in instances]
    for number, one in enumerate(series):
        one.load(times(10, start, owner=number))
    tasks = [one.truncate(start - 6 * DAY) for one in series]
    assert len(set(tasks)) == 2
    for (one, other), task in zip((series, series[::-1]), tasks, strict=True):
        assert one.over(task)["state"] == "DONE"
        assert other.operation(task)["state"] == "DONE", "what became of it can be asked of either"
    for number, one in enumerate(series):
        assert {row["owner"] for row in one.rows().values()} == {number}
        assert len(one.rows()) == 6


def test_operation_of_a_killed_instance_is_finished_by_the_other(
    database: Home, shared_nodes: SharedNodes, tmp_path: Path
) -> None:
    node = shared_nodes.of(KINDS[0])
    index = NodeIndex(node.url)
    flags = (*index.flags, "--index-rate", "100", "--local-mode", "on")
    with (
        Server(tmp_path / "a", *flags, env=database.env) as one,
        Server(tmp_path / "b", *flags, env=database.env) as other,
    ):
        token = one.create(ADMIN)["accessToken"]
        here = Series(one, index, token)
        there = Series(other, index, token, here.aspect)
        start = now_ms()
        here.load(times(3_000, start))
        task = here.truncate(start - 1_500 * DAY, forceDeleteByQuery=True)
        until(lambda: there.operation(task)["state"] == "RUNNING", "somebody works on it")
        held = database.look("SELECT fence FROM operations")
        one.kill()
        assert there.over(task)["state"] == "DONE"
        assert len(there.rows()) == 1_500
        assert held[0][0] >= 1
    node.drop(index.prefix)
