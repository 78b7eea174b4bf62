"""Every API field has a command, and errors name the typed option."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from graphql import build_schema

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.cli.test_help import COMMANDS
from tests.support.server import ADMIN, Server
from watchword.app.graphql_schema import sdl

# The command for each API field. A new field needs one.
ASKED_BY = {
    "listAccessTokens": "token list",
    "getAccessToken": "token show",
    "getAccessTokenMetadata": "token scan",
    "createAccessToken": "token create",
    "deriveAccessToken": "token derive",
    "rotateAccessToken": "token rotate",
    "updateAccessToken": "token update",
    "revokeAccessToken": "token revoke",
    "revokeAccessTokens": "token revoke",
    "overview": "token overview",
    "getServiceAccount": "account show",
    "listServiceAccounts": "account list",
    "createServiceAccount": "account create",
    "deleteServiceAccount": "account delete",
    "me": "whoami",
    "getGrantedPrivileges": "whoami",
    "getPolicy": "policy show",
    "listPolicies": "policy list",
    "createPolicy": "policy create",
    "updatePolicy": "policy update",
    "listResources": "policy export",
    "deletePolicy": "policy delete",
    "applyPolicies": "policy apply",
    "getGroup": "group show",
    "listGroups": "group list",
    "listGroupMembers": "group show",
    "createGroup": "group create",
    "removeGroup": "group delete",
    "addGroupMembers": "group add",
    "removeGroupMembers": "group remove",
    "getActor": "actor show",
    "updateUserStatus": "actor suspend",
    "setActor": "actor update",
    "offboardActor": "actor offboard",
    "linkActor": "actor link",
    "listSessions": "session list",
    "endSession": "session end",
    "mailPreferences": "mail list",
    "setMailPreferences": "mail update",
    "listEvents": "event list",
    "importStatus": "token overview",
    "getWebhook": "webhook show",
    "listWebhooks": "webhook list",
    "createWebhook": "webhook create",
    "updateWebhook": "webhook update",
    "deleteWebhook": "webhook delete",
    "rotateWebhookSecret": "webhook rotate",
    "testWebhook": "webhook test",
    "listWebhookDeliveries": "webhook deliveries",
    "replayWebhook": "webhook replay",
    "operations": "operation list",
    "operation": "operation watch",
    "taskStatus": "operation status",
    "indexSizes": "index sizes",
    "truncateTimeseriesAspect": "index truncate",
    "cancelOperation": "operation cancel",
    "explainPrivilege": "policy explain",
    "listPrivileges": "policy privileges",
    "listPrivilegeHolders": "policy who-can",
    "listActors": "actor list",
    "listEventActions": "event actions",
    "retentionRules": "retention list",
    "retentionRule": "retention show",
    "retentionHolds": "retention holds",
    "setRetentionRule": "retention update",
    "deleteRetentionRule": "retention delete",
    "holdSeries": "retention hold",
    "releaseSeries": "retention release",
    "retentionPlan": "retention plan",
    "retentionRuns": "retention history",
    "seriesSizes": "retention sizes",
    "runRetention": "retention run",
    "approveRetentionRun": "retention run",
}
# For forms and charts only: the command line reports invalid lifetimes, `event list` has the events, `retention
# plan` the rows by time.
OF_FORMS = {"allowedDurations", "policyEffect", "eventCounts", "timeseriesHistogram"}
# For DataHub's clients. `actor list`, `actor show` and `group show` say the same and more.
OF_DATAHUB = {"corpUser", "corpGroup", "listUsers", "listRoles"}


def test_every_api_field_has_a_command() -> None:
    schema = build_schema(sdl())
    assert schema.query_type is not None
    assert schema.mutation_type is not None
    fields = {*schema.query_type.fields, *schema.mutation_type.fields}
    assert sorted(fields - ASKED_BY.keys() - OF_FORMS - OF_DATAHUB) == []
    assert sorted(ASKED_BY.keys() - fields) == []
    assert {f"watchword {words}" for words in ASKED_BY.values()} <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("token", "create", "--name", "x" * 300), "--name"),
        (("token", "create", "--name", "a", "--duration", "P1Y"), "--duration"),
        (("token", "create", "--name", "a", "--duration", "NO_EXPIRY"), "--duration"),
        (("token", "create", "--name", "a", "--network", "nope"), "--network"),
        (("token", "create", "--name", "a", "--scope", "a b"), "--scope"),
        (("token", "create", "--name", "a", "--actor", "x y"), "--actor"),
        (("token", "create", "--name", "a", "--actor", "urn:li:corpGroup:ops"), "--actor"),
        (("token", "show", "x"), "ID_OR_NAME"),
        (("token", "rotate", "kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=", "--overlap", "1s"), "--overlap"),
        (("account", "create", "--name", ""), "--name"),
        (("account", "show", "z z"), "ACCOUNT"),
        (("account", "list", "--search", "x" * 300), "--search"),
        (("group", "create", "a b", "--name", "x"), "ID"),
        (("group", "add", "ops", "x y"), "USER"),
        (("actor", "suspend", "x y"), "ACTOR"),
        (("event", "list", "--action", "zz"), "--action"),
        (("webhook", "create", "A B", "--name", "x", "--to", "https://8.8.8.8/"), "ID"),
        (("webhook", "create", "--name", "x", "--to", "https://127.0.0.1/"), "--to"),
        (("webhook", "create", "--name", "x", "--to", "https://8.8.8.8/", "--action", "zz"), "--action"),
        (("actor", "suspend", "urn:li:corpGroup:ops"), "ACTOR"),
        (("policy", "create", "--name", "x"), "--privilege"),
        (("policy", "create", "--name", "x", "--scope", "a:b", "--user", "x y"), "--user"),
        (("policy", "create", "--name", "x", "--scope", "a:b", "--user", "urn:li:corpGroup:ops"), "--user"),
        (("policy", "create", "--name", "x", "--scope", "a:b", "--group", "x y"), "--group"),
        (("webhook", "create", "--name", "x", "--to", "https://8.8.8.8/", "--actor", "x y"), "--actor"),
        (("index", "truncate", "dataset.operation", "--until", "2999-01-01", "--dry-run"), "--until"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_error_names_the_typed_option(run: Run, words: tuple[str, ...], named: str) -> None:
    ran = run(*words)
    assert ran.returncode in {1, 2}
    assert re.match(rf"watchword: {re.escape(named)} ", ran.stderr), ran.stderr


def test_not_found_error_names_the_list_command(run: Run) -> None:
    ran = run("index", "truncate", "zz.yy", "--older-than", "3d", "--dry-run")
    assert ran.returncode == 1
    assert "watchword index sizes" in ran.stderr
    assert not re.search("entityType|getIndexSizes", ran.stderr)


def test_policy_update_keeps_omitted_fields(server: Server, done: Callable[..., str], actor: str) -> None:
    urn = done("policy", "create", "--name", "CI", "--privilege", "MANAGE_POLICIES", "--user", actor).strip()
    assert "MANAGE_POLICIES" in done("actor", "show", actor)
    assert done("policy", "update", urn, "--group", "ops", "--description", "builds") == f"Updated {urn}\n"
    shown = done("policy", "show", urn)
    assert f"{actor},urn:li:corpGroup:ops" in shown
    assert "builds" in shown
    done("policy", "update", urn, "--inactive")
    assert "MANAGE_POLICIES" not in done("actor", "show", actor)
    done("policy", "update", urn, "--active", "--user", "")
    assert actor not in done("policy", "show", urn)
    assert "ACTIVE" in done("policy", "show", urn)


def test_more_policies_than_a_page_are_applied_and_exported_alike(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server()
    file = tmp_path / "many.yaml"
    head = "policies:\n"
    one = (
        "  - {{id: p{0:04}, name: P{0:04}, privileges: [MANAGE_POLICIES], actors: {{users: [urn:li:corpuser:u{0}]}}}}\n"
    )
    file.write_text(head + "".join(one.format(number) for number in range(999)))
    how = ("--url", server.url, "--as", ADMIN)
    applied = watchword("policy", "apply", str(file), *how)
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.splitlines()[-1] == "999 created, 0 updated, 0 removed, 0 unchanged."
    assert server.grant("urn:li:corpuser:one-more")
    assert server.ask("{ listPolicies(input: {}) { total } }", actor=ADMIN)["listPolicies"]["total"] > 1_000
    exported = watchword("policy", "export", *how)
    assert {f"p{number:04}" for number in range(999)} <= set(exported.stdout.split())
    again = watchword("policy", "apply", str(file), "--dry-run", *how)
    assert again.stdout == "0 to create, 0 to update, 0 to remove, 999 unchanged.\n"


def test_unknown_token_is_not_reported_as_revoked(server: Server, tmp_path: Path) -> None:
    made = server.create(ADMIN)
    head, claims, signature = made["accessToken"].split(".")
    forged = f"{head}.{claims}.{signature[::-1]}"
    (tmp_path / "a").write_text(forged)
    (tmp_path / "b").write_text(made["accessToken"])
    ran = watchword("token", "scan", str(tmp_path), "--revoke", "--yes", "--url", server.url)
    assert ran.returncode == 0, ran.stderr
    told = ran.stdout.splitlines()[-2:]
    assert told == [
        f"Not revoked, this server did not issue it: {tmp_path / 'a'}:1:1",
        f"Revoked {tmp_path / 'b'}:1:1",
    ]
    assert server.verify(made["accessToken"]).json()["error"]["reason"] == "token_revoked"
