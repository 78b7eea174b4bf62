"""DataHub's REST addresses: actors, task status, index sizes and the search of audit events."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.series import fill, new_aspect, now
from tests.support.server import ADMIN, Server

AUDIT = "/openapi/v1/events/audit/search"
STATUS = "/openapi/operations/elasticSearch/getTaskStatus"
SIZES = "/openapi/operations/elasticSearch/getIndexSizes"


@pytest.fixture(scope="module")
def admin(server: Server) -> str:
    made: str = server.create(ADMIN, name="datahub")["accessToken"]
    return made


@pytest.fixture
def token(server: Server, actor: str) -> str:
    """A token of an actor without privileges."""
    made: str = server.create(ADMIN, of=actor)["accessToken"]
    return made


def ask(server: Server, path: str, token: str, body: Any = None, **query: Any) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {token}"}
    return server.http.request("GET" if body is None else "POST", path, params=query, json=body, headers=bearer)


def aspect(server: Server, token: str, urn: str, name: str = "corpUserKey", version: int = 0) -> httpx.Response:
    return ask(server, f"/aspects/{quote(urn, safe='')}", token, aspect=name, version=version)


class TestActors:
    def test_actor_is_shown_to_itself_and_to_who_may_see_actors(
        self, server: Server, actor: str, token: str, admin: str
    ) -> None:
        key = {"com.linkedin.metadata.key.CorpUserKey": {"username": actor.rpartition(":")[2]}}
        for bearer in (token, admin):
            assert aspect(server, bearer, actor).json() == {"version": 0, "aspect": key}
        assert aspect(server, token, ADMIN).status_code == 404
        for privilege in ("MANAGE_ACCESS_TOKENS", "MANAGE_POLICIES"):
            policy = server.grant(actor, privileges=(privilege,))
            assert aspect(server, token, ADMIN).status_code == 200
            server.withdraw(policy)

    def test_status_of_an_actor_is_its_status_here(self, server: Server, actor: str, token: str, admin: str) -> None:
        name = "com.linkedin.identity.CorpUserStatus"
        never = aspect(server, token, actor, "corpUserStatus").json()["aspect"][name]
        assert (never["status"], never["lastModified"]["time"]) == ("ACTIVE", 0)
        server.set_status(actor, "SUSPENDED")
        changed = aspect(server, admin, actor, "corpUserStatus").json()["aspect"][name]
        assert (changed["status"], changed["lastModified"]["actor"]) == ("SUSPENDED", ADMIN)
        assert aspect(server, token, actor).status_code == 401

    def test_entity_has_the_aspects_asked_for(self, server: Server, actor: str, token: str) -> None:
        whole = ask(server, f"/entitiesV2/{actor}", token).json()
        assert (whole["urn"], set(whole["aspects"])) == (actor, {"corpUserKey", "corpUserStatus"})
        part = ask(server, f"/entitiesV2/{actor}", token, aspects="List(corpUserKey,corpUserInfo)").json()
        assert part["aspects"]["corpUserKey"]["value"] == {"username": actor.rpartition(":")[2]}
        assert set(part["aspects"]) == {"corpUserKey"}

    @pytest.mark.parametrize(
        ("urn", "name", "version"),
        [
            ("urn:li:corpuser:nobody-at-all", "corpUserKey", 0),
            (ADMIN, "corpUserInfo", 0),
            (ADMIN, "", 0),
            (ADMIN, "corpUserKey", 1),
            ("urn:li:corpuser:__system", "corpUserKey", 0),
            ("urn:li:dataset:(x,y,PROD)", "datasetKey", 0),
            ("urn:li:servicePolicy:root", "corpUserKey", 0),
            ("not a urn\x00\N{SNOWMAN}", "corpUserStatus", 0),
        ],
    )
    def test_everything_else_is_missing(self, server: Server, admin: str, urn: str, name: str, version: int) -> None:
        answer = aspect(server, admin, urn, name, version)
        assert (answer.status_code, answer.json()["status"]) == (404, 404)
        assert answer.json()["message"] == answer.json()["error"]["message"]

    def test_ingestion_is_missing(self, server: Server, admin: str) -> None:
        for path in ("/aspects?action=ingestProposal", "/entities?action=search", f"/entitiesV2/{ADMIN}"):
            assert ask(server, path, admin, body={}).status_code == 404


class TestOperations:
    def test_task_status_and_sizes_equal_those_of_the_operations_address(self, server: Server, admin: str) -> None:
        aspect = new_aspect()
        index = fill(server, aspect, old=2, young=3)
        wanted = {"entityType": "dataset", "aspect": aspect, "endTimeMillis": now() - 1000, "dryRun": False}
        task = server.operate("truncateTimeseriesAspect", wanted, token=admin).json()["value"]
        status = ask(server, STATUS, admin, task=task).json()
        assert status["taskId"] == task
        assert {"completed", "runTimeNanos", "status"} <= set(status)
        (size,) = [one for one in ask(server, SIZES, admin).json()["sizes"] if one["indexName"] == index]
        (same,) = [
            one
            for one in server.operate("getIndexSizes", token=admin).json()["value"]["indexSizes"]
            if one["indexName"] == index
        ]
        assert {"aspectName", "entityName", "sizeMb"} <= set(size)
        assert set(size) == set(same) | {"sizeMb"}

    def test_unknown_task_cannot_be_read(self, server: Server, admin: str) -> None:
        answer = ask(server, STATUS, admin, task="nowhere:5")
        assert (answer.status_code, answer.json()) == (200, {"value": "Could not get task status for nowhere:5"})

    @pytest.mark.parametrize("query", [{}, {"task": "x"}, {"task": ["a:1", "a:2"]}])
    def test_task_must_be_named_once(self, server: Server, admin: str, query: dict[str, Any]) -> None:
        answer = ask(server, STATUS, admin, **query)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BAD_REQUEST")

    def test_sizes_need_the_privilege(self, server: Server, actor: str, token: str) -> None:
        answer = ask(server, SIZES, token)
        assert (answer.status_code, answer.json()["error"]["privilege"]) == (
            403,
            "GET_TIMESERIES_INDEX_SIZES_PRIVILEGE",
        )
        denied = "query ($who: [String!]) { listEvents(input: {actorUrns: $who}) { events { action target } } }"
        (event,) = server.ask(denied, {"who": [actor]}, actor=ADMIN)["listEvents"]["events"]
        assert event == {"action": "access.denied", "target": "getIndexSizes"}
        server.grant(actor, privileges=("GET_TIMESERIES_INDEX_SIZES_PRIVILEGE",))
        assert ask(server, SIZES, token).status_code == 200


class TestAuditSearch:
    def test_search_needs_the_privilege_before_its_input_is_read(self, server: Server, token: str) -> None:
        answer = ask(server, AUDIT, token, body={"eventTypes": "wrong"}, size="wrong")
        assert (answer.status_code, answer.json()["error"]["privilege"]) == (403, "VIEW_AUDIT_LOG")

    def test_created_and_revoked_token_is_found(self, server: Server, actor: str, admin: str) -> None:
        server.grant(actor)
        made = server.create(actor)["metadata"]["id"]
        server.revoke(made, actor=actor)
        wanted = {
            "eventTypes": ["CreateAccessTokenEvent", "RevokeAccessTokenEvent"],
            "actorUrns": [actor],
            "aspectTypes": [],
        }
        found = ask(server, AUDIT, admin, body=wanted, size=2).json()
        assert (found["count"], found["total"], found["nextScrollId"]) == (2, 2, None)
        assert [event["eventType"] for event in found["usageEvents"]] == wanted["eventTypes"][::-1]
        for event in found["usageEvents"]:
            assert (event["actorUrn"], event["sourceIP"]) == (actor, "127.0.0.1")
            assert event["entityUrn"] == f"urn:li:dataHubAccessToken:{made}"
            assert (event["entityType"], event["aspectName"]) == ("dataHubAccessToken", "dataHubAccessTokenInfo")
            assert abs(event["timestamp"] - now()) < 60_000
            assert event["rawUsageEvent"]["target"] == made
        bare = ask(server, AUDIT, admin, body=wanted, includeRaw="false").json()
        assert "rawUsageEvent" not in bare["usageEvents"][0]

    def test_filters_are_combined_and_pages_follow_each_other(self, server: Server, actor: str, admin: str) -> None:
        server.grant(actor, privileges=("MANAGE_POLICIES", "GENERATE_PERSONAL_ACCESS_TOKENS"))
        other = f"{actor}-other"
        for status in ("SUSPENDED", "ACTIVE", "SUSPENDED"):
            server.ask(
                "mutation ($urn: String!, $status: CorpUserStatus!) { updateUserStatus(urn: $urn, status: $status) }",
                {"urn": other, "status": status},
                actor=actor,
            )
        server.create(actor)
        about = {"actorUrns": [actor], "entityTypes": ["corpuser"]}
        whole = ask(server, AUDIT, admin, body=about).json()
        assert {(one["eventType"], one["entityUrn"]) for one in whole["usageEvents"]} == {("UpdateUserEvent", other)}
        paged, scroll = [], ""
        for _ in range(3):
            page = ask(server, AUDIT, admin, body=about, size=1, scrollId=scroll).json()
            assert page["total"] == whole["total"] == 3
            paged += page["usageEvents"]
            scroll = page["nextScrollId"] or ""
        assert (paged, scroll) == (whole["usageEvents"], "")
        first = whole["usageEvents"][-1]["timestamp"]
        none = ask(server, AUDIT, admin, body=about, endTime=first - 1).json()
        assert (none["count"], none["total"], none["usageEvents"]) == (0, 0, [])
        assert ask(server, AUDIT, admin, body=about, startTime=first, endTime=-1).json()["total"] == 3
        for nothing in ({"entityTypes": ["dataset"]}, {"eventTypes": ["CreateIngestionSourceEvent"]}):
            assert ask(server, AUDIT, admin, body=nothing).json()["total"] == 0

    @pytest.mark.parametrize(
        ("query", "body", "field"),
        [
            ({"size": 0}, {}, "size"),
            ({"size": 1001}, {}, "size"),
            ({"size": "1e3"}, {}, "size"),
            ({"startTime": "9" * 30}, {}, "startTime"),
            ({"endTime": -2}, {}, "endTime"),
            ({"scrollId": "x"}, {}, "scrollId"),
            ({}, {"eventTypes": ["Nothing"]}, "eventTypes"),
            ({}, {"actorUrns": "urn:li:corpuser:a"}, "actorUrns"),
            ({}, {"entityTypes": [1]}, "entityTypes"),
            ({}, {"aspectTypes": ["\x00"]}, "aspectTypes"),
        ],
    )
    def test_bad_input_is_rejected_by_name(
        self, server: Server, admin: str, query: dict[str, Any], body: dict[str, Any], field: str
    ) -> None:
        answer = ask(server, AUDIT, admin, body=body, **query)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)
