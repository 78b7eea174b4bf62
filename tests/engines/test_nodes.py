"""The search nodes used by tests: the locked version, durable, and removed with the test run."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.nodes import (
    KINDS,
    KINDS_IN_TURN,
    SCRIPT,
    Client,
    Node,
    SharedNodes,
    fetch,
    own_node,
    unique_prefix,
)
from tests.support.pages import ROOT
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.soak  # tests of test support

SMALLEST = "elasticsearch-7"


@pytest.fixture
def index(search_node: Client) -> Iterator[str]:
    """An index of the shared node with ten rows, `n` from 0 to 9."""
    prefix = unique_prefix()
    fill(search_node, f"{prefix}_rows")
    yield f"{prefix}_rows"
    search_node.drop(prefix)


def fill(node: Client, index: str) -> None:
    node.ask("PUT", f"/{index}", {"settings": {"number_of_replicas": 0}})
    lines = [line for n in range(10) for line in ({"index": {"_id": f"row{n}"}}, {"n": n})]
    written = node.http.post(
        f"/{index}/_bulk?refresh=true",
        content="".join(json.dumps(line) + "\n" for line in lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert not written.json()["errors"]


def count(node: Client, index: str) -> int:
    rows: int = node.ask("GET", f"/{index}/_count")["count"]
    return rows


def test_node_has_the_version_of_its_lock_file(search_node: Client) -> None:
    engine = search_node.kind.rpartition("-")[0]
    lock = (ROOT / f"scripts/search-nodes/{search_node.kind}.lock").read_text()
    locked = re.search(rf"  {engine}-([0-9.]+)\.jar$", lock, re.MULTILINE)
    assert locked is not None
    assert search_node.ask("GET", "/")["version"]["number"] == locked[1]


def test_copy_runs_as_a_task_with_a_stored_result(search_node: Client, index: str) -> None:
    words = {"source": {"index": index}, "dest": {"index": f"{index}_copy"}}
    task = search_node.ask("POST", "/_reindex?wait_for_completion=false&refresh=true", words)["task"]
    over = search_node.finished(task)
    assert over["task"]["status"]["created"] == over["response"]["created"] == 10
    assert count(search_node, f"{index}_copy") == 10


def test_throttled_deletion_is_seen_running_and_finishes(search_node: Client, index: str) -> None:
    how = "wait_for_completion=false&scroll_size=2&requests_per_second=0.01&refresh=true"
    words = {"query": {"range": {"n": {"lt": 6}}}}
    task = search_node.ask("POST", f"/{index}/_delete_by_query?{how}", words)["task"]

    def deleted() -> int:
        running = search_node.ask("GET", f"/_tasks/{task}")
        assert not running["completed"]
        rows: int = running["task"]["status"]["deleted"]
        return rows

    until(lambda: deleted() == 2, "the first batch of two is deleted")
    search_node.ask("POST", f"/_delete_by_query/{task}/_rethrottle?requests_per_second=-1")
    assert search_node.finished(task)["response"]["deleted"] == 6
    assert count(search_node, index) == 4


@pytest.fixture(scope="module", params=KINDS_IN_TURN)
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that tests may kill and pause; each leaves it running."""
    with own_node(request.param, tmp_path_factory.mktemp("own")) as node:
        yield node


def test_killed_node_restarts_with_its_rows_and_task_results(own: Node) -> None:
    fill(own, "rows")
    words = {"source": {"index": "rows"}, "dest": {"index": "copy"}}
    task = own.ask("POST", "/_reindex?wait_for_completion=false", words)["task"]
    before = own.finished(task)
    own.kill()
    with pytest.raises(httpx.ConnectError):
        own.http.get("/")
    own.start()
    assert count(own, "rows") == 10
    # Task numbers restart with the node, so the status request itself may have the requested number.
    until(lambda: bool(own.ask("GET", f"/_tasks/{task}") == before), "the outcome is there")


def test_paused_node_does_not_answer_until_resumed(own: Node) -> None:
    own.pause()
    with pytest.raises(httpx.ReadTimeout):
        own.http.get("/", timeout=0.5)
    own.resume()
    assert own.ask("GET", "/")["name"] == "node"


def test_node_exits_with_its_owner_and_removes_its_folder(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "3600"]) as owner:
        node = Node(SMALLEST, None, tmp_path / "out", dies_with=owner.pid).start()
        assert node.process is not None
        folder = Path(psutil.Process(node.process.pid).cmdline()[-1])
        assert folder.is_dir()
        owner.kill()
    assert node.process.wait(SECONDS) == -signal.SIGKILL
    until(lambda: not folder.exists(), "its folder is gone")
    node.close()


@pytest.mark.soak
@pytest.mark.parametrize("workers", ["1", "0"])
def test_shared_node_exits_when_its_test_run_is_killed(workers: str, tmp_path: Path) -> None:
    fetch(SMALLEST)
    (tmp_path / "conftest.py").write_text("from tests.conftest import shared_nodes\n")
    (tmp_path / "test_it.py").write_text(
        "import time\n\n"
        "def test_it(shared_nodes):\n"
        f"    print(shared_nodes.of({SMALLEST!r}).url, flush=True)\n"
        "    time.sleep(3600)\n"
    )
    base = tmp_path / "base"
    words = [
        "-n",
        workers,
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(base),
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    said = base / f"{SMALLEST}.url"
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        env=clean | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    ) as run:
        until(lambda: (said.exists() and said.read_text() != "") or run.poll() is not None, "its node answers")
        assert run.poll() is None
        url = said.read_text()
        assert httpx.get(url, timeout=SECONDS).status_code == 200
        run.kill()
    until(lambda: not answers(url), "its node is gone")


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=SECONDS).is_success
    except httpx.TransportError:
        return False


def test_port_in_use_is_named_with_what_to_do(shared_nodes: SharedNodes) -> None:
    port = httpx.URL(shared_nodes.of(KINDS[0]).url).port
    refused = script("run", SMALLEST, "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"cannot listen at port {port} of 127.0.0.1")
    assert refused.stderr.endswith("give a free one with --port\n")


def test_owner_that_has_exited_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    fetch(SMALLEST)
    with subprocess.Popen(["true"]) as ended:
        pass
    refused = script("run", SMALLEST, "--die-with", str(ended.pid), env={"TMPDIR": str(tmp_path)})
    assert refused.returncode == 1
    assert refused.stderr == f"process {ended.pid}, with which this node was to end, has ended\n"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the script, its launchers and locks, and nothing downloaded."""
    fetch(SMALLEST)  # skips if nothing can be downloaded
    need_program("mvn", "maven")
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    shutil.copytree(ROOT / "scripts/search-nodes", tmp_path / "scripts/search-nodes")
    return tmp_path


def script(*words: str, project: Path = ROOT, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(project / "scripts/search-node"), *words]
    around = os.environ | dict(env or {})
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, env=around, check=False)


def test_jar_with_a_wrong_hash_is_rejected(project: Path) -> None:
    lock = project / f"scripts/search-nodes/{SMALLEST}.lock"
    lock.write_text(re.sub(r"^\w+(?=  lucene-core)", "0" * 64, lock.read_text(), flags=re.MULTILINE))
    refused = script("fetch", SMALLEST, project=project)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"these are not the jars of scripts/search-nodes/{SMALLEST}.lock, so none is kept")
    assert "lucene-core" in refused.stderr
    assert not (project / ".nodes" / SMALLEST).exists()


@pytest.mark.soak
def test_concurrent_runs_fetch_a_node_once(project: Path) -> None:
    def fetched(_: int) -> float:
        done = script("fetch", SMALLEST, project=project)
        assert done.returncode == 0, done.stderr
        return (project / ".nodes" / SMALLEST / "made").stat().st_mtime_ns

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(fetched, range(4)))) == 1
