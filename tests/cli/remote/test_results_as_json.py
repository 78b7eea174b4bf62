"""Commands that change something print what they did as JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run

Result = Callable[..., Any]


@pytest.fixture
def result(done: Callable[..., str]) -> Result:
    """Return the JSON that a command prints."""

    def call(*words: str, **how: Any) -> Any:
        return json.loads(done(*words, "-o", "json", **how))

    return call


def test_policies_and_groups_are_printed_as_json(result: Result, actor: str) -> None:
    name = actor.rpartition(":")[2]
    made = result("policy", "create", "--name", name, "--scope", "a:b", "--user", actor)
    assert (made["name"], made["actors"]["users"]) == (name, [actor])
    changed = result("policy", "update", made["urn"], "--inactive")
    assert changed["revision"] != made["revision"]
    assert changed == made | {"state": "INACTIVE", "revision": changed["revision"]}
    assert result("policy", "delete", made["urn"], "--yes") == {"urn": made["urn"], "deleted": True}
    group = result("group", "create", name, "--name", "Json")
    assert result("group", "add", name, actor, "admin") == group | {"memberCount": 2}
    assert result("group", "remove", name, actor) == group | {"memberCount": 1}
    assert result("group", "delete", name, "--yes") == {"urn": group["urn"], "deleted": True}


def test_actors_and_accounts_are_printed_as_json(result: Result, actor: str) -> None:
    assert result("actor", "update", actor, "--name", "Json")["displayName"] == "Json"
    assert result("actor", "suspend", actor)["status"] == "SUSPENDED"
    assert result("actor", "resume", actor)["status"] == "ACTIVE"
    linked = result("actor", "link", actor, actor, "--issuer", "https://id.example.org")
    assert (linked["urn"], linked["identity"]["subject"]) == (actor, actor)
    account = result("account", "create", "--name", "Json")["urn"]
    assert result("account", "delete", account, "--yes") == {"urn": account, "deleted": True, "revokedTokens": 0}


def test_webhooks_are_printed_as_json(result: Result) -> None:
    webhook = result("webhook", "create", "--name", "Json", "--to", "https://8.8.8.8/")["id"]
    assert result("webhook", "update", webhook, "--disable")["state"] == "DISABLED"
    assert result("webhook", "update", webhook, "--enable")["state"] == "ENABLED"
    assert result("webhook", "replay", webhook) == {"queued": 0, "until": None}
    assert result("webhook", "delete", webhook, "--yes") == {"id": webhook, "deleted": True}


def test_retention_rules_and_holds_are_printed_as_json(result: Result) -> None:
    rule = result("retention", "update", "chart.json", "--keep", "7d")
    assert (rule["series"], rule["keep"]) == ("chart.json", "P7D")
    held = result("retention", "hold", "chart.json", "--reason", "audit")
    assert (held["hold"]["reason"], held["operations"]) == ("audit", [])
    released = result("retention", "release", "chart.json")
    assert released == {"series": "chart.json", "released": True, "holds": []}
    assert result("retention", "delete", "chart.json", "--yes") == {"series": "chart.json", "deleted": True}


def test_database_and_keys_are_printed_as_json(tmp_path: Path) -> None:
    def local(*words: str) -> Any:
        ran = watchword(*words, "--data-dir", str(tmp_path / "d"), "--json")
        assert (ran.returncode, ran.stderr) == (0, "")
        return json.loads(ran.stdout)

    made = local("db", "migrate")
    assert made["schemaBefore"] is None
    assert local("db", "migrate") == {"schemaBefore": made["schema"], "schema": made["schema"]}
    assert {one["ok"] for one in local("db", "check")} == {True}
    following = local("key", "list")[-1]
    assert local("key", "rotate") == {"kid": following["kid"], "kind": "EdDSA", "state": "signs", "waitsUntil": None}
    first, *rest = local("key", "list", "--all")
    assert (first["kid"], first["retiredAt"], len(rest)) == (following["kid"], None, 2)
    assert rest[0]["publishedUntil"].endswith("Z")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("webhook", "update", "chat"), "Pass what to change"),
        (("policy", "update", "own-tokens"), "Pass what to change"),
        (("webhook", "update", "chat", "--enable", "--disable"), "Pass --enable or --disable, not both."),
        (("policy", "update", "own-tokens", "--active", "--inactive"), "Pass --inactive or --active, not both."),
        (("policy", "update", "x", "--all-users", "--not-all-users"), "Pass --all-users or --not-all-users, not both."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_update_without_a_change_or_with_two_is_an_error(run: Run, words: tuple[str, ...], said: str) -> None:
    ran = run(*words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert ran.stderr.endswith(f" Try 'watchword {words[0]} update --help' for help.\n")
