"""One server per engine. Each test uses its own time series."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.indexed import Index, Series, index_of
from tests.support.nodes import SharedNodes
from tests.support.server import ADMIN, Server

ENGINES = ("embedded", "opensearch-2")


@pytest.fixture(scope="module", params=ENGINES)
def index(request: pytest.FixtureRequest, shared_nodes: SharedNodes) -> Iterator[Index]:
    with index_of(request.param, shared_nodes) as found:
        yield found


@pytest.fixture(scope="module")
def indexed(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("indexed"), *index.flags, "--index-rate", "0") as running:
        yield running


@pytest.fixture(scope="module")
def slow(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A throttled server: 100 rows a second."""
    with Server(tmp_path_factory.mktemp("slow"), *index.flags, "--index-rate", "100") as running:
        yield running


@pytest.fixture(scope="module")
def token(indexed: Server) -> str:
    made: str = indexed.create(ADMIN)["accessToken"]
    return made


@pytest.fixture
def series(indexed: Server, index: Index, token: str) -> Series:
    return Series(indexed, index, token)


@pytest.fixture
def slow_series(slow: Server, index: Index) -> Callable[[], Series]:
    return lambda: Series(slow, index, slow.create(ADMIN)["accessToken"])
