"""Token lifecycle tests through HTTP, on each store."""

from collections.abc import Iterator

import pytest

from tests.life.holding import LifecycleClient
from tests.support import postgres as databases
from tests.support.server import Server


@pytest.fixture(scope="session")
def life(server: Server) -> LifecycleClient:
    """On the shared SQLite server."""
    return LifecycleClient(server)


@pytest.fixture(scope="session")
def on_postgres(postgres: databases.Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("life")
    with (
        databases.home(postgres, folder) as home,
        Server(folder / "server", "--local-mode", "on", env=home.env) as running,
    ):
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def lives(request: pytest.FixtureRequest) -> LifecycleClient:
    """On each store in turn."""
    return LifecycleClient(request.getfixturevalue("server" if request.param == "sqlite" else "on_postgres"))
