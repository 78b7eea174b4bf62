"""The search index is unavailable or fails during an operation: tokens work, responses say so, and nothing is left half
done."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import pytest

from tests.operations.copies import Copy, MakeServer, copy_of
from tests.support.gate import asks, gate_to
from tests.support.nodes import Node, own_node
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.traffic import UNTIL, rows_of
from tests.support.waiting import SECONDS, until

KNOWN = {"entityType": "dataset", "aspect": "operation", "endTimeMillis": 1}


@pytest.fixture(scope="module")
def server_without_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose index is unreachable."""
    url = f"http://127.0.0.1:{free_port()}"
    with Server(tmp_path_factory.mktemp("alone"), "--index-url", url, "--index-timeout", "1") as running:
        yield running


class TestWithoutAnIndex:
    def test_tokens_work_while_the_index_is_unavailable(self, server_without_index: Server) -> None:
        made = server_without_index.create(ADMIN)
        assert server_without_index.verify(made["accessToken"]).status_code == 204
        server_without_index.revoke(made["metadata"]["id"])
        assert server_without_index.verify(made["accessToken"]).status_code == 401

    def test_readiness_names_the_unavailable_index(self, server_without_index: Server) -> None:
        answer = server_without_index.http.get("/health/ready")
        told = answer.json()
        assert (answer.status_code, told["status"]) == (200, "degraded")
        assert told["parts"]["store"]["status"] == "ready"
        assert told["parts"]["index"]["status"] == "unavailable"
        assert "127.0.0.1" not in told["parts"]["index"]["message"]

    @pytest.mark.parametrize(("action", "body"), [("getIndexSizes", {}), ("truncateTimeseriesAspect", KNOWN)])
    def test_actions_that_need_the_index_answer_503(
        self, server_without_index: Server, action: str, body: dict[str, object]
    ) -> None:
        answer = server_without_index.operate(action, body, token=server_without_index.create(ADMIN)["accessToken"])
        assert (answer.status_code, answer.json()["error"]["reason"]) == (503, "index_unavailable")
        assert int(answer.headers["retry-after"]) > 0

    def test_task_status_could_not_be_read_without_an_index(self, server_without_index: Server) -> None:
        answer = server_without_index.operate(
            "getEsTaskStatus", {"task": "node:1"}, token=server_without_index.create(ADMIN)["accessToken"]
        )
        assert answer.status_code == 200
        assert answer.json() == {"value": "Could not get task status for node:1"}


def test_requests_beyond_24_waiting_for_a_hanging_index_answer_503_at_once(make_server: MakeServer) -> None:
    with gate_to(f"http://127.0.0.1:{free_port()}") as gate:
        gate.hold(lambda _: True)
        server = make_server("--index-url", gate.url, "--index-timeout", "60")
        token = server.create(ADMIN)["accessToken"]
        with ThreadPoolExecutor(30) as threads:
            asked = [threads.submit(server.operate, "getIndexSizes", token=token) for _ in range(30)]
            rejected = [one.result() for one in islice(as_completed(asked, SECONDS), 6)]
            assert server.verify(token).status_code == 204
            assert sum(one.done() for one in asked) == 6
            server.kill()
    for answer in rejected:
        assert (answer.status_code, answer.json()["error"]["reason"]) == (503, "index_unavailable")
        assert "Too many concurrent requests to the search index." in answer.text


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that tests may kill and pause; each leaves it running."""
    with own_node("opensearch-2", tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def copy(node: Node, make_server: MakeServer) -> Iterator[Copy]:
    with gate_to(node.url) as gate:
        yield copy_of(make_server, node, gate, number_of_replicas=0)


def _check_outcome(copy: Copy, task: str) -> None:
    """It succeeded or changed nothing; either way all remaining rows are there and writes are accepted."""
    ended = copy.series.over(task, 180)
    found = rows_of(copy.node.url, copy.series.name)
    if ended["state"] == "DONE":
        assert found == {one: what for one, what in copy.traffic.model.items() if what["timestampMillis"] > UNTIL}
    else:
        assert ended["state"] == "FAILED"
        assert found == copy.traffic.model
    assert copy.node.http.put(f"/{copy.series.name}/_doc/later", json={"timestampMillis": UNTIL}).is_success


def test_operation_waits_for_a_node_killed_during_the_copy(copy: Copy, node: Node) -> None:
    copy.hold_while_copying()
    task = copy.begin()
    copy.gate.wait_until_held()
    node.kill()
    copy.gate.drop()
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 3, "a few tries have failed")
    assert copy.series.operation(task)["state"] == "RUNNING"
    node.start()
    _check_outcome(copy, task)


def test_node_killed_while_writes_are_blocked_recovers(copy: Copy, node: Node) -> None:
    copy.gate.hold(asks("PUT", "/_block/write"))
    task = copy.begin()
    copy.gate.wait_until_held()
    copy.gate.hold_instead(asks("POST", "/_search"))
    copy.gate.wait_until_held()
    assert node.http.put(f"/{copy.series.name}/_doc/x", json={}).status_code == 403
    node.kill()
    copy.gate.drop()
    node.start()
    _check_outcome(copy, task)


def test_hanging_node_does_not_delay_tokens(copy: Copy, node: Node) -> None:
    copy.hold_while_copying()
    task = copy.begin()
    copy.gate.wait_until_held()
    token = copy.server.create(ADMIN)["accessToken"]
    node.pause()
    copy.gate.let_go()
    try:
        for _ in range(20):
            assert copy.server.verify(token).status_code == 204
        status = copy.server.operate("getEsTaskStatus", {"task": task}, token=token)
        assert json.loads(status.json())["completed"] is False
    finally:
        node.resume()
    _check_outcome(copy, task)
