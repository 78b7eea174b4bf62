"""Operations through the client: plan, start, watch, cancel, and task status."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.both_clients import Clients
from tests.support.series import fill, new_aspect, rows_of
from tests.support.server import ADMIN, Server
from watchword.client import BadRequest, Client, Conflict, NotFound, OperationInfo, Unauthorized

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def days_ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def ended(client: Client, operation: OperationInfo) -> OperationInfo:
    *_, last = client.operations.watch(operation.id, every=0.05)
    return last


def test_plan_counts_what_would_go_and_changes_nothing(server: Server, connect: Clients) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=30, young=70)
    plan = connect(server.url, actor=ADMIN).series.plan_truncation("DATASET", aspect, days_ago(30), batch_size=7)
    assert (plan.index_name, plan.rows, plan.rows_to_delete, plan.share) == (index, 100, 30, 30.0)
    assert (plan.strategy, plan.batch_size, plan.timeout_seconds) == ("DELETE_BY_QUERY", 7, None)
    assert plan.summary.startswith("Delete 30 out of 100 rows (30.00%).")
    assert 0 < plan.bytes_to_free < plan.size_in_bytes
    assert rows_of(server, index) == 100


@pytest.mark.parametrize("old", [30, 70])
def test_truncation_is_watched_to_its_end_and_leaves_what_is_younger(
    server: Server, connect: Clients, old: int
) -> None:
    aspect, client = new_aspect(), connect(server.url, actor=ADMIN)
    index = fill(server, aspect, old=old, young=100 - old)
    end = datetime.now(UTC) - timedelta(days=30)
    started = client.series.truncate("dataset", aspect, end)
    done = ended(client, started)
    assert (started.state, started.actor_urn, started.plan.strategy) == ("PLANNED", ADMIN, "DELETE_BY_QUERY")
    assert abs(started.plan.end_time - end) < timedelta(milliseconds=1)
    assert (done.id, done.state, done.is_over, done.percent) == (started.id, "DONE", True, 100.0)
    assert done.finished_at is not None
    assert done.post_check is not None
    assert (done.post_check.passed, done.post_check.rows, done.post_check.rows_left) == (True, 100 - old, 0)
    assert rows_of(server, index) == 100 - old


def test_embedded_index_deletes_whatever_strategy_is_forced(server: Server, connect: Clients) -> None:
    client, aspect, end = connect(server.url, actor=ADMIN), new_aspect(), days_ago(30)
    fill(server, aspect, old=9, young=1)
    for plan in (
        client.series.plan_truncation("dataset", aspect, end, force_reindex=True),
        client.series.plan_truncation("dataset", aspect, end, force_delete_by_query=True),
    ):
        assert (plan.strategy, plan.reason) == ("DELETE_BY_QUERY", "the embedded index always deletes in batches")
    done = ended(client, client.series.truncate("dataset", aspect, end, force_reindex=True))
    assert done.target_index is None
    assert (done.state, done.status.deleted, done.status.done) == ("DONE", 9, 9)
    with pytest.raises(ValueError, match="force_delete_by_query and force_reindex"):
        client.series.plan_truncation("dataset", aspect, end, force_delete_by_query=True, force_reindex=True)


def test_operation_and_the_tasks_that_worked_for_it_have_a_status(server: Server, connect: Clients) -> None:
    client, aspect = connect(server.url, actor=ADMIN), new_aspect()
    fill(server, aspect, old=3, young=7)
    done = ended(client, client.series.truncate("dataset", aspect, days_ago(30)))
    whole = client.operations.task_status(done.id)
    part = client.operations.task_status(done.tasks[0].id)
    assert whole is not None
    assert part is not None
    assert done.tasks[0].purpose == "delete"
    assert (whole.task_id, whole.completed, whole.failed, whole.status.deleted) == (done.id, True, False, 3)
    assert (part.task_id, part.completed, part.status.deleted) == (done.tasks[0].id, True, 3)


def test_unknown_task_is_none(server: Server, connect: Clients) -> None:
    assert connect(server.url, actor=ADMIN).operations.task_status("nobody:12345") is None


def test_operations_are_listed_newest_first_page_by_page(server: Server, connect: Clients) -> None:
    client = connect(server.url, actor=ADMIN)
    made = [
        ended(client, client.series.truncate("dataset", "operation", EPOCH + timedelta(milliseconds=number))).id
        for number in range(5)
    ]
    listed = [operation.id for operation in client.operations.list(page_size=2)]
    assert listed[:5] == list(reversed(made))
    assert len(listed) == len(set(listed))
    assert client.operations.get(made[0]).plan.end_time == EPOCH


def test_second_operation_on_an_index_is_a_conflict_that_names_the_first(slow_server: Server, connect: Clients) -> None:
    client, aspect, end = connect(slow_server.url, actor=ADMIN), new_aspect(), days_ago(30)
    fill(slow_server, aspect, old=10_000, young=10_000)
    started = client.series.truncate("dataset", aspect, end)
    looks = client.operations.watch(started.id, every=0.05)
    going = next(look for look in looks if look.rows_done)
    assert (going.state, going.rows_to_do) == ("RUNNING", 10_000)
    assert 0 < going.percent < 100
    assert going.estimated_end_at is not None
    with pytest.raises(Conflict) as refused:
        client.series.truncate("dataset", aspect, end)
    assert (refused.value.reason, refused.value.details["operationId"]) == ("operation_running", started.id)
    assert client.operations.cancel(started.id).cancel_requested_by == ADMIN
    *_, last = looks
    assert (last.state, last.rows_done < 10_000) == ("CANCELLED", True)
    with pytest.raises(Conflict) as late:
        client.operations.cancel(started.id)
    assert late.value.reason == "too_late_to_cancel"


def test_sizes_tell_rows_and_bytes_of_each_index(server: Server, connect: Clients) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=1, young=2)
    (size,) = [one for one in connect(server.url, actor=ADMIN).series.list() if one.index_name == index]
    assert (size.entity_name, size.aspect_name, size.rows) == ("dataset", aspect, 3)
    assert size.size_in_bytes > 0


def test_moment_without_a_zone_and_a_watch_without_a_pause_are_wrong_arguments(
    server: Server, connect: Clients
) -> None:
    client = connect(server.url, actor=ADMIN)
    with pytest.raises(ValueError, match="zone"):
        client.series.truncate("dataset", "operation", datetime(2026, 1, 1))  # noqa: DTZ001 - the wrong argument
    for every in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="every"):
            list(client.operations.watch("a:1", every))


def test_operation_errors_have_their_class(server: Server, connect: Clients, actor: str) -> None:
    client, nobody = connect(server.url, actor=ADMIN), connect(server.url, actor=actor)
    with pytest.raises(NotFound) as unknown:
        client.series.plan_truncation("dataset", "neverHeardOf", EPOCH)
    with pytest.raises(NotFound) as missing:
        client.operations.get("nobody:1")
    with pytest.raises(BadRequest) as future:
        client.series.truncate("dataset", "operation", days_ago(-1))
    with pytest.raises(BadRequest) as malformed:
        client.operations.task_status("a:b:c")
    with pytest.raises(Unauthorized) as denied:
        nobody.series.truncate("dataset", "operation", EPOCH)
    assert (unknown.value.reason, missing.value.reason) == ("aspect_not_found", "operation_not_found")
    assert (future.value.field, malformed.value.field) == ("endTimeMillis", "task")
    assert str(future.value).startswith("end_time must be")
    assert denied.value.privilege == "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE"
