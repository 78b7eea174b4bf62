"""With confirmed reads no answer comes from a primary that was replaced, although it still runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PROMPT, Cluster, Home, own_cluster
from tests.support.server import ADMIN, REVOKE, Server, watchword
from tests.support.waiting import until

CONFIRMED = {"WATCHWORD_DATABASE_READS": "confirmed"}
MOST_CONNECTIONS = 40
"""In the two seconds of a request, those of this test included."""
MOST_WAITING = 4
"""Those in use: two for verification, and of other requests."""
SECONDS_OF = 'watchword_store_seconds_count{{operation="{}"}}'
STANDBY = "walreceiver"
"""The name under which a standby connects if it has no other."""


class Pair:
    """A primary and its standby, which must confirm each commit."""

    def __init__(self, folder: Path, primary: Cluster) -> None:
        self.folder = folder
        self.primary = primary
        self.standby = primary.standby(folder / "standby.log")
        self.home = Home(primary, folder)
        self.third: Cluster | None = None

    @property
    def env(self) -> dict[str, str]:
        hosts = f"postgresql://ww@{self.primary.host},{self.standby.host}/ww"
        return self.home.env | PROMPT | {"WATCHWORD_DATABASE_URL": hosts}

    def promote(self) -> None:
        """The standby becomes a primary with a standby of its own. The old primary does not notice."""
        self.standby.promote()
        self.third = self.standby.standby(self.folder / "third.log")
        set_standbys(self.standby, STANDBY)

    def remove(self) -> None:
        if self.third is not None:
            self.third.remove()
        self.standby.remove()


def set_standbys(cluster: Cluster, names: str) -> None:
    cluster.ask(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    cluster.ask("SELECT pg_reload_conf()")
    until(lambda: cluster.ask("SHOW synchronous_standby_names") == [(names,)], "it has the setting")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with own_cluster(folder / "primary") as primary:
        made = Pair(folder, primary)
        set_standbys(primary, STANDBY)
        try:
            yield made
        finally:
            made.remove()


def test_emptied_list_of_standbys_is_noticed(pair: Pair, make_server: Callable[..., Server]) -> None:
    server = make_server("--local-mode", "on", env=pair.env | CONFIRMED)
    token = server.create(ADMIN)
    set_standbys(pair.primary, "")
    try:
        until(lambda: server.verify(token["accessToken"]).status_code == 503, "no read is confirmed")
        before = connections_made(pair.primary)
        answer = server.post(REVOKE, {"id": token["metadata"]["id"]}, actor=ADMIN)
        assert answer.json()["errors"][0]["extensions"]["code"] == 503
        assert connections_made(pair.primary) - before < MOST_CONNECTIONS
    finally:
        set_standbys(pair.primary, STANDBY)
    until(lambda: server.verify(token["accessToken"]).status_code == 204, "reads are confirmed again")


def test_reads_that_nobody_confirms_leave_no_sessions(pair: Pair, make_server: Callable[..., Server]) -> None:
    server = make_server("--local-mode", "on", env=pair.env | CONFIRMED)
    token = server.create(ADMIN)
    pair.standby.stop(immediate=True)
    try:
        for _ in range(4):
            assert server.verify(token["accessToken"]).status_code == 503
            assert server.post("{ me { corpUser { urn } } }", {}, actor=ADMIN).status_code in {200, 503}
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        until(lambda: pair.primary.ask(waiting)[0][0] <= MOST_WAITING, "sessions that were given up are gone")
    finally:
        pair.standby.start()
    until(lambda: server.verify(token["accessToken"]).status_code == 204, "reads are confirmed again")


def connections_made(cluster: Cluster) -> int:
    cluster.ask("SELECT pg_stat_clear_snapshot()")
    return int(cluster.ask("SELECT sessions FROM pg_stat_database WHERE datname = 'ww'")[0][0])


def test_list_of_which_not_all_must_confirm_is_rejected(pair: Pair, tmp_path: Path) -> None:
    migrate = ("db", "migrate", "--data-dir", str(tmp_path / "data"))
    try:
        for names in ("", "*", "FIRST 1 (a, b)", "ANY 1 (a, b)", "a, b"):
            set_standbys(pair.primary, names)
            done = watchword(*migrate, env=pair.env | CONFIRMED)
            assert done.returncode == 1
            assert "WATCHWORD_DATABASE_READS is confirmed, but synchronous_standby_names " in done.stderr
            done = watchword("doctor", "--data-dir", str(tmp_path / "data"), env=pair.env | CONFIRMED)
            assert "synchronous_standby_names" in done.stdout
        # Patroni changes its list as standbys come and go, so the service starts.
        assert (
            watchword(*migrate, env=pair.env | CONFIRMED | {"WATCHWORD_DATABASE_FAILOVER": "patroni"}).returncode == 0
        )
    finally:
        set_standbys(pair.primary, STANDBY)
    done = watchword("doctor", "--data-dir", str(tmp_path / "data"), env=pair.env)
    assert "Set WATCHWORD_DATABASE_READS=confirmed." in done.stdout


def test_replaced_primary_is_not_used(pair: Pair, make_server: Callable[..., Server]) -> None:
    """The last test of the pair, whose standby it promotes."""
    confirming = make_server("--local-mode", "on", env=pair.env | CONFIRMED)
    plain = make_server("--local-mode", "on", env=pair.env)
    kept, revoked = (confirming.create(ADMIN) for _ in range(2))
    for server in (confirming, plain):
        assert [server.verify(token["accessToken"]).status_code for token in (kept, revoked)] == [204, 204]
    until(lambda: confirming.samples().get(SECONDS_OF.format("confirm"), 0) >= 2, "confirmations are counted")

    pair.promote()
    elsewhere = pair.env | {"WATCHWORD_DATABASE_URL": pair.standby.url()}
    make_server("--local-mode", "on", env=elsewhere).revoke(revoked["metadata"]["id"])
    # The old primary still answers, so what it shows is wrong: a read must be confirmed.
    assert plain.verify(revoked["accessToken"]).status_code == 204

    seen: list[int] = []

    def follows() -> bool:
        seen.append(confirming.verify(revoked["accessToken"]).status_code)
        return seen[-1] == 401

    until(follows, "it uses the new primary")
    assert set(seen) <= {401, 503}
    until(lambda: confirming.verify(kept["accessToken"]).status_code == 204, "the other token is valid")
    until(lambda: confirming.samples()["watchword_store_timeline"] == 2, "the timeline is shown")
    assert confirming.samples()[SECONDS_OF.format("unconfirmed")] >= 1
    noted = "SELECT target FROM events WHERE action = 'store.primary_changed'"
    until(lambda: pair.standby.ask(noted, schema=pair.home.schema) == [("2",)], "the change is noted")

    # The old one runs, and is not used again, although the new one is gone.
    pair.standby.stop(immediate=True)
    assert {confirming.verify(kept["accessToken"]).status_code for _ in range(3)} == {503}
