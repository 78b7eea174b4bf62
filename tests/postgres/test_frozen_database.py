"""A database that stops answering during a write: the client gets 503 within the timeout."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.postgres import home, own_cluster
from tests.support.server import ADMIN, CREATE_POLICY, Server
from tests.support.waiting import until

POLICY = {
    "type": "PLATFORM",
    "name": "test policy",
    "state": "ACTIVE",
    "privileges": ["MANAGE_POLICIES"],
    "actors": {"users": ["urn:li:corpuser:somebody"]},
}
BOUND = {"WATCHWORD_DATABASE_TIMEOUT": "10"}
"""Longer than it takes to see that the write waits, shorter than the client's patience."""
BLOCKED = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'INSERT INTO policies'"


def test_write_to_a_frozen_database_gets_503_and_is_rolled_back(tmp_path: Path) -> None:
    with (
        own_cluster(tmp_path) as cluster,
        home(cluster, tmp_path) as place,
        ThreadPoolExecutor(1) as beside,
        Server(tmp_path / "server", "--local-mode", "on", env=place.env | BOUND) as server,
        place.connect() as other,
    ):
        before = place.look("SELECT urn FROM policies ORDER BY urn")
        other.execute("BEGIN")
        other.execute("LOCK TABLE policies IN SHARE MODE")
        asked = beside.submit(server.post, CREATE_POLICY, {"input": POLICY}, actor=ADMIN)
        until(lambda: bool(cluster.ask(BLOCKED)), "the write waits inside its transaction")
        cluster.pause()
        try:
            # The database is still frozen; the client's own timeout is 30 seconds.
            answer = asked.result().json()
        finally:
            cluster.resume()
        other.execute("ROLLBACK")
        assert answer["errors"][0]["extensions"]["code"] == 503
        until(lambda: not cluster.ask(BLOCKED), "the write is gone")
        assert place.look("SELECT urn FROM policies ORDER BY urn") == before
        assert server.grant("urn:li:corpuser:somebody")
