"""Truncation requests, index names and the choice of strategy."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchword.basics.errors import Fault
from watchword.index.engine import Counters, TaskId
from watchword.index.indices import Aspect, Histogram, IndexNames, RowCount, check_spans, check_word
from watchword.index.rules import EngineTask, Operation, OperationProgress, Plan, State, Strategy, parse_truncation

NOW = 1_790_000_000_000
ASKED = {"entityType": "dataset", "aspect": "operation", "endTimeMillis": NOW - 1}

_words = st.text("abcDEF019", min_size=1, max_size=80)
_prefixes = st.just("") | st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}", fullmatch=True)


@given(st.text(), st.text(), _prefixes)
def test_accepted_names_map_to_their_own_index(entity: str, aspect: str, prefix: str) -> None:
    try:
        asked = Aspect(check_word(entity, "entityType"), check_word(aspect, "aspect"))
    except Fault:
        return
    names = IndexNames(prefix)
    index = names.index_of(asked)
    assert re.fullmatch(r"([a-z0-9-]+_)?[a-z0-9]+_[a-z0-9]+aspect_v1", index)
    assert index.startswith(names.head)


ODD = ["*", "a*", "a,b", "..", "../x", "a/b", "_all", "a_b", "", " ", "a b", "ä", "a\n", "x" * 81, None, 7, ["a"], True]


@pytest.mark.parametrize("word", ODD)
@pytest.mark.parametrize("field", ["entityType", "aspect"])
def test_invalid_entity_or_aspect_is_rejected(field: str, word: Any) -> None:
    with pytest.raises(Fault) as refused:
        parse_truncation(ASKED | {field: word}, NOW)
    assert refused.value.details == {"field": field}


@given(_words, _words, _prefixes)
def test_index_name_maps_back_to_its_aspect(entity: str, name: str, prefix: str) -> None:
    names = IndexNames(prefix)
    aspect = names.aspect_of(names.index_of(Aspect(entity, name)))
    assert aspect is not None
    assert names.index_of(aspect) == names.index_of(Aspect(entity, name))


@given(_words, _words, _words, _words)
def test_aspects_share_an_index_only_if_they_differ_in_case(a: str, b: str, c: str, d: str) -> None:
    names = IndexNames()
    one, other = Aspect(a, b), Aspect(c, d)
    assert (names.index_of(one) == names.index_of(other)) == (one.key == other.key)


@pytest.mark.parametrize(
    "index", ["dataset_operationaspect_v1_17", "x", "_aspect_v1", "a_b_caspect_v1", "A_baspect_v1"]
)
def test_foreign_index_has_no_aspect(index: str) -> None:
    assert IndexNames().aspect_of(index) is None


def test_aspect_is_spelled_as_the_known_one() -> None:
    names = IndexNames("", (Aspect("dataset", "datasetUsageStatistics"),))
    assert names.written(Aspect("DATASET", "datasetusagestatistics")) == names.known[0]
    assert names.is_known(Aspect("Dataset", "DATASETUSAGESTATISTICS"))


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"endTimeMillis": None}, "endTimeMillis"),
        ({"endTimeMillis": -1}, "endTimeMillis"),
        ({"endTimeMillis": NOW + 1}, "endTimeMillis"),
        ({"endTimeMillis": "1"}, "endTimeMillis"),
        ({"endTimeMillis": 1.5}, "endTimeMillis"),
        ({"endTimeMillis": True}, "endTimeMillis"),
        ({"batchSize": 0}, "batchSize"),
        ({"batchSize": -1}, "batchSize"),
        ({"batchSize": 10_001}, "batchSize"),
        ({"batchSize": "5"}, "batchSize"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 604_801}, "timeoutSeconds"),
        ({"dryRun": "false"}, "dryRun"),
        ({"dryRun": 0}, "dryRun"),
        ({"forceReindex": 1}, "forceReindex"),
        ({"forceReindex": True, "forceDeleteByQuery": True}, "forceReindex"),
        ({"dryrun": False}, "dryrun"),
    ],
)
def test_invalid_truncation_field_is_rejected(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(Fault) as refused:
        parse_truncation(ASKED | changed, NOW)
    assert refused.value.kind.code == 400
    assert refused.value.details == {"field": field}


@pytest.mark.parametrize(
    ("batch", "timeout", "until"), [(1, 1, 0), (10_000, 604_800, NOW)], ids=["smallest", "largest"]
)
def test_smallest_and_largest_values_are_accepted(batch: int, timeout: int, until: int) -> None:
    asked = ASKED | {"batchSize": batch, "timeoutSeconds": timeout, "endTimeMillis": until}
    found = parse_truncation(asked, NOW)
    assert (found.batch_size, found.timeout_seconds, found.until) == (batch, timeout, until)


@pytest.mark.parametrize("spans", [1, 200])
def test_one_to_two_hundred_spans_are_accepted(spans: int) -> None:
    assert check_spans(spans) == spans


def test_row_with_times_in_two_spans_leaves_no_negative_number_without_time() -> None:
    assert Histogram(1, counts=(1, 1)).timeless == 0


def test_dry_run_is_the_default() -> None:
    assert parse_truncation(ASKED, NOW).dry_run
    assert parse_truncation(ASKED | {"dryRun": None}, NOW).dry_run
    assert not parse_truncation(ASKED | {"dryRun": False}, NOW).dry_run


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_deleting_more_than_half_the_rows_reindexes(rows: int, old: int) -> None:
    old = min(old, rows)
    plan = parse_truncation(ASKED, NOW).plan(Aspect("a", "b"), "a_baspect_v1", RowCount(rows, old, 0), can_copy=True)
    assert (plan.strategy is Strategy.REINDEX) == (old * 2 > rows)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_summary_starts_with_both_counts(rows: int, old: int) -> None:
    old = min(old, rows)
    summary = (
        parse_truncation(ASKED, NOW)
        .plan(Aspect("a", "b"), "a_baspect_v1", RowCount(rows, old, 0), can_copy=True)
        .summary()
    )
    assert [int(number) for number in re.findall(r"\d+", summary)[:2]] == [old, rows]
    assert "This was a dry run" in summary


@pytest.mark.parametrize(
    ("rows", "old", "told"),
    [
        (0, 0, "Delete 0 out of 0 rows (0.00%). Issuing a delete by query request. "),
        (4, 2, "Delete 2 out of 4 rows (50.00%). Issuing a delete by query request. "),
        (3, 2, "Delete 2 out of 3 rows (66.67%). Reindexing the aspect without the deleted records. "),
    ],
)
def test_summary_text_matches_the_contract(rows: int, old: int, told: str) -> None:
    summary = (
        parse_truncation(ASKED, NOW)
        .plan(Aspect("a", "b"), "a_baspect_v1", RowCount(rows, old, 0), can_copy=True)
        .summary()
    )
    assert summary == told + "This was a dry run. Run with dryRun = false to execute."


@pytest.mark.parametrize("force", [{}, {"forceReindex": True}, {"forceDeleteByQuery": True}], ids=str)
def test_engine_without_reindex_deletes_and_says_so(force: dict[str, bool]) -> None:
    plan = parse_truncation(ASKED | force, NOW).plan(Aspect("a", "b"), "i", RowCount(10, 9, 0), can_copy=False)
    assert plan.strategy is Strategy.DELETE_BY_QUERY
    assert plan.reason == "the embedded index always deletes in batches"


@pytest.mark.parametrize(("force", "strategy"), [("DeleteByQuery", "DELETE_BY_QUERY"), ("Reindex", "REINDEX")])
def test_force_decides_the_strategy(force: str, strategy: str) -> None:
    truncation = parse_truncation(ASKED | {f"force{force}": True}, NOW)
    for old in (0, 10):
        assert truncation.plan(Aspect("a", "b"), "i", RowCount(10, old, 0), can_copy=True).strategy.value == strategy


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"keep_last": 3}, "keepLast is set, so rows are deleted"),
        ({"may_copy": False}, "the rule has a window and a copy cannot pause, so rows are deleted"),
    ],
    ids=str,
)
def test_rule_that_cannot_copy_deletes_and_says_so(changed: dict[str, Any], reason: str) -> None:
    truncation = replace(parse_truncation(ASKED, NOW), **changed)
    plan = truncation.plan(Aspect("a", "b"), "i", RowCount(10, 9, 0), can_copy=True)
    assert (plan.strategy, plan.reason) == (Strategy.DELETE_BY_QUERY, reason)
    assert plan.keep_last == changed.get("keep_last")
    assert Plan.unpacked(plan.packed()) == plan


def test_plan_stored_without_keep_last_can_be_read() -> None:
    plan = parse_truncation(ASKED, NOW).plan(Aspect("a", "b"), "i", RowCount(10, 4, 0), can_copy=True)
    stored = plan.packed()
    del stored["keep_last"]
    assert Plan.unpacked(stored) == plan


def test_callers_cannot_ask_for_keep_last() -> None:
    with pytest.raises(Fault) as refused:
        parse_truncation(ASKED | {"keepLast": 1}, NOW)
    assert refused.value.details == {"field": "keepLast"}


def test_finished_tasks_are_folded_into_their_sum() -> None:
    tasks = [
        EngineTask(TaskId("n", n), "delete", Counters(deleted=n, batches=1), completed=n < 4) for n in (1, 2, 3, 4)
    ]
    work = OperationProgress(tasks=tuple(tasks), after="urn:a")
    folded = OperationProgress.unpacked(replace(work, tasks=work.folded()).packed())
    assert folded.after == "urn:a"
    assert folded.tasks == (
        EngineTask(TaskId("n", 3), "delete", Counters(deleted=6, batches=3), completed=True),
        tasks[3],
    )
    assert folded.counters == work.counters
    assert OperationProgress(tasks=tuple(tasks[3:])).folded() == (tasks[3],)


def operation(state: State = State.RUNNING, *, finished_at: int | None = None, **work: Any) -> Operation:
    plan = parse_truncation(ASKED, NOW).plan(Aspect("a", "b"), "i", RowCount(10, 4, 0), can_copy=True)
    return Operation(
        1, plan, "urn:li:corpuser:ann", NOW, state, OperationProgress(**work), None, None, finished_at, None, None, 1
    )


@pytest.mark.parametrize(
    ("state", "done", "percent"),
    [("RUNNING", 0, 0.0), ("RUNNING", 1, 25.0), ("RUNNING", 4, 99.9), ("FAILED", 1, 25.0), ("DONE", 3, 100.0)],
)
def test_only_a_done_operation_is_at_a_hundred_percent(state: str, done: int, percent: float) -> None:
    assert operation(State(state), rows_done=done, rows_to_do=4).percent == percent
    assert operation(State(state)).percent == (100.0 if state == "DONE" else 0.0)


def test_rate_counts_rows_from_the_start_of_the_phase() -> None:
    running = operation(rows_done=10, rows_to_do=40, phase_at=NOW)
    assert running.rate(NOW + 2_000) == 5.0
    assert running.ends_at(NOW + 2_000) == NOW + 8_000
    done = operation(State.DONE, finished_at=NOW + 1_000, rows_done=10, rows_to_do=10, phase_at=NOW)
    assert (done.rate(NOW + 2_000), done.ends_at(NOW + 2_000)) == (10.0, None)


@pytest.mark.parametrize("work", [{"rows_done": 10}, {"rows_done": 10, "phase_at": NOW}, {"phase_at": NOW - 1_000}])
def test_rate_is_unknown_without_rows_and_time(work: dict[str, Any]) -> None:
    assert operation(**work).rate(NOW) is None
    assert operation(**work).ends_at(NOW) is None
