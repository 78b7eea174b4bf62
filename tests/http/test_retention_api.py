"""Retention rules and holds over GraphQL: who may do what, and what is rejected."""

from typing import Any

import pytest

from tests.support.server import ADMIN, GraphQLRefused, Server

TRUNCATE, RELEASE_HOLDS = "TRUNCATE_TIMESERIES_INDEX_PRIVILEGE", "RELEASE_RETENTION_HOLDS"
RULE = """series keep removeAfter maxSize maxRows keepLast schedule timeZone window atMost mode holdReason set changedBy
  hold { series reason setBy byRule }"""
SET = f"mutation ($input: RetentionRuleInput!) {{ setRetentionRule(input: $input) {{ {RULE} }} }}"
GET = f"query ($series: String!) {{ retentionRule(series: $series) {{ {RULE} }} }}"
LIST = "{ retentionRules { series } }"
DELETE = "mutation ($series: String!) { deleteRetentionRule(series: $series) }"
HOLD = "mutation ($input: HoldSeriesInput!) { holdSeries(input: $input) { hold { setBy } activeOperations { id } } }"
HOLDS = "{ retentionHolds { series reason setBy } }"
RELEASE = "mutation ($series: String!) { releaseSeries(series: $series) }"
APPLY = """mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) {
  unchanged undeclaredRetention retention { change series before after } } }"""
EVENTS = "query ($target: String!) { listEvents(input: {targets: [$target]}) { events { action actorUrn } } }"
GIVEN = {
    "keep": "P30D", "removeAfter": "P60D", "maxSize": "20GB", "maxRows": 1_000_000, "keepLast": 1,
    "schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "window": "22:00-06:00", "atMost": "12.5%",
    "mode": "ENFORCE",
}  # fmt: skip


def refused(server: Server, query: str, variables: dict[str, Any], actor: str = ADMIN) -> GraphQLRefused:
    with pytest.raises(GraphQLRefused) as caught:
        server.ask(query, variables, actor=actor)
    return caught.value


def test_rule_is_set_read_replaced_and_deleted(server: Server) -> None:
    wanted = {"series": "chart.setReadDeleted", **GIVEN}
    made = server.ask(SET, {"input": wanted}, actor=ADMIN)["setRetentionRule"]
    assert made == wanted | {"set": None, "changedBy": ADMIN, "holdReason": None, "hold": None}
    assert server.ask(GET, {"series": "CHART.setreaddeleted"}, actor=ADMIN)["retentionRule"] == made
    plain = {"series": "Chart.SetReadDeleted", "keep": "PT36H"}
    changed = server.ask(SET, {"input": plain}, actor=ADMIN)["setRetentionRule"]
    assert (changed["keep"], changed["maxSize"], changed["mode"]) == ("P1DT12H", None, "REPORT")
    assert (changed["atMost"], changed["schedule"], changed["timeZone"]) == ("50%", "0 1 * * *", "UTC")
    assert server.ask(DELETE, {"series": "chart.setReadDeleted"}, actor=ADMIN)["deleteRetentionRule"]
    assert refused(server, DELETE, {"series": "chart.setReadDeleted"}).reason == "rule_not_found"
    events = server.ask(EVENTS, {"target": "chart.setreaddeleted"}, actor=ADMIN)["listEvents"]["events"]
    assert [event["action"] for event in events] == ["retention.rule_deleted"] + ["retention.rule_set"] * 2


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("series", "dataset", "entity.aspect"),
        ("series", "dataset.*", "entity.aspect"),
        ("keep", "30d", "ISO 8601"),
        ("removeAfter", "P1D", "at least keep"),
        ("maxSize", "20 gigs", "kB, MB, GB, TB"),
        ("maxSize", "99999999999TB", "from 1kB to 999999TB"),
        ("maxRows", 0, "from 1 to"),
        ("keepLast", 101, "from 1 to 100"),
        ("schedule", "every night", "five fields of cron"),
        ("schedule", "0 0 30 2 *", "Bad day-of-month"),
        ("schedule", "* * * * *", "at least an hour between runs"),
        ("schedule", "0,59 0 1 1 *", "at least an hour between runs"),
        ("timeZone", "localtime", "time zone such as UTC"),
        ("timeZone", "../../etc/passwd", "Europe/Berlin"),
        ("window", "22:00-22:00", "22:00-06:00"),
        ("atMost", "101%", "0% to 100%"),
        ("hold", " ", "printable text"),
    ],
)
def test_invalid_rule_is_rejected_with_its_field(server: Server, field: str, value: object, allowed: str) -> None:
    error = refused(server, SET, {"input": {"series": "chart.invalid", **GIVEN, field: value}})
    assert (error.code, error.errors[0]["extensions"]["field"]) == (400, field)
    assert allowed in error.errors[0]["message"]


@pytest.mark.parametrize(
    ("query", "variables"),
    [
        (SET, {"input": {"series": "nonsense", "keep": "nonsense"}}),
        (GET, {"series": "nonsense"}),
        (LIST, {}),
        (DELETE, {"series": "nonsense"}),
        (HOLD, {"input": {"series": "nonsense", "reason": ""}}),
        (HOLDS, {}),
        (RELEASE, {"series": "nonsense"}),
    ],
    ids=["set", "get", "list", "delete", "hold", "holds", "release"],
)
def test_denial_names_the_privilege_before_parsing(
    server: Server, actor: str, query: str, variables: dict[str, Any]
) -> None:
    error = refused(server, query, variables, actor)
    assert (error.code, error.errors[0]["extensions"]["privilege"]) == (403, TRUNCATE)


def test_only_the_setter_and_holders_of_the_privilege_release_a_hold(server: Server, actor: str) -> None:
    other = f"{actor}-2"
    server.grant(actor, other, privileges=(TRUNCATE,))
    series = "chart.heldByAnother"
    server.ask(HOLD, {"input": {"series": series, "reason": "tax audit"}}, actor=actor)
    error = refused(server, RELEASE, {"series": series}, other)
    assert (error.code, error.errors[0]["extensions"]["privilege"]) == (403, RELEASE_HOLDS)
    taken = refused(server, HOLD, {"input": {"series": series, "reason": "mine"}}, other)
    assert (taken.code, taken.reason) == (409, "series_held")
    server.grant(other, privileges=(RELEASE_HOLDS,))
    assert server.ask(RELEASE, {"series": series}, actor=other)["releaseSeries"]
    assert refused(server, RELEASE, {"series": series}, other).reason == "hold_not_found"


def test_applying_rules_with_policies_needs_the_privilege_for_both(server: Server, actor: str) -> None:
    server.grant(actor, privileges=("MANAGE_POLICIES",))
    rule = {"series": "chart.declared", "keep": "P7D", "hold": "tax audit"}
    wanted = {"set": "retention-api", "retention": [rule]}
    error = refused(server, APPLY, {"input": wanted}, actor)
    assert (error.code, error.errors[0]["extensions"]["privilege"]) == (403, TRUNCATE)
    applied = server.ask(APPLY, {"input": wanted}, actor=ADMIN)["applyPolicies"]
    (change,) = applied["retention"]
    assert (change["change"], change["series"], change["before"]) == ("CREATE", "chart.declared", None)
    assert change["after"]["set"] == "retention-api"
    shown = server.ask(GET, {"series": "chart.declared"}, actor=ADMIN)["retentionRule"]
    assert shown["holdReason"] == "tax audit"
    assert shown["hold"] == {"series": "chart.declared", "reason": "tax audit", "setBy": ADMIN, "byRule": True}
    assert refused(server, RELEASE, {"series": "chart.declared"}).reason == "hold_declared"
    assert server.ask(APPLY, {"input": wanted}, actor=actor)["applyPolicies"]["unchanged"] == 1
    left = server.ask(APPLY, {"input": {"set": "retention-api"}}, actor=actor)["applyPolicies"]
    assert left["undeclaredRetention"] == ["chart.declared"]
    error = refused(server, APPLY, {"input": {"set": "retention-api", "retention": [rule, rule]}})
    assert error.errors[0]["extensions"]["field"] == "retention[1].series"
    pruned = server.ask(APPLY, {"input": {"set": "retention-api", "prune": True}}, actor=ADMIN)["applyPolicies"]
    assert [one["change"] for one in pruned["retention"]] == ["DELETE"]
