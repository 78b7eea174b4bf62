"""Another program at the index's address, many concurrent requests, and who may see task failures."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.indexed import CANCEL, EmbeddedIndex, Series, times
from tests.support.nodes import Client, SharedNodes, unique_prefix
from tests.support.server import ADMIN, GraphQLRefused, Server, plain_client

STATUS = "query ($task: String!) { taskStatus(task: $task) { completed failures error } }"


class OtherProgram:
    """An HTTP server that is not a search engine and always sends this answer."""

    answer = b""

    def __init__(self) -> None:
        told = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", str(len(told.answer)))
                self.end_headers()
                self.wfile.write(told.answer)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the library's names

            def log_message(self, *args: object) -> None:
                pass

        self.listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture(scope="module")
def other_program() -> Iterator[OtherProgram]:
    made = OtherProgram()
    with made.listening as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield made
        listening.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def misconfigured_server(other_program: OtherProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"http://127.0.0.1:{other_program.listening.server_port}"
    with Server(tmp_path_factory.mktemp("misled"), "--index-url", url, "--index-timeout", "2") as running:
        yield running


@pytest.mark.parametrize("answer", [b"[1,2,3]", b"null", b"{}", b'{"version": []}', b'"text"', b"not json"], ids=str)
def test_other_program_at_the_address_is_unavailable_not_empty(
    other_program: OtherProgram, misconfigured_server: Server, answer: bytes
) -> None:
    other_program.answer = answer
    token = misconfigured_server.create(ADMIN)["accessToken"]
    assert misconfigured_server.http.get("/health/ready").json()["status"] == "degraded"
    assert misconfigured_server.operate("getIndexSizes", token=token).status_code == 503
    asked = {"entityType": "dataset", "aspect": "operation", "endTimeMillis": 1, "dryRun": False}
    assert misconfigured_server.operate("truncateTimeseriesAspect", asked, token=token).status_code == 503
    status = misconfigured_server.operate("getEsTaskStatus", {"task": "n:1"}, token=token)
    assert status.json() == {"value": "Could not get task status for n:1"}


@pytest.fixture(scope="module")
def node(shared_nodes: SharedNodes) -> Client:
    return shared_nodes.of("opensearch-2")


@pytest.fixture(scope="module")
def prefix(node: Client) -> Iterator[str]:
    made = unique_prefix()
    yield made
    node.drop(made)


@pytest.fixture(scope="module")
def server_on_node(node: Client, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    unlimited = {"WATCHWORD_ACTOR_PROCESSOR_PERCENT": "0"}  # one actor sends many costly requests at once
    words = ("--index-url", node.url, "--index-prefix", prefix)
    with Server(tmp_path_factory.mktemp("server_on_node"), *words, env=unlimited) as running:
        yield running


def test_many_index_requests_do_not_delay_token_verification(
    server_on_node: Server,
) -> None:
    server = server_on_node
    token = server.create(ADMIN)["accessToken"]
    aliases = " ".join(f't{n}: taskStatus(task: "nowhere:{n}") {{ completed }}' for n in range(20))
    codes: list[int] = []

    def ask() -> None:
        with plain_client(server.url, 120) as http:
            answer = http.post(
                "/api/graphql", json={"query": f"{{ {aliases} }}"}, headers={"Authorization": f"Bearer {token}"}
            )
            codes.append(answer.status_code)

    crowd = [threading.Thread(target=ask) for _ in range(100)]
    for one in crowd:
        one.start()
    verified = [server.verify(token).status_code for _ in range(50)]
    for one in crowd:
        one.join()
    assert verified == [204] * 50
    assert codes == [200] * 100


def test_failures_are_shown_in_full_only_with_the_truncate_privilege(
    node: Client, prefix: str, server_on_node: Server, actor: str
) -> None:
    server = server_on_node
    node.ask("PUT", f"/{prefix}_payroll/_doc/emp-1?refresh=true", {"salary": "ninety thousand"})
    node.ask("PUT", f"/{prefix}_numbers", {"mappings": {"properties": {"salary": {"type": "long"}}}})
    words = {"source": {"index": f"{prefix}_payroll"}, "dest": {"index": f"{prefix}_numbers"}}
    task = node.ask("POST", "/_reindex?wait_for_completion=false", words)["task"]
    node.finished(task)
    token = server.create(ADMIN, of=actor)["accessToken"]
    given = server.operate("getEsTaskStatus", {"task": task}, token=token).json()
    for told in (server.ask(STATUS, {"task": task}, actor=actor), given):
        text = json.dumps(told)
        assert "ninety" not in text
        assert "emp-1" not in text
        assert "Failures: 1" in text
    assert "ninety" in json.dumps(server.ask(STATUS, {"task": task}, actor=ADMIN))


@pytest.mark.parametrize("alias", ["filtered", "foreign"])
def test_filtered_or_foreign_alias_is_not_truncated(
    node: Client, prefix: str, server_on_node: Server, alias: str
) -> None:
    name = f"{prefix}_dataset_{alias}aspect_v1"
    index = f"{name}_1" if alias == "filtered" else f"{prefix}_wages"
    how = {"filter": {"term": {"team": "one"}}} if alias == "filtered" else {}
    node.ask("PUT", f"/{index}", {"aliases": {name: how}})
    node.ask("PUT", f"/{index}/_doc/x?refresh=true", {"timestampMillis": 1_700_000_000_000, "team": "two"})
    asked = {"entityType": "dataset", "aspect": alias, "endTimeMillis": 1_700_000_000_001, "dryRun": False}
    answer = server_on_node.operate(
        "truncateTimeseriesAspect", asked, token=server_on_node.create(ADMIN)["accessToken"]
    )
    assert (answer.status_code, answer.json()["error"]["reason"]) == (409, "index_ambiguous")
    assert node.ask("GET", f"/{index}/_count")["count"] == 1


def test_operation_details_need_the_truncate_privilege(server: Server, actor: str) -> None:
    series = Series(server, EmbeddedIndex(), server.create(ADMIN)["accessToken"])
    series.load(times(3, 1_700_000_000_000))
    task = series.truncate(0)
    series.over(task)
    for query in ("query ($id: String!) { operation(id: $id) { actorUrn } }", CANCEL):
        with pytest.raises(GraphQLRefused) as refused:
            server.ask(query, {"id": task}, actor=actor)
        assert refused.value.reason == "missing_privilege"
    assert server.ask(STATUS, {"task": task}, actor=actor)["taskStatus"]["completed"] is True
