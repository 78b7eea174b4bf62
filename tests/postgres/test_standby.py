"""A standby is never used: alone it is rejected, in a list it is skipped, and after promotion it is used."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PROMPT, Cluster, Home, own_cluster
from tests.support.server import ADMIN, Server, watchword
from tests.support.waiting import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby."""
    with own_cluster(tmp_path / "primary") as primary:
        standby = primary.standby(tmp_path / "standby.log")
        try:
            yield primary, standby
        finally:
            standby.remove()


def test_writable_host_is_used_and_found_after_failover(
    pair: tuple[Cluster, Cluster], make_server: Callable[..., Server], tmp_path: Path
) -> None:
    primary, standby = pair
    made = Home(primary, tmp_path)
    alone = made.env | {"WATCHWORD_DATABASE_URL": standby.url()}
    done = watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=alone)
    assert (done.returncode, done.stdout) == (1, "")
    expected = f"PostgreSQL at {standby.host} accepts no writes: it is a standby or read-only. Name the primary."
    assert done.stderr == f"watchword: {expected}\n"

    hosts = f"postgresql://ww@{standby.host},{primary.host}/ww?target_session_attrs=read-write"
    env = made.env | PROMPT | {"WATCHWORD_DATABASE_URL": hosts}
    server = make_server("--local-mode", "on", env=env)
    token = server.create(ADMIN)["accessToken"]
    assert server.verify(token).status_code == 204

    until(lambda: _is_caught_up(primary), "the standby has it all")
    primary.stop(immediate=True)
    assert server.verify(token).status_code == 503
    ready = server.http.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json()["parts"]["store"]["status"] == "unavailable"
    assert "127.0.0.1" not in ready.text

    standby.promote()
    until(lambda: server.verify(token).status_code == 204, "the promoted one is used")
    server.create(ADMIN)
    until(lambda: server.http.get("/health/ready").status_code == 200, "it is ready again")


def _is_caught_up(primary: Cluster) -> bool:
    query = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
    return primary.ask(query) == [(True,)]
