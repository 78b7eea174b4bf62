"""Requests that the operations endpoint rejects, on every engine; none of them deletes anything."""

import json
import time
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.indexed import DAY, EmbeddedIndex, Series, times
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.waiting import until

STATUS = "GET_ES_TASK_STATUS_PRIVILEGE"
SIZES = "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE"
TRUNCATE = "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE"
SYSTEM = "MANAGE_SYSTEM_OPERATIONS"
ACTIONS = {"getEsTaskStatus": STATUS, "getIndexSizes": SIZES, "truncateTimeseriesAspect": TRUNCATE}
TASK_STATUS = "query ($task: String!) { taskStatus(task: $task) { taskId completed } }"
OPERATIONS = "{ operations { total operations { id state } } }"
INDEX_SIZES = "{ indexSizes { indexName rows } }"
PLAN = """mutation ($input: TruncateTimeseriesAspectInput!) {
  truncateTimeseriesAspect(input: $input) { plan {
    summary rows rowsToDelete strategy reason } operation { id state } } }"""
CANCEL = "mutation ($id: String!) { cancelOperation(id: $id) { state } }"

FIELDS = st.sampled_from(["entityType", "aspect", "endTimeMillis", "task", "nodeId", "taskId", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)


@pytest.fixture(scope="module")
def admin(server: Server) -> str:
    made: str = server.create(ADMIN)["accessToken"]
    return made


@pytest.fixture
def series(server: Server, admin: str) -> Series:
    made = Series(server, EmbeddedIndex(), admin)
    made.load(times(10, now()))
    return made


def now() -> int:
    return time.time_ns() // 1_000_000


def refusal(answer: httpx.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["reason"], error.get("field")


class TestAuthorization:
    @pytest.mark.parametrize("action", ACTIONS)
    def test_request_without_a_token_is_rejected(self, server: Server, action: str) -> None:
        answer = server.operate(action, "not an object", token=None, X_Service_Actor=ADMIN)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("action", ["getIndexSizes", "truncateTimeseriesAspect"])
    def test_denial_names_the_privilege_before_parsing(self, server: Server, actor: str, action: str) -> None:
        token = server.create(ADMIN, of=actor)["accessToken"]
        for body in ("nonsense", {"entityType": "*"}, {"entityType": "dataset", "aspect": "operation"}):
            answer = server.operate(action, body, token=token)
            assert refusal(answer)[:2] == (403, "missing_privilege")
            assert answer.json()["error"]["privilege"] == ACTIONS[action]

    def test_default_policy_lets_everyone_read_task_status(self, server: Server, actor: str) -> None:
        token = server.create(ADMIN, of=actor)["accessToken"]
        answer = server.operate("getEsTaskStatus", {"task": "n:1"}, token=token)
        assert answer.json() == {"value": "Could not get task status for n:1"}

    @pytest.mark.parametrize("privilege", [SIZES, SYSTEM])
    def test_privilege_or_manage_system_operations_allows_the_action(
        self, server: Server, actor: str, privilege: str
    ) -> None:
        server.grant(actor, privileges=(privilege,))
        token = server.create(ADMIN, of=actor)["accessToken"]
        assert server.operate("getIndexSizes", token=token).status_code == 200
        truncation = server.operate("truncateTimeseriesAspect", {}, token=token)
        assert refusal(truncation)[0] == (400 if privilege == SYSTEM else 403)

    def test_denial_writes_an_event(self, server: Server, actor: str) -> None:
        token = server.create(ADMIN, of=actor)["accessToken"]
        server.operate("truncateTimeseriesAspect", {}, token=token)
        query = "query ($a: [String!]) { listEvents(input: {actorUrns: $a}) { events { action target detail } } }"

        def told() -> bool:
            events = server.ask(query, {"a": [actor]}, actor=ADMIN)["listEvents"]["events"]
            return {
                "action": "access.denied",
                "target": "truncateTimeseriesAspect",
                "detail": {"privilege": TRUNCATE},
            } in events

        until(told, "the denial is an event")

    @pytest.mark.parametrize(
        ("query", "variables", "privilege"),
        [
            (OPERATIONS, {}, TRUNCATE),
            (INDEX_SIZES, {}, SIZES),
            (PLAN, {"input": {"entityType": "*", "aspect": "", "endTimeMillis": -1}}, TRUNCATE),
            (CANCEL, {"id": "nonsense"}, TRUNCATE),
        ],
        ids=["operations", "sizes", "truncate", "cancel"],
    )
    def test_graphql_denies_before_it_parses(
        self, server: Server, actor: str, query: str, variables: dict[str, Any], privilege: str
    ) -> None:
        with pytest.raises(GraphQLRefused) as refused:
            server.ask(query, variables, actor=actor)
        assert refused.value.errors[0]["extensions"]["privilege"] == privilege


class TestBadInput:
    @pytest.mark.parametrize("action", ["", "nope", "geteStaskstatus", "getEsTaskStatus&action=getIndexSizes"])
    def test_unknown_action_lists_the_known_ones(self, server: Server, admin: str, action: str) -> None:
        answer = server.operate(action, {}, token=admin)
        assert refusal(answer)[:2] == (400, "unknown_action")
        assert all(name in answer.json()["error"]["message"] for name in ACTIONS)

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "task"),
            ({"task": ""}, "task"),
            ({"task": "nocolon"}, "task"),
            ({"task": "a:b:1"}, "task"),
            ({"task": "a:b"}, "task"),
            ({"task": "a:-1"}, "task"),
            ({"task": "a:" + "9" * 40}, "task"),
            ({"task": ["a:1"]}, "task"),
            ({"task": "../_all:1"}, "task"),
            ({"nodeId": "a"}, "taskId"),
            ({"taskId": 1}, "nodeId"),
            ({"nodeId": "a", "taskId": -1}, "taskId"),
            ({"nodeId": "a", "taskId": 1.5}, "taskId"),
            ({"nodeId": "a", "taskId": None}, "taskId"),
            ({"task": "a:1", "nodeId": "a", "taskId": 2}, "task"),
        ],
        ids=str,
    )
    def test_malformed_task_is_rejected_with_its_field(
        self, server: Server, admin: str, body: dict[str, Any], field: str
    ) -> None:
        assert refusal(server.operate("getEsTaskStatus", body, token=admin)) == (400, "invalid_field", field)

    @pytest.mark.parametrize(
        ("changed", "field"),
        [
            ({"entityType": "*"}, "entityType"),
            ({"entityType": "dataset,chart"}, "entityType"),
            ({"aspect": "_all"}, "aspect"),
            ({"aspect": "../x"}, "aspect"),
            ({"aspect": "a/b"}, "aspect"),
            ({"aspect": None}, "aspect"),
            ({"endTimeMillis": None}, "endTimeMillis"),
            ({"endTimeMillis": -1}, "endTimeMillis"),
            ({"endTimeMillis": 10**16}, "endTimeMillis"),
            ({"endTimeMillis": 10**40}, "endTimeMillis"),
            ({"batchSize": 0}, "batchSize"),
            ({"dryRun": "no"}, "dryRun"),
            ({"forceReindex": True, "forceDeleteByQuery": True}, "forceReindex"),
            ({"dryrun": False}, "dryrun"),
        ],
        ids=str,
    )
    def test_invalid_truncation_names_the_field_and_deletes_nothing(
        self, series: Series, changed: dict[str, Any], field: str
    ) -> None:
        before = series.rows()
        asked = series.asked(now() - 2 * DAY, dryRun=False) | changed
        # Integers beyond 64 bits are sent as they are.
        answer = series.server.http.post(
            "/operations?action=truncateTimeseriesAspect",
            content=json.dumps(asked),
            headers={"Authorization": f"Bearer {series.token}", "Content-Type": "application/json"},
        )
        assert refusal(answer) == (400, "invalid_field", field)
        assert series.rows() == before

    @pytest.mark.parametrize(
        ("content", "kind", "expected"),
        [
            (b"{", "application/json", (400, "invalid_json")),
            (b"[]", "application/json", (400, "invalid_json")),
            (b'"x"', "application/json", (400, "invalid_json")),
            (b"\xff\xfe", "application/json", (400, "invalid_json")),
            (b"{}", "text/plain", (415, "not_json")),
            (b"task=a:1", "application/x-www-form-urlencoded", (415, "not_json")),
            (b" " * (1024 * 1024 + 1), "application/json", (413, "body_too_large")),
        ],
        ids=["half", "list", "string", "no text", "plain", "form", "large"],
    )
    def test_non_object_body_is_rejected(
        self, server: Server, admin: str, content: bytes, kind: str, expected: tuple[int, str]
    ) -> None:
        for action in ACTIONS:
            answer = server.http.post(
                f"/operations?action={action}",
                content=content,
                headers={"Authorization": f"Bearer {admin}", "Content-Type": kind},
            )
            assert refusal(answer)[:2] == expected

    def test_other_methods_than_post_are_rejected(self, server: Server, admin: str) -> None:
        answer = server.http.get("/operations?action=getIndexSizes", headers={"Authorization": f"Bearer {admin}"})
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")

    @settings(max_examples=150)
    @given(st.dictionaries(FIELDS, VALUES), st.sampled_from(list(ACTIONS)))
    def test_no_body_causes_an_internal_error(
        self, server: Server, admin: str, body: dict[str, Any], action: str
    ) -> None:
        answer = server.http.post(
            f"/operations?action={action}",
            content=json.dumps(body),
            headers={"Authorization": f"Bearer {admin}", "Content-Type": "application/json"},
        )
        assert answer.status_code in (200, 400, 404)


class TestGraphQL:
    def test_plan_names_strategy_and_reason(self, series: Series) -> None:
        wanted = series.asked(now() - 2 * DAY)
        planned = series.server.ask(PLAN, {"input": wanted}, actor=ADMIN)["truncateTimeseriesAspect"]
        assert planned["operation"] is None
        assert planned["plan"]["summary"].startswith(f"Delete {planned['plan']['rowsToDelete']} out of 10 rows")
        strategy, reason = planned["plan"]["strategy"], planned["plan"]["reason"]
        if isinstance(series.index, EmbeddedIndex):
            assert (strategy, reason) == ("DELETE_BY_QUERY", "the embedded index always deletes in batches")
        else:
            assert strategy == "REINDEX"
            assert "more than half" in reason

    def test_started_operation_is_listed_with_its_status(self, series: Series) -> None:
        wanted = series.asked(now() - 2 * DAY, dryRun=False)
        begun = series.server.ask(PLAN, {"input": wanted}, actor=ADMIN)["truncateTimeseriesAspect"]["operation"]
        assert series.over(begun["id"])["state"] == "DONE"
        listed = series.server.ask(OPERATIONS, actor=ADMIN)["operations"]["operations"]
        assert {"id": begun["id"], "state": "DONE"} in listed
        status = series.server.ask(TASK_STATUS, {"task": begun["id"]}, actor=ADMIN)["taskStatus"]
        assert status == {"taskId": begun["id"], "completed": True}

    def test_unknown_task_is_null(self, server: Server) -> None:
        assert server.ask(TASK_STATUS, {"task": "nowhere:1"}, actor=ADMIN) == {"taskStatus": None}

    def test_unknown_operation_is_not_found(self, server: Server) -> None:
        for query in ("query ($id: String!) { operation(id: $id) { id } }", CANCEL):
            with pytest.raises(GraphQLRefused) as refused:
                server.ask(query, {"id": "nowhere:1"}, actor=ADMIN)
            assert (refused.value.code, refused.value.reason) == (404, "operation_not_found")

    def test_finished_operation_cannot_be_cancelled(self, series: Series) -> None:
        task = series.truncate(0)
        series.over(task)
        with pytest.raises(GraphQLRefused) as refused:
            series.server.ask(CANCEL, {"id": task}, actor=ADMIN)
        assert (refused.value.code, refused.value.reason) == (409, "too_late_to_cancel")

    def test_sizes_equal_those_of_the_operations_endpoint(self, series: Series) -> None:
        sizes = series.server.ask(INDEX_SIZES, actor=ADMIN)["indexSizes"]
        assert {"indexName": series.name, "rows": 10} in sizes
