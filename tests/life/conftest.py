"""What the tests of a token's life say to a server, on each store."""

from collections.abc import Iterator

import pytest

from tests.life.holding import Life
from tests.support import postgres as databases
from tests.support.server import Server


@pytest.fixture(scope="session")
def life(server: Server) -> Life:
    """On the shared server, which is on SQLite."""
    return Life(server)


@pytest.fixture(scope="session")
def on_postgres(postgres: databases.Address, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("life")
    with (
        databases.home(postgres, folder) as home,
        Server(folder / "server", "--local-mode", "on", env=home.env) as running,
    ):
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def lives(request: pytest.FixtureRequest) -> Life:
    """On each store in turn."""
    return Life(request.getfixturevalue("server" if request.param == "sqlite" else "on_postgres"))
