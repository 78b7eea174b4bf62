"""A node that is paused, killed and restarted: finished tasks are known, lost ones are not, and no index is taken for
missing while the node recovers."""

from pathlib import Path

import pytest

from tests.engines.harness import QUICK, SLOW, UNTIL, ClusterHarness, Run, old, young
from tests.support.engine_nodes import NodePlace, engine_at
from tests.support.nodes import KINDS_IN_TURN, own_node, unique_prefix
from watchword.basics.errors import Reason


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_restarted_node_keeps_finished_tasks_and_indices_but_no_running_task(
    kind: str, tmp_path: Path, run: Run
) -> None:
    with own_node(kind, tmp_path) as node:
        engine = engine_at(node.url)
        harness = ClusterHarness(run, engine, NodePlace(node, unique_prefix()))
        index = harness.index("one", old(2_000) | young(3))
        target = harness.copied(index)
        ended = run(engine.start_copy(index, target, UNTIL, QUICK._replace(tag="ended")))
        before = harness.over(ended)
        lost = run(engine.start_delete(index, UNTIL, SLOW._replace(tag="lost")))
        harness.until(lost, lambda status: status.counters.deleted > 0, "it has begun")
        node.kill()
        assert harness.refused(engine.task(ended)).reason is Reason.INDEX_UNAVAILABLE
        node.start()
        assert run(engine.task(ended)) == before
        assert before.tag == "ended"
        status = run(engine.task(lost))
        assert status is None or status.tag != "lost", "its number may be another's by now"
        assert run(engine.running("lost")) == ()
        node.pause()
        late = engine_at(node.url, timeout=1.0)
        for call in (late.probe(), late.count(index, UNTIL), late.task(ended)):
            assert harness.refused(call).reason is Reason.INDEX_UNAVAILABLE
        node.resume()
        assert run(engine.count(target, UNTIL)).total == 3
        run(late.close())
        run(engine.close())


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS_IN_TURN)
def test_index_is_not_missing_while_its_node_recovers(kind: str, tmp_path: Path, run: Run) -> None:
    with own_node(kind, tmp_path) as node:
        engine, late = engine_at(node.url), engine_at(node.url, timeout=1.0)
        harness = ClusterHarness(run, engine, NodePlace(node, unique_prefix()))
        index = harness.index("one", young(3))
        target = harness.copied(index)
        run(engine.block(index))
        node.kill()
        # It answers as if there were no index until it has recovered its state, here until a second node joins.
        node.start("gateway.recover_after_data_nodes: 2", settled=False)
        assert node.http.get(f"/{index}/_settings?master_timeout=1s").status_code in (404, 503)
        for asked in (late.resolve(index), late.unblock(index), late.drop(index), late.abandon(target)):
            assert harness.refused(asked).reason is Reason.INDEX_UNAVAILABLE
        run(late.close())
        node.kill()
        node.start()
        assert run(engine.is_blocked(index))
        run(engine.unblock(index))
        assert not run(engine.is_blocked(index))
        run(engine.close())
