"""A server applies its policy file completely or not at all: at start, after edits, when emptied or broken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ADMIN, GENERATE, GraphQLRefused, Server
from tests.support.store_file import look, stored

Make = Callable[..., Server]

POLICIES = "{ listPolicies(input: {count: 1000}) { policies { urn name source editable actors { users } } } }"
UPDATE = "mutation ($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }"
APPLY = """mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) {
  dryRun unchanged undeclared { urn } changes { change urn before { name source } after { name source } } } }"""
GRANTED = "query ($urn: String!) { getGrantedPrivileges(input: {actorUrn: $urn}) { privileges } }"

ALICE, BOB, CAROL = (f"urn:li:corpuser:{name}" for name in ("alice", "bob", "carol"))
PREFIX = "urn:li:servicePolicy:"


def policy_file_text(**who: str) -> str:
    entries = "".join(
        f"  - {{id: {name}, name: {name}, privileges: [{GENERATE}], actors: {{users: ['{urn}']}}}}\n"
        for name, urn in who.items()
    )
    return f"policies:\n{entries}" if who else "policies: []\n"


def policy_users(server: Server) -> dict[str, tuple[str, list[str]]]:
    """Source and users of each editable policy, by name."""
    found = server.ask(POLICIES, actor=ADMIN)["listPolicies"]["policies"]
    return {p["name"]: (p["source"], p["actors"]["users"]) for p in found if p["editable"] and p["actors"]["users"]}


def may_generate(server: Server, actor: str) -> bool:
    return GENERATE in server.ask(GRANTED, {"urn": actor}, actor=actor)["getGrantedPrivileges"]["privileges"]


def policy_input(word: str, *actors: str, **fields: Any) -> dict[str, Any]:
    return {"id": word, "name": word, "privileges": [GENERATE], "actors": {"users": list(actors)}, **fields}


def test_policy_file_is_applied_at_every_start(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(policy_file_text(one=ALICE, two=BOB))
    server = make_server("--policy-file", str(file))
    by_hand = server.grant(CAROL)
    assert policy_users(server) == {"one": ("FILE", [ALICE]), "two": ("FILE", [BOB]), "test policy": ("API", [CAROL])}
    assert "2 created" in server.out.read_text()

    edited = {**policy_input("one", BOB), "type": "PLATFORM", "state": "ACTIVE"}
    del edited["id"]
    server.ask(UPDATE, {"urn": f"{PREFIX}one", "input": edited}, actor=ADMIN)
    server.withdraw(f"{PREFIX}two")
    assert not may_generate(server, ALICE)
    server.stop()
    server.start()
    assert policy_users(server)["one"] == ("FILE", [ALICE]), "what was edited by hand is set right"
    assert policy_users(server)["two"] == ("FILE", [BOB]), "what was deleted by hand is there again"
    assert may_generate(server, ALICE)

    file.write_text(policy_file_text(two=CAROL))
    server.stop()
    server.start()
    assert policy_users(server) == {"two": ("FILE", [CAROL]), "test policy": ("API", [CAROL])}
    assert not may_generate(server, ALICE)
    assert "1 updated, 1 removed" in server.out.read_text()

    server.stop()
    before = stored_while_stopped(server)
    file.write_text(policy_file_text(three=ALICE) + "  - id: four\n    nam: x\n")
    with pytest.raises(AssertionError, match=r"policies\.yaml, line 4: policies\[1\] has no key 'nam'"):
        server.start()
    assert stored_while_stopped(server) == before, "nothing of a broken file is applied"

    file.write_text("policies: []\n")
    server.start()
    assert policy_users(server) == {"test policy": ("API", [CAROL])}
    server.withdraw(by_hand)


def stored_while_stopped(server: Server) -> tuple[dict[str, int], list[Any]]:
    return stored(server), look(server, "SELECT * FROM policies ORDER BY urn")


def test_policy_file_with_root_policy_prevents_start(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(policy_file_text(root=ALICE))
    with pytest.raises(AssertionError, match=r"line 2: policies\[0\]\.id must not be root"):
        make_server("--policy-file", str(file))


def test_policy_file_prunes_its_set_and_cannot_take_another_sets_policy(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(policy_file_text(one=ALICE, two=ALICE))
    server = make_server("--policy-file", str(file))
    apply = {"input": {"set": "team-b", "policies": [policy_input("three", BOB)]}}
    assert server.ask(APPLY, apply, actor=ADMIN)["applyPolicies"]["undeclared"] == []
    file.write_text(policy_file_text(one=ALICE))
    server.stop()
    server.start()
    assert policy_users(server) == {"one": ("FILE", [ALICE]), "three": ("FILE", [BOB])}
    server.stop()
    before = stored_while_stopped(server)
    file.write_text(policy_file_text(three=ALICE))
    with pytest.raises(AssertionError, match="three belongs to the policy set 'team-b'; this is the set 'default'"):
        server.start()
    assert stored_while_stopped(server) == before


def test_missing_policy_file_prevents_start(make_server: Make, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cannot be read"):
        make_server("--policy-file", str(tmp_path / "nowhere.yaml"))


class TestApplyPolicies:
    def apply(self, server: Server, *policies: dict[str, Any], actor: str = ADMIN, **fields: Any) -> Any:
        wanted = {"input": {"policies": list(policies), **fields}}
        return server.ask(APPLY, wanted, actor=actor)["applyPolicies"]

    def test_apply_dry_run_changes_nothing(self, make_server: Make) -> None:
        server = make_server()
        self.apply(server, policy_input("one", ALICE), policy_input("two", ALICE))
        before = stored(server)
        would = self.apply(
            server, policy_input("one", BOB), policy_input("two", ALICE), policy_input("three", BOB), dryRun=True
        )
        assert would["dryRun"] is True
        assert would["unchanged"] == 1
        assert [(change["change"], change["urn"]) for change in would["changes"]] == [
            ("UPDATE", f"{PREFIX}one"),
            ("CREATE", f"{PREFIX}three"),
        ]
        assert stored(server) == before
        assert may_generate(server, ALICE)
        done = self.apply(server, policy_input("one", BOB), policy_input("two", ALICE), policy_input("three", BOB))
        assert done == {**would, "dryRun": False}
        assert stored(server) != before

    def test_applied_policies_take_effect_immediately(self, make_server: Make) -> None:
        server = make_server("--workers", "2")
        for _ in range(10):
            self.apply(server, policy_input("one", ALICE))
            assert may_generate(server, ALICE)
            self.apply(server, prune=True)
            assert not may_generate(server, ALICE)

    @pytest.mark.parametrize(
        ("bad", "field"),
        [
            (policy_input("x", "alice"), "policies[1].actors.users"),
            (policy_input("x", ALICE, privileges=[]), "policies[1].privileges"),
            (policy_input("x", ALICE, privileges=["NO_SUCH"]), "policies[1].privileges"),
            (policy_input("", ALICE), "policies[1].id"),
            (policy_input("good", ALICE), "policies[1].id"),
            (policy_input("x", ALICE, name="\n"), "policies[1].name"),
            (policy_input("x", ALICE, actors={"roles": ["urn:li:role:x"]}), "policies[1].actors.roles"),
        ],
    )
    def test_one_invalid_policy_rejects_all(self, server: Server, bad: dict[str, Any], field: str) -> None:
        before = stored(server)
        with pytest.raises(GraphQLRefused) as refusal:
            self.apply(server, policy_input("good", ALICE), bad)
        assert refusal.value.reason == "invalid_field"
        assert refusal.value.errors[0]["extensions"]["field"] == field
        assert field in refusal.value.errors[0]["message"]
        assert stored(server) == before

    def test_declaring_accounts_needs_manage_service_accounts(self, server: Server, actor: str) -> None:
        server.grant(actor, privileges=("MANAGE_POLICIES",))
        declared: dict[str, Any] = {
            "accounts": [{"id": "airflow", "name": "Airflow"}],
            "set": "accounts",
        }
        with pytest.raises(GraphQLRefused) as refusal:
            self.apply(server, actor=actor, **declared)
        assert refusal.value.errors[0]["extensions"]["privilege"] == "MANAGE_SERVICE_ACCOUNTS"

    def test_apply_checks_the_privilege_first(self, server: Server, actor: str) -> None:
        for dry in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                self.apply(server, policy_input("", "nonsense"), actor=actor, dryRun=dry)
            assert refusal.value.code == 403


def test_retention_rules_of_the_file_are_applied_at_every_start(make_server: Make, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text("retention:\n  - {series: chart.a, keep: P7D, hold: tax audit}\n  - {series: chart.b, keep: P7D}\n")
    server = make_server("--policy-file", str(file))
    assert "2 created" in server.out.read_text()
    rules = "{ retentionRules { series keep set hold { byRule reason } } }"
    held = {"byRule": True, "reason": "tax audit"}
    assert server.ask(rules, actor=ADMIN)["retentionRules"] == [
        {"series": "chart.a", "keep": "P7D", "set": "default", "hold": held},
        {"series": "chart.b", "keep": "P7D", "set": "default", "hold": None},
    ]
    server.stop()
    file.write_text("retention:\n  - {series: chart.a, keep: P8D}\n")
    server.start()
    assert server.ask(rules, actor=ADMIN)["retentionRules"] == [
        {"series": "chart.a", "keep": "P8D", "set": "default", "hold": None}
    ]
