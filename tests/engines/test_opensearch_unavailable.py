"""A cluster that does not answer, answers late or returns errors: limited retries, then a fault, and no duplicates."""

from collections.abc import Iterator

import pytest

from tests.engines.harness import QUICK, UNTIL, ClusterHarness, Run, old, young
from tests.support.breaker import Breaker
from tests.support.engine_nodes import NodePlace, engine_at
from tests.support.gate import Gate, asks
from tests.support.nodes import Client, SharedNodes, unique_prefix
from tests.support.ports import free_port
from watchword.basics.errors import Fault, Reason
from watchword.basics.secret import Secret
from watchword.index.indices import Row
from watchword.index.opensearch.cluster_client import MAX_BYTES, TRIES


@pytest.fixture
def node(shared_nodes: SharedNodes) -> Client:
    """One node is enough: the faults are in the proxy before it."""
    return shared_nodes.of("opensearch-2")


@pytest.fixture
def breaker(node: Client) -> Iterator[Breaker]:
    with Breaker(node.url) as breaker:
        yield breaker


@pytest.fixture
def broken(node: Client, breaker: Breaker, run: Run) -> Iterator[ClusterHarness]:
    """An engine that reaches the node through the breaker, and an index."""
    engine = engine_at(breaker.url)
    harness = ClusterHarness(run, engine, NodePlace(node, unique_prefix()))
    harness.index("one", old(3) | young(2))
    yield harness
    breaker.repair()
    node.drop(harness.place.name(""))
    run(engine.close())


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_read_is_retried_after_a_retriable_status(broken: ClusterHarness, breaker: Breaker, status: int) -> None:
    breaker.answer(asks("POST", "_search"), status, times=2)
    assert broken.run(broken.engine.count(broken.place.name("one"), UNTIL)).old == 3
    assert breaker.asked(asks("POST", "_search")) == 3


@pytest.mark.parametrize("status", [429, 503])
def test_overloaded_cluster_is_unavailable_after_all_retries(
    broken: ClusterHarness, breaker: Breaker, status: int
) -> None:
    before = breaker.asked(asks("GET", "_settings"))
    breaker.answer(asks("GET", "_settings"), status)
    fault = broken.refused(broken.engine.is_blocked(broken.place.name("one")))
    assert fault.reason is Reason.INDEX_UNAVAILABLE
    assert breaker.asked(asks("GET", "_settings")) - before <= TRIES


def test_read_is_retried_after_a_lost_answer(broken: ClusterHarness, breaker: Breaker) -> None:
    breaker.lose_answer(asks("POST", "_search"), times=1)
    assert broken.run(broken.engine.count(broken.place.name("one"), UNTIL)).total == 5


def test_task_whose_answer_was_lost_is_found_by_its_tag(broken: ClusterHarness, breaker: Breaker) -> None:
    index = broken.place.name("one")
    slow = QUICK._replace(tag=f"lost-{index}", batch=1, rate=0.5)
    breaker.lose_answer(asks("POST", "_delete_by_query"))
    fault = broken.refused(broken.engine.start_delete(index, UNTIL, slow))
    assert fault.reason is Reason.INDEX_UNAVAILABLE
    assert breaker.asked(asks("POST", "_delete_by_query")) == 1
    (task,) = broken.run(broken.engine.running(slow.tag))
    broken.run(broken.engine.cancel(task))
    assert broken.over(task).error == "cancelled"


def test_task_starts_although_the_kept_connection_was_closed(broken: ClusterHarness, breaker: Breaker) -> None:
    breaker.polite = False
    for _ in range(10):
        broken.ended(broken.run(broken.engine.start_delete(broken.place.name("one"), UNTIL, QUICK)))


@pytest.mark.parametrize("status", [502, 504])
def test_task_start_is_not_retried_after_a_gateway_error(broken: ClusterHarness, breaker: Breaker, status: int) -> None:
    breaker.answer(asks("POST", "_delete_by_query"), status)
    fault = broken.refused(broken.engine.start_delete(broken.place.name("one"), UNTIL, QUICK))
    assert fault.reason is Reason.INDEX_UNAVAILABLE
    assert breaker.asked(asks("POST", "_delete_by_query")) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_task_start_is_retried_when_the_cluster_was_overloaded(
    broken: ClusterHarness, breaker: Breaker, status: int
) -> None:
    breaker.answer(asks("POST", "_delete_by_query"), status, times=1)
    task = broken.run(broken.engine.start_delete(broken.place.name("one"), UNTIL, QUICK))
    assert broken.ended(task).counters.deleted == 3


def test_swap_whose_answer_was_lost_is_recognized(broken: ClusterHarness, breaker: Breaker) -> None:
    index = broken.place.name("one")
    target = broken.copied(index)
    breaker.lose_answer(asks("POST", "_aliases"))
    broken.run(broken.engine.swap(index, index, target))
    assert broken.concrete(index) == target


def test_write_whose_answer_was_lost_creates_no_duplicate(broken: ClusterHarness, breaker: Breaker) -> None:
    index = broken.place.name("one")
    breaker.lose_answer(asks("POST", "_bulk"), times=1)
    broken.run(broken.engine.write(index, [Row(b'{"urn":\n"u"}')]))
    assert len(broken.rows(index)) == 6


def test_hanging_cluster_is_unavailable_after_the_deadline(node: Client, run: Run) -> None:
    with Gate(node.url) as gate:
        engine = engine_at(gate.url, timeout=1.0)
        gate.hold(asks("GET", "/"))
        with pytest.raises(Fault) as caught:
            run(engine.resolve("a"))
        gate.drop()
        run(engine.close())
    assert caught.value.reason is Reason.INDEX_UNAVAILABLE


def test_refused_connection_makes_the_index_unavailable(run: Run) -> None:
    engine = engine_at(f"http://127.0.0.1:{free_port()}")
    for call in (engine.probe(), engine.resolve("a"), engine.make("a"), engine.drop("a"), engine.running("a")):
        with pytest.raises(Fault) as caught:
            run(call)
        assert caught.value.reason is Reason.INDEX_UNAVAILABLE
    run(engine.close())


def test_probe_is_not_retried(broken: ClusterHarness, breaker: Breaker) -> None:
    breaker.answer(lambda line: line.startswith(b"GET / "), 503)
    assert broken.refused(broken.engine.probe()).reason is Reason.INDEX_UNAVAILABLE
    assert breaker.asked(lambda line: line.startswith(b"GET / ")) == 1


def test_missing_index_is_quoted_and_asked_for_once_more(broken: ClusterHarness, breaker: Breaker) -> None:
    absent = broken.place.name("absent")
    fault = broken.refused(broken.engine.count(absent, UNTIL))
    assert fault.reason is Reason.INDEX_REFUSED
    assert fault.cause is not None
    assert "index_not_found_exception" in fault.cause
    # The cluster may have just started, so its blocks are read between the two.
    assert breaker.asked(asks("GET", absent)) == 2
    assert breaker.asked(asks("GET", "_cluster/state/blocks")) >= 1


@pytest.mark.parametrize("status", [401, 403])
def test_rejected_credentials_are_named_in_the_error(broken: ClusterHarness, breaker: Breaker, status: int) -> None:
    breaker.answer(asks("GET", "_settings"), status, b'{"error": {"type": "security_exception", "reason": "no"}}')
    fault = broken.refused(broken.engine.resolve("a"))
    assert fault.reason is Reason.INDEX_UNAVAILABLE
    assert "credentials" in fault.message


def test_full_disk_of_a_cluster_is_not_retried(broken: ClusterHarness, breaker: Breaker) -> None:
    said = b'{"error": {"type": "cluster_block_exception", "reason": "disk usage exceeded flood-stage watermark"}}'
    breaker.answer(asks("POST", "_aliases"), 429, said)
    fault = broken.refused(broken.engine.make_like(broken.place.name("one"), broken.place.name("two")))
    assert fault.reason is Reason.INDEX_REFUSED
    assert breaker.asked(asks("POST", "_aliases")) == 1


def test_redirect_is_not_followed(broken: ClusterHarness, breaker: Breaker, node: Client) -> None:
    breaker.answer(asks("GET", "_settings"), 302, b"", f"Location: {node.url}/_all")
    fault = broken.refused(broken.engine.resolve("a"))
    assert fault.reason is Reason.INDEX_UNAVAILABLE


@pytest.mark.parametrize("body", [b"<html>", b"{" + b" " * MAX_BYTES], ids=["no JSON", "endless"])
def test_oversized_or_non_json_answer_makes_the_index_unavailable(
    broken: ClusterHarness, breaker: Breaker, body: bytes
) -> None:
    breaker.answer(asks("GET", "_settings"), 200, body)
    assert broken.refused(broken.engine.resolve("a")).reason is Reason.INDEX_UNAVAILABLE


@pytest.mark.parametrize("body", [b"[]", b'{"other": 1}', b'{"a": {"settings": []}}', b'{"a": null}'])
def test_malformed_answer_makes_the_index_unavailable(broken: ClusterHarness, breaker: Breaker, body: bytes) -> None:
    breaker.answer(lambda _: True, 200, body)
    engine = broken.engine
    calls = (engine.probe, lambda: engine.resolve("a"), lambda: engine.count("a", 0), lambda: engine.checkpoints("a"),
             lambda: engine.running("a"), lambda: engine.sizes("a", "b"), lambda: engine.start_delete("a", 0, QUICK),
             lambda: engine.block("a"), lambda: engine.histogram("a", 3))  # fmt: skip
    reasons = {broken.refused(call()).reason for call in calls}
    assert reasons <= {Reason.INDEX_UNAVAILABLE, Reason.INDEX_REFUSED}
    assert Reason.INDEX_UNAVAILABLE in reasons


def test_bug_is_not_reported_as_an_unavailable_cluster(broken: ClusterHarness) -> None:
    with pytest.raises(TypeError):
        broken.run(broken.engine.count(broken.place.name("one"), object()))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        broken.run(broken.engine.resolve(5))  # type: ignore[arg-type]


def test_other_hosts_are_used_when_one_is_down(node: Client, run: Run) -> None:
    engine = engine_at(f"http://127.0.0.1:{free_port()}", node.url)
    for _ in range(4):
        assert run(engine.resolve(unique_prefix())) is None
    run(engine.close())


def test_failed_host_is_skipped_for_a_while(node: Client, breaker: Breaker, run: Run) -> None:
    breaker.answer(asks("GET", "/"), 503)
    engine = engine_at(breaker.url, node.url)
    for _ in range(6):
        assert run(engine.resolve(unique_prefix())) is None
    assert len(breaker.seen) == 1
    run(engine.close())


def test_task_is_started_on_another_host_if_one_is_down(broken: ClusterHarness, node: Client, run: Run) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    engine = engine_at(dead, node.url, dead)
    task = run(engine.start_delete(broken.place.name("one"), UNTIL, QUICK))
    assert broken.ended(task).counters.deleted == 3
    run(engine.close())


def test_secret_appears_in_no_fault_and_no_repr(run: Run) -> None:
    secret = "hunter2"
    engine = engine_at(f"http://127.0.0.1:{free_port()}", user="user", password=Secret(secret))
    with pytest.raises(Fault) as caught:
        run(engine.resolve("a"))
    client = engine._client
    shown = [repr(engine), repr(client), repr(vars(client)), repr(vars(client._kept)), repr(vars(client._kept.auth))]
    shown += [str(caught.value), repr(caught.value), caught.value.cause or ""]
    assert not [one for one in shown if secret in one or "aHVudGVyMg" in one]
    run(engine.close())
