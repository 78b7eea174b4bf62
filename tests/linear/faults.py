"""What can happen to a Patroni cluster. Each fault uses the probe while it lasts, then undoes it and waits until the
cluster is complete again."""

from collections.abc import Callable
from typing import Protocol

from tests.support.patroni import Node, PatroniCluster
from tests.support.waiting import until


class Probe(Protocol):
    """Tokens that were made before the fault."""

    def revoke(self) -> None:
        """Until all are revoked, through the instance behind HAProxy."""

    def try_to_revoke(self) -> None:
        """Each once, through an instance with the list of all nodes."""

    def verify(self) -> None:
        """Until every instance has answered for every token."""


def switchover(cluster: PatroniCluster, probe: Probe) -> None:
    cluster.switchover()
    probe.revoke()
    probe.verify()
    cluster.until_settled()


def kill_primary(cluster: PatroniCluster, probe: Probe) -> None:
    """PostgreSQL and the agent."""
    _replaced(cluster, Node.kill, Node.start, probe)


def stop_agent(cluster: PatroniCluster, probe: Probe) -> None:
    """The primary's agent alone: its PostgreSQL still answers after another node was promoted."""
    _replaced(cluster, Node.stop_agent, Node.resume_agent, probe)


def kill_agent(cluster: PatroniCluster, probe: Probe) -> None:
    """The same, and a new agent finds the old primary running."""
    _replaced(cluster, Node.kill_agent, Node.start, probe)


def restart_agent(cluster: PatroniCluster, probe: Probe) -> None:
    """Patroni 3.0 then sets `synchronous_standby_names` to `*`, until the synchronous standby changes."""
    primary, standby = cluster.leader(), cluster.sync_standby()
    assert standby is not None
    _restart_agent(primary)
    cluster.control("restart", node2=standby.name)
    cluster.until_settled()
    probe.revoke()
    probe.verify()


def freeze_primary(cluster: PatroniCluster, probe: Probe) -> None:
    """PostgreSQL and the agent stop and later go on."""
    _replaced(cluster, Node.freeze, Node.thaw, probe)


def cut_primary(cluster: PatroniCluster, probe: Probe) -> None:
    """The primary reaches neither etcd nor the standbys, and instances reach the primary."""
    _replaced(cluster, Node.cut, Node.repair, probe)


def kill_standby(cluster: PatroniCluster, probe: Probe) -> None:
    """The synchronous one: Patroni chooses the other."""
    standby = cluster.sync_standby()
    assert standby is not None
    standby.kill()
    until(lambda: cluster.sync_standby() not in (None, standby), "another standby is synchronous")
    probe.revoke()
    probe.verify()
    standby.start()
    cluster.until_settled()


def kill_primary_and_standby(cluster: PatroniCluster, probe: Probe) -> None:
    """Nobody may be promoted until the synchronous standby returns."""
    primary, standby = cluster.leader(), cluster.sync_standby()
    assert standby is not None
    primary.freeze()  # or its agent may already choose the other standby
    standby.kill()
    primary.kill()
    standby.start()
    cluster.until_promoted(primary)
    probe.revoke()
    probe.verify()
    primary.start()
    cluster.until_settled()


def kill_after_agent_restart(cluster: PatroniCluster, probe: Probe) -> None:
    """With `*` any standby confirms, but Patroni promotes only the one named in etcd. That one dies, another confirms a
    revocation, the primary dies, and the first returns without it.
    """
    primary, standby = cluster.leader(), cluster.sync_standby()
    assert standby is not None
    _restart_agent(primary)
    primary.stop_agent()  # or it would name the other standby, in etcd as well
    standby.kill()
    probe.try_to_revoke()
    primary.kill()
    standby.start()
    cluster.until_promoted(primary)
    probe.verify()
    primary.start()
    cluster.until_settled()


def _restart_agent(node: Node) -> None:
    node.kill_agent()
    node.start()
    until(lambda: node.is_primary, f"the new agent of {node} holds the leader key")


def _replaced(
    cluster: PatroniCluster, begin: Callable[[Node], object], undo: Callable[[Node], object], probe: Probe
) -> None:
    primary = cluster.leader()
    begin(primary)
    try:
        cluster.until_promoted(primary)
        probe.revoke()
        probe.verify()
    finally:
        undo(primary)
    cluster.until_settled()


FAULTS: dict[str, Callable[[PatroniCluster, Probe], None]] = {
    "switchover": switchover,
    "primary killed": kill_primary,
    "agent of the primary stopped": stop_agent,
    "agent of the primary killed": kill_agent,
    "agent of the primary restarted": restart_agent,
    "primary frozen": freeze_primary,
    "primary cut off": cut_primary,
    "synchronous standby killed": kill_standby,
    "primary and standby killed": kill_primary_and_standby,
    "agent restarted, then both killed": kill_after_agent_restart,
}
