"""Copy and swap on a real node, under constant reads and writes: no write is lost, and no read sees a partial index.

An operation killed in any state is completed by the next start. An instance that was suspended and continues late does
no harm.
"""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

from tests.operations.copies import Copy, MakeServer, copy_of
from tests.support.gate import Gate, asks, gate_to
from tests.support.indexed import CANCEL, Series
from tests.support.nodes import KINDS_IN_TURN, SharedNodes
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.store_file import events, look
from tests.support.waiting import until


@pytest.fixture(params=KINDS_IN_TURN)
def gate(request: pytest.FixtureRequest, shared_nodes: SharedNodes) -> Iterator[Gate]:
    with gate_to(shared_nodes.of(request.param).url) as made:
        yield made


@pytest.fixture
def copy(request: pytest.FixtureRequest, gate: Gate, shared_nodes: SharedNodes, make_server: MakeServer) -> Copy:
    return copy_of(make_server, shared_nodes.of(request.node.callspec.params["gate"]), gate)


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_constant_traffic_loses_nothing_and_no_read_fails(
    request: pytest.FixtureRequest, gate: Gate, shared_nodes: SharedNodes, make_server: MakeServer, shards: int
) -> None:
    node = shared_nodes.of(request.node.callspec.params["gate"])
    copy = copy_of(make_server, node, gate, number_of_shards=shards, number_of_replicas=0)
    with copy.traffic:
        for _ in range(2):
            done = copy.series.over(copy.begin())
            assert done["state"] == "DONE", done
            assert done["postCheck"]["passed"]
    copy.check()


def test_first_swap_may_reject_reads_only_during_the_swap(
    request: pytest.FixtureRequest, gate: Gate, shared_nodes: SharedNodes, make_server: MakeServer
) -> None:
    """The engine removes the index before its alias points to the copy: a read in between finds no shard and succeeds
    when retried. It never sees an empty or partial index."""
    node = shared_nodes.of(request.node.callspec.params["gate"])
    copy = copy_of(make_server, node, gate, alias=False)
    with copy.traffic:
        task = copy.begin()
        assert copy.series.over(task)["state"] == "DONE"
        moments = dict(look(copy.server, "SELECT action, at FROM events WHERE target = ?", task))
        assert copy.series.over(copy.begin())["state"] == "DONE"
    began, ended = moments["operation.swapping"], moments["operation.done"]
    assert all(asked <= ended and told >= began for asked, told in copy.traffic.turned_away)
    copy.traffic.turned_away.clear()
    copy.check()


def _wait_for(copy: Copy, state: str) -> str:
    """Start the operation and wait until it stays in this state."""
    if state == "PLANNED":
        # The first request asks for the plan.
        copy.gate.hold(asks("GET", f"/{copy.series.name}/_settings"), after=1)
    elif state == "RUNNING":
        copy.hold_while_copying()
    else:
        copy.gate.hold(asks("PUT", "/_block/write"))
    task = copy.begin()
    copy.gate.wait_until_held()
    if state == "SWAPPING":
        # The copy's first alias was created with it.
        copy.gate.hold_instead(asks("POST", "/_aliases"))
        copy.gate.wait_until_held()
    return task


@pytest.mark.parametrize(
    "state",
    [
        pytest.param("PLANNED", marks=pytest.mark.soak),
        "RUNNING",
        pytest.param("VERIFYING", marks=pytest.mark.soak),
        "SWAPPING",
    ],
)
def test_operation_killed_in_each_state_is_completed_by_the_next_start(copy: Copy, state: str) -> None:
    with copy.traffic:
        task = _wait_for(copy, state)
        copy.kill()
        assert copy.stored_state() == state
        copy.gate.drop()
        copy.server.start()
        done = copy.series.over(task)
        assert done["state"] == "DONE", done
    copy.check()


@pytest.mark.parametrize("state", [pytest.param("VERIFYING", marks=pytest.mark.soak), "SWAPPING"])
def test_late_request_of_a_killed_instance_does_no_harm_before_the_next_start(copy: Copy, state: str) -> None:
    with copy.traffic:
        task = _wait_for(copy, state)
        copy.kill()
        copy.gate.let_go()
        copy.server.start()
        done = copy.series.over(task)
        assert done["state"] == "DONE", done
    copy.check()


def test_late_request_of_a_killed_instance_does_no_harm_after_completion(copy: Copy) -> None:
    with copy.traffic:
        task = _wait_for(copy, "SWAPPING")
        copy.kill()
        copy.gate.pass_others()
        copy.server.start()
        assert copy.series.over(task)["state"] == "DONE"
        copy.gate.let_go()
        again = copy.begin()
        assert copy.series.over(again)["state"] == "DONE"
    copy.check()


def test_late_write_block_of_a_killed_instance_is_removed_from_the_copy(
    request: pytest.FixtureRequest, gate: Gate, shared_nodes: SharedNodes, make_server: MakeServer
) -> None:
    copy = copy_of(make_server, shared_nodes.of(request.node.callspec.params["gate"]), gate, alias=False)
    with copy.traffic:
        task = _wait_for(copy, "VERIFYING")
        copy.kill()
        copy.gate.pass_others()
        copy.server.start()
        until(lambda: copy.series.name not in copy.node.ask("GET", f"/{copy.series.name}/_settings"), "it was swapped")
        copy.gate.let_go()
        until(lambda: _blocked(copy) or copy.series.operation(task)["state"] == "DONE", "the late request arrived")
        assert copy.series.over(task)["state"] == "DONE"
    copy.traffic.turned_away.clear()
    copy.check()


@pytest.mark.long
def test_instance_suspended_while_swapping_does_no_harm_when_it_continues(copy: Copy, make_server: MakeServer) -> None:
    with copy.traffic:
        task = _wait_for(copy, "SWAPPING")
        assert copy.server.process is not None
        until(lambda: _is_stopped_between_writes(copy.server), "it is stopped without the store's lock")
        try:
            copy.gate.pass_others()
            flags = ("--index-url", copy.node.url, *copy.flags[2:])
            other = Server(copy.server.folder, *flags)
            with other:
                took_over = Series(other, copy.series.index, copy.series.token, copy.series.aspect)
                assert took_over.over(task)["state"] == "DONE"
                copy.gate.let_go()
                os.killpg(copy.server.process.pid, signal.SIGCONT)
                # Both continue, one at a time.
                for series in (copy.series, took_over):
                    assert series.over(series.truncate(0, forceReindex=True))["state"] == "DONE"
        finally:
            os.killpg(copy.server.process.pid, signal.SIGCONT)
    copy.check()
    told = [event.action for event in events(copy.server) if event.target == task]
    assert told.count("operation.done") == 1
    assert "operation.failed" not in told


def _is_stopped_between_writes(server: Server) -> bool:
    """A server stopped in the middle of a write holds the store's lock: continue it and try again."""
    assert server.process is not None
    os.killpg(server.process.pid, signal.SIGSTOP)
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    until(lambda: all(one.status() == psutil.STATUS_STOPPED for one in family), "every process of it is stopped")
    with closing(sqlite3.connect(server.data_dir / "watchword.db", isolation_level=None, timeout=0)) as store:
        try:
            store.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            os.killpg(server.process.pid, signal.SIGCONT)
            return False
        store.execute("ROLLBACK")
    return True


@pytest.mark.parametrize("state", [pytest.param("RUNNING", marks=pytest.mark.soak), "VERIFYING"])
def test_operation_cancelled_before_the_swap_leaves_the_index_unchanged(copy: Copy, state: str) -> None:
    with copy.traffic:
        task = _wait_for(copy, state)
        copy.server.ask(CANCEL, {"id": task}, actor=ADMIN)
        copy.gate.let_go()
        assert copy.series.over(task)["state"] == "CANCELLED"
        # The old rows not changed by the traffic are still there.
        assert set(copy.series.rows()) >= {f"old-{n}" for n in range(50)}
        assert copy.series.over(copy.begin())["state"] == "DONE"
    copy.check()


def test_operation_cannot_be_cancelled_while_swapping(copy: Copy) -> None:
    task = _wait_for(copy, "SWAPPING")
    with pytest.raises(GraphQLRefused) as refused:
        copy.server.ask(CANCEL, {"id": task}, actor=ADMIN)
    assert refused.value.reason == "too_late_to_cancel"
    copy.gate.let_go()
    assert copy.series.over(task)["state"] == "DONE"


@pytest.mark.long
def test_graceful_stop_unblocks_writes_and_the_next_start_continues(copy: Copy) -> None:
    with copy.traffic:
        task = _wait_for(copy, "VERIFYING")
        copy.gate.let_go()
        copy.server.stop()
        until(lambda: not _blocked(copy), "writers are let in")
        copy.server.start()
        assert copy.series.over(task)["state"] == "DONE"
    copy.check()


def _blocked(copy: Copy) -> bool:
    settings = copy.node.ask("GET", f"/{copy.series.name}/_settings")
    return any("blocks" in told["settings"]["index"] for told in settings.values())
