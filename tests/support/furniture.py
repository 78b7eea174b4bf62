"""A console with something on every page: tokens in all their states, accounts, people, indices, operations."""

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from tests.support.console import Console, now
from tests.support.devices import start
from tests.support.series import DAY, lines
from tests.support.server import GENERATE, MANAGE_ALL
from tests.support.waiting import until

View = Callable[[Console], str]


def _token_address(console: Console) -> str:
    found = console.ask(
        'query ($urn: String!) { listAccessTokens(input: {filters: [{field: "actorUrn", value: $urn}, '
        '{field: "name", value: "ci-deploy"}]}) { tokens { id } } }',
        {"urn": console.root.urn},
    )
    token: str = found["listAccessTokens"]["tokens"][0]["id"]
    return "/console/tokens/" + token.replace("+", "-").replace("/", "_").rstrip("=")


def _operation_address(console: Console) -> str:
    (newest,) = console.ask("{ operations(input: {count: 1}) { operations { id } } }")["operations"]["operations"]
    return f"/console/operations/{quote(newest['id'], safe='')}"


VIEWS: dict[str, View] = {
    "overview": lambda _: "/",
    "my tokens": lambda _: "/console/tokens",
    "a token": _token_address,
    "a new token": lambda _: "/console/tokens/new",
    "all tokens": lambda _: "/console/all-tokens",
    "accounts": lambda _: "/console/accounts",
    "policies": lambda _: "/console/policies",
    "actors": lambda _: "/console/actors",
    "offboarding": lambda _: "/console/actors/urn:li:corpuser:alice/offboard?step=tokens",
    "operations": lambda _: "/console/operations",
    "a plan": lambda _: "/console/operations/plan?index=dataset.operation&older=60d",
    "an operation": _operation_address,
    "retention": lambda _: "/console/retention",
    "a series": lambda _: "/console/retention/dataset.operation",
    "a retention rule": lambda _: "/console/retention/dataset.operation?form=rule",
    "webhooks": lambda _: "/console/webhooks",
    "a webhook": lambda _: "/console/webhooks/chat",
    "a new webhook": lambda _: "/console/webhooks?form=new",
    "import": lambda _: "/console/import",
    "activity": lambda _: "/console/activity",
    "sessions": lambda _: "/console/sessions",
    "a terminal": lambda console: f"/device?user_code={start(console.server, host='ann@laptop')['user_code']}",
}

NAMES = (
    ("ci-deploy", "ONE_MONTH", "Deploys from the build server"),
    ("laptop", "THREE_MONTHS", None),
    ("nightly-report", "ONE_WEEK", "Reads usage for the report of each morning"),
    ("grafana", "SIX_MONTHS", None),
    ("old-job", "ONE_DAY", None),
    ("to-be-revoked", "ONE_MONTH", None),
)
SERIES = (
    ("dataset", "operation", 1_500),
    ("dataset", "datasetUsageStatistics", 600),
    ("chart", "chartUsageStatistics", 240),
)
TRUNCATE = """mutation ($input: TruncateTimeseriesAspectInput!) {
  truncateTimeseriesAspect(input: $input) { operation { id state } } }"""


def furnish(console: Console) -> None:
    _tokens(console)
    _people(console)
    _indices(console)
    _services(console)


def _tokens(console: Console) -> None:
    root = console.root
    made = {}
    for name, duration, description in NAMES:
        scopes: dict[str, Any] = {"scopes": [GENERATE]} if name == "nightly-report" else {}
        made[name] = console.token(root.urn, name=name, duration=duration, description=description, **scopes)
    for _ in range(3):
        console.server.verify(made["ci-deploy"][0])
    derive = "mutation ($input: DeriveAccessTokenInput!) { deriveAccessToken(input: $input) { metadata { id } } }"
    for name in ("ci-deploy-staging", "ci-deploy-production"):
        console.server.ask(derive, {"input": {"name": name, "scopes": [GENERATE]}}, token=made["ci-deploy"][0])
    console.ask("mutation ($id: String!) { revokeAccessToken(tokenId: $id) }", {"id": made["to-be-revoked"][1]})


def _people(console: Console) -> None:
    group = console.ask('mutation { createGroup(input: {id: "engineering", name: "Engineering"}) }')["createGroup"]
    people = [f"urn:li:corpuser:{name}" for name in ("alice", "bob", "carol", "dan")]
    members = {"groupUrn": group, "userUrns": people[:3]}
    console.ask("mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }", {"input": members})
    console.allow(people[0], GENERATE, name="Engineers make tokens")
    console.allow(people[1], MANAGE_ALL, name="Security ends tokens")
    for person in people:
        for number in range(3):
            console.token(person, name=f"{person.rpartition(':')[2]}-{number}")
    console.server.ask(
        "mutation ($urn: String!) { updateUserStatus(urn: $urn, status: SUSPENDED) }",
        {"urn": people[3]},
        token=console.root.token,
    )
    account = "mutation ($input: CreateServiceAccountInput!) { createServiceAccount(input: $input) { urn } }"
    for name in ("Billing export", "Search indexer"):
        made = console.ask(account, {"input": {"displayName": name, "description": f"{name}, every night"}})
        urn = made["createServiceAccount"]["urn"]
        console.token(urn, type="SERVICE_ACCOUNT", name="nightly")


def _indices(console: Console) -> None:
    chance = random.Random(7)  # the same picture each time
    for entity, aspect, count in SERIES:
        rows = lines(chance.betavariate(1.2, 2.5) * 200 for _ in range(count))
        words = ("index", "load", "-", "--entity", entity, "--aspect", aspect)
        ran = console.server.command_line(*words, stdin=rows)
        assert ran.returncode == 0, ran.stderr
    entity, aspect, _ = SERIES[-1]
    wanted = {"entityType": entity, "aspect": aspect, "endTimeMillis": now() - 60 * DAY, "dryRun": False}
    console.ask(TRUNCATE, {"input": wanted})
    newest = "{ operations(input: {count: 1}) { operations { state } } }"
    until(lambda: console.ask(newest)["operations"]["operations"][0]["state"] == "DONE", "the truncation is done")


def _services(console: Console) -> None:
    rule = {"series": "dataset.operation", "keep": "P90D"}
    console.ask(
        "mutation ($input: RetentionRuleInput!) { setRetentionRule(input: $input) { series } }", {"input": rule}
    )
    console.ask('mutation { runRetention(series: "dataset.operation") { number } }')
    # No such event happens, so nothing is sent there.
    hook = {"id": "chat", "name": "Chat", "url": "https://8.8.8.8/hooks/tokens", "actions": ["webhook.stopped"]}
    console.ask("mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { secret } }", {"input": hook})
