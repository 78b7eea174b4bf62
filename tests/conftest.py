import atexit
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support import postgres as databases
from tests.support import properties
from tests.support.identity_providers import IdentityProvider
from tests.support.nodes import KINDS_IN_TURN, Client, SharedNodes
from tests.support.pages import ROOT
from tests.support.server import Server

_names = itertools.count()

# A run starts the service a thousand times: where the environment forbids keeping bytecode, each would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the run in the background makes it ignore Ctrl-C, and every command would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# While tests are collected there is no garbage; to look for it takes a sixth of that time, in each worker.
gc.disable()

# What whoever runs the tests has signed in at is nothing to them. Browsers leave something there, too.
os.environ["XDG_CONFIG_HOME"] = str(Path(tempfile.gettempdir(), f"watchword-test-config-{os.getpid()}"))
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

# No example is judged by the clock: a loaded machine is not a defect. Each run explores with a new seed, which the
# header shows; what failed is kept in .hypothesis and tried first in the next run.
settings.register_profile(
    "watchword",
    deadline=None,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples"),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("watchword")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    properties.choose_seed(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Each worker of the run gets the same seed."""
    node.workerinput[properties.SEED] = properties.seed_of(node.config)


def pytest_report_header(config: pytest.Config) -> str:
    return f"hypothesis seed: {properties.seed_of(config)} (to repeat: --hypothesis-seed={properties.seed_of(config)})"


def pytest_itemcollected(item: pytest.Item) -> None:
    properties.seed_item(item)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first. xdist deals the tests out in this order, and idle workers steal from the end of
    the longest queue: a long test that starts late would run alone at the end.
    """
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    gc.enable()
    _exempt_from_collection()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield
    if nextitem is not None and nextitem.path != item.path:
        _exempt_from_collection()


def _exempt_from_collection() -> None:
    """What is left after collection, and after the tests of a module, stays to the end. Each test that collects garbage
    would go through it, for a twentieth of a second and more.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with default settings, shared by the tests of a process; each test uses actors of its own. The root
    actor, which they share, may make as many changes as they need, and a token that a test lets expire long ago is not
    purged.
    """
    flags = ("--actor-daily-changes", "1000000", "--dead-token-days", "36500")
    with Server(tmp_path_factory.mktemp("server"), *flags) as running:
        yield running


@pytest.fixture(scope="session")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One whose truncations take a second for two hundred rows, shared in the same way; each test uses aspects of its
    own.
    """
    with Server(tmp_path_factory.mktemp("slow"), "--index-rate", "200") as running:
        yield running


@pytest.fixture
def running_servers() -> Iterator[list[Server]]:
    """Those that `make_server` made, to be stopped."""
    made: list[Server] = []
    yield made
    for running in made:
        running.stop()
        running.http.close()


@pytest.fixture
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Server]:
    """Servers of a test's own: `make_server("--workers", "2", env={...})`; started, and stopped at its end."""

    def make(*flags: str, folder: Path | None = None, **how: Any) -> Server:
        # Asked for only now, so that a server is stopped before the database that the test asked for first goes.
        made: list[Server] = request.getfixturevalue("running_servers")
        running = Server(folder or tmp_path / f"server{len(made)}", *flags, **how)
        made.append(running)
        return running.start()

    return make


@pytest.fixture
def actor(request: pytest.FixtureRequest) -> str:
    """The urn of a user that no other test uses."""
    return f"urn:li:corpuser:user-{request.node.name[:40].replace('[', '-').rstrip(']')}-{next(_names)}"


@pytest.fixture(scope="session")
def shared_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedNodes]:
    """The search nodes of the run: `shared_nodes.of("opensearch-2")`; each test uses index names of its own."""
    nodes = SharedNodes(tmp_path_factory)
    yield nodes
    nodes.close()


@pytest.fixture(params=KINDS_IN_TURN)
def search_node(request: pytest.FixtureRequest, shared_nodes: SharedNodes) -> Client:
    """The shared node of each kind in turn."""
    return shared_nodes.of(request.param)


@pytest.fixture(scope="session")
def shared_clusters(tmp_path_factory: pytest.TempPathFactory) -> databases.SharedClusters:
    """The PostgreSQL servers of the run, one of a kind: `shared_clusters.of("postgres-18")`."""
    return databases.SharedClusters(tmp_path_factory)


@pytest.fixture(scope="session")
def postgres(shared_clusters: databases.SharedClusters) -> databases.Address:
    """The PostgreSQL of the run, of the kind that Debian has; each test uses a schema of its own."""
    return shared_clusters.of(databases.DEBIAN)


@pytest.fixture
def database(postgres: databases.Address, tmp_path: Path) -> Iterator[databases.Home]:
    """A schema and a master key of a test's own: `Server(folder, "--local-mode", "on", env=database.env)`."""
    with databases.home(postgres, tmp_path) as home:
        yield home


@pytest.fixture(scope="session")
def identity_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    """An oidc-provider, shared by the tests of a process; each test registers a client and adds users of its own."""
    with IdentityProvider(tmp_path_factory.mktemp("provider")) as running:
        yield running
