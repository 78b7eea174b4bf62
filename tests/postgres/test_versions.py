"""The oldest supported PostgreSQL version works; the one before is rejected."""

from pathlib import Path

import pytest

from tests.support.postgres import OLDEST, TOO_OLD, Home, SharedClusters, home, own_cluster
from tests.support.server import ADMIN, Server, watchword


@pytest.mark.soak
def test_too_old_server_is_rejected(tmp_path: Path) -> None:
    with own_cluster(tmp_path / "old", TOO_OLD) as cluster:
        made = Home(cluster, tmp_path)
        done = watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=made.env)
        assert cluster.ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", made.schema) == []
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"watchword: The server at {cluster.host} is PostgreSQL 13; the oldest that is supported is 14. "
        "Upgrade it, or name another in WATCHWORD_DATABASE_URL.\n"
    )


@pytest.mark.soak
def test_oldest_supported_server_works(shared_clusters: SharedClusters, tmp_path: Path) -> None:
    with (
        home(shared_clusters.of(OLDEST), tmp_path) as made,
        Server(tmp_path / "server", "--local-mode", "on", env=made.env) as server,
    ):
        created = server.create(ADMIN)
        assert server.verify(created["accessToken"]).status_code == 204
        assert server.tokens()["total"] == 1
        assert server.revoke(created["metadata"]["id"])
        assert server.verify(created["accessToken"]).status_code == 401
        assert server.http.get("/health/ready").status_code == 200
