"""What can happen to a Patroni cluster. Each fault calls `meanwhile` while it lasts and another node may be the primary,
then undoes it and waits until the cluster is complete again."""

from collections.abc import Callable

from tests.support.patroni import Node, PatroniCluster
from tests.support.waiting import until

Meanwhile = Callable[[], None]


def switchover(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    cluster.switchover()
    meanwhile()
    cluster.until_settled()


def kill_primary(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """PostgreSQL and the agent."""
    _replaced(cluster, Node.kill, Node.start, meanwhile)


def stop_agent(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """The primary's agent alone: its PostgreSQL still answers after another node was promoted."""
    _replaced(cluster, Node.stop_agent, Node.resume_agent, meanwhile)


def kill_agent(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """The same, and a new agent finds the old primary running."""
    _replaced(cluster, Node.kill_agent, Node.start, meanwhile)


def freeze_primary(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """PostgreSQL and the agent stop and later go on."""
    _replaced(cluster, Node.freeze, Node.thaw, meanwhile)


def cut_primary(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """The primary reaches neither etcd nor the standbys, and instances reach the primary."""
    _replaced(cluster, Node.cut, Node.heal, meanwhile)


def kill_standby(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """The synchronous one: Patroni chooses the other."""
    standby = cluster.sync_standby()
    assert standby is not None
    standby.kill()
    until(lambda: cluster.sync_standby() not in (None, standby), "another standby is synchronous")
    meanwhile()
    standby.start()
    cluster.until_settled()


def kill_primary_and_standby(cluster: PatroniCluster, meanwhile: Meanwhile) -> None:
    """Nobody may be promoted until the synchronous standby returns."""
    primary, standby = cluster.leader(), cluster.sync_standby()
    assert standby is not None
    standby.kill()
    primary.kill()
    standby.start()
    cluster.until_promoted(primary)
    meanwhile()
    primary.start()
    cluster.until_settled()


def _replaced(
    cluster: PatroniCluster, begin: Callable[[Node], object], undo: Callable[[Node], object], meanwhile: Meanwhile
) -> None:
    primary = cluster.leader()
    begin(primary)
    try:
        cluster.until_promoted(primary)
        meanwhile()
    finally:
        undo(primary)
    cluster.until_settled()


FAULTS: dict[str, Callable[[PatroniCluster, Meanwhile], None]] = {
    "switchover": switchover,
    "primary killed": kill_primary,
    "agent of the primary stopped": stop_agent,
    "agent of the primary killed": kill_agent,
    "primary frozen": freeze_primary,
    "primary cut off": cut_primary,
    "synchronous standby killed": kill_standby,
    "primary and standby killed": kill_primary_and_standby,
}
