"""A clock that is behind the newest event of the store: a start warns, on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Address, home
from tests.support.server import Server
from tests.support.store_file import change_store

EVENT = """INSERT INTO events (at, actor, action, target, peer, request_id, detail)
VALUES (4102444800000, 'urn:li:corpuser:a', 'token.created', 't', 'p', 'r', '{}')"""
SAID = "WARNING: the clock says 20"


@pytest.fixture(params=["sqlite", "postgres"])
def future(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that was stopped, with an event of the future."""
    if request.param == "sqlite":
        with Server(tmp_path / "s") as server:
            assert SAID not in server.out.read_text()
            server.stop()
            change_store(server, EVENT)
            yield server
        return
    postgres: Address = request.getfixturevalue("postgres")
    with home(postgres, tmp_path) as place, Server(tmp_path / "s", env=place.env) as server:
        assert SAID not in server.out.read_text()
        server.stop()
        with place.connect() as connection:
            connection.execute(EVENT.encode())
        yield server


def test_start_warns_if_the_newest_event_is_in_the_future(future: Server) -> None:
    future.start()
    assert SAID in future.out.read_text()
    assert "but the newest event is of 2100-01-01T00:00:00.000Z" in future.out.read_text()
    assert future.http.get("/health/ready").status_code == 200
