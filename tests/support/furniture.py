"""A console with something on every page: tokens in all their states, accounts, people, indices, operations."""

import random
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import quote

import apsw

from tests.support.console import Console, now
from tests.support.devices import start
from tests.support.series import DAY, lines
from tests.support.server import GENERATE, MANAGE_ALL
from tests.support.waiting import until
from watchword.journal.day_counts import KEPT_DAYS, DayCounter

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
    "who may": lambda _: f"/console/policies?may={MANAGE_ALL}",
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


def furnish(console: Console, *, jobs: int = 0) -> None:
    """`jobs`: so many more tokens of people, which expire within twelve weeks."""
    _tokens(console)
    _people(console)
    _indices(console)
    _services(console)
    _jobs(console, jobs)
    _past(console)


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
    named = "mutation ($input: SetActorInput!) { setActor(input: $input) }"
    for person, name in zip(people, ("Alice Adams", "Bob Brown", "Carol Clark", "Dan Davis"), strict=True):
        console.ask(named, {"input": {"urn": person, "displayName": name}})
        for kind in ("laptop", "notebook", "report"):
            console.token(person, name=f"{kind} of {name.split()[0]}")
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
        words = ("index", "load", f"{entity}.{aspect}", "-")
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


def _jobs(console: Console, number: int) -> None:
    chance = random.Random(8)
    for each in range(number):
        urn = f"urn:li:corpuser:{chance.choice(('alice', 'bob', 'carol'))}"
        days = round(chance.triangular(1, 84, 12))
        console.token(urn, name=f"job-{each:02}", duration=None, durationIso=f"P{days}D")
    with closing(apsw.Connection(str(console.server.data_dir / "watchword.db"))) as store:
        store.set_busy_timeout(10_000)
        store.execute("UPDATE tokens SET owner_urn = actor_urn WHERE name LIKE 'job-%'")


def _past(console: Console) -> None:
    """A month of uses and denials, written into the store: the service counts only what happens now."""
    chance = random.Random(9)
    today = now() // DAY
    with closing(apsw.Connection(str(console.server.data_dir / "watchword.db"))) as store, store:
        store.set_busy_timeout(10_000)
        sums = dict.fromkeys(range(today - KEPT_DAYS + 1, today + 1), 0)
        for token, name in store.execute("SELECT id, name FROM tokens WHERE revoked_at IS NULL").fetchall():
            rate = chance.choice((0, 3, 20, 90)) if name != "ci-deploy" else 60
            uses = {day: int(rate * chance.random() * (1 if day % 7 not in (2, 3) else 0.2)) for day in sums}
            for day, count in uses.items():
                sums[day] += count
            counted = [(token, day, count) for day, count in uses.items() if count]
            store.executemany("INSERT OR REPLACE INTO token_uses (token_id, day, uses) VALUES (?, ?, ?)", counted)
            if counted:
                at = min(now() - chance.randrange(1, 50) * 3_600_000, (counted[-1][1] + 1) * DAY)
                store.execute(
                    "UPDATE tokens SET created_at = created_at - ?, use_count = ?, last_used_at = ?, last_network = ? "
                    "WHERE id = ?",
                    (40 * DAY, sum(uses.values()), at, f"10.20.{chance.randrange(9)}.0/24", token),
                )
        for kind, most in ((DayCounter.DENIALS, 12), (DayCounter.FAILED_AUTHENTICATIONS, 5)):
            rejected = [(kind.value, day, chance.randrange(most)) for day in sums]
            store.executemany("INSERT OR REPLACE INTO day_counts (kind, day, number) VALUES (?, ?, ?)", rejected)
        totals = [(DayCounter.USES.value, day, count) for day, count in sums.items()]
        store.executemany("INSERT OR REPLACE INTO day_counts (kind, day, number) VALUES (?, ?, ?)", totals)
