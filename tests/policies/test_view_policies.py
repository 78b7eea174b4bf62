"""View Policies is enough to read policies and to preview a policy file, and for nothing else."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.server import ADMIN, GraphQLRefused, Server

VIEW = "VIEW_POLICIES"
FILE = """
set: {name}
policies:
  - {{id: {name}, name: New, privileges: [MANAGE_ACCESS_TOKENS], actors: {{users: [urn:li:corpuser:alice]}}}}
groups:
  - {{id: {name}, name: Group, members: [urn:li:corpuser:alice]}}
accounts:
  - {{id: {name}, name: Account}}
retention:
  - {{series: dataset.{name}, keep: P30D}}
webhooks:
  - {{id: {name}, name: Hook, url: "https://chat.example.org/hooks/{secret}"}}
resources:
  - {{name: {name}, id: {name}}}
"""
READ = [
    "{ listPolicies(input: {}) { total } }",
    '{ getPolicy(urn: "urn:li:servicePolicy:root") { name } }',
    "{ listGroups(input: {}) { total } }",
    "{ listResources { name } }",
    '{ listPrivilegeHolders(input: {privilege: "MANAGE_POLICIES"}) { total } }',
    '{ policyEffect(urn: "urn:li:servicePolicy:everyone-task-status") { appliesTo } }',
    f'{{ explainPrivilege(input: {{actorUrn: "{ADMIN}", privilege: "MANAGE_POLICIES"}}) {{ allowed }} }}',
    f'{{ getGrantedPrivileges(input: {{actorUrn: "{ADMIN}"}}) {{ privileges }} }}',
    "mutation { applyPolicies(input: {policies: [], dryRun: true}) { dryRun } }",
]
BEYOND = [
    "mutation { applyPolicies(input: {policies: []}) { dryRun } }",
    'mutation { deletePolicy(urn: "urn:li:servicePolicy:none") }',
    'mutation { createGroup(input: {name: "x"}) }',
    'mutation { addGroupMembers(input: {groupUrn: "urn:li:corpGroup:x", userUrns: ["urn:li:corpuser:x"]}) }',
    'mutation { updateUserStatus(urn: "urn:li:corpuser:x", status: SUSPENDED) }',
    "{ listActors(input: {}) { actors { urn } } }",
    "{ listWebhooks { total } }",
    "{ retentionRules { series } }",
    "{ listServiceAccounts { total } }",
]


@pytest.fixture
def viewer(server: Server, actor: str) -> str:
    server.grant(actor, privileges=(VIEW,))
    return actor


@pytest.mark.parametrize("document", READ)
def test_view_policies_reads_policies_groups_resources_and_plans(server: Server, viewer: str, document: str) -> None:
    assert server.ask(document, actor=viewer)
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(document, actor=f"{viewer}-2")
    assert refused.value.errors[0]["extensions"]["privilege"] == VIEW


@pytest.mark.parametrize("document", BEYOND)
def test_view_policies_allows_nothing_else(server: Server, viewer: str, document: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(document, actor=viewer)
    assert refused.value.reason == "missing_privilege"


def test_view_policies_is_enough_for_a_dry_run_of_a_whole_file(server: Server, viewer: str, tmp_path: Path) -> None:
    name, file = "viewed", tmp_path / "policies.yaml"

    def apply(*flags: str, who: str = viewer) -> Any:
        return watchword("policy", "apply", str(file), *flags, "--url", server.url, "--as", who)

    file.write_text(FILE.format(name=name, secret="first-secret"))
    preview = apply("--dry-run")
    assert preview.returncode == 3, preview.stderr
    assert "6 to create, 0 to update, 0 to remove, 0 unchanged." in preview.stdout
    refused = apply()
    assert (refused.returncode, "MANAGE_POLICIES" in refused.stderr) == (1, True)
    assert apply("--dry-run").stdout.count("\n+ ") == 5, "nothing was applied"

    assert apply(who=ADMIN).returncode == 0
    assert apply("--dry-run").returncode == 0
    file.write_text(FILE.format(name=name, secret="second-secret"))
    changed = apply("--dry-run").stdout
    assert 'url: "https://chat.example.org/…" -> "https://chat.example.org/hooks/second-secret"' in changed
    file.write_text(f"set: {name}\npolicies: []\n")
    assert "first-secret" not in apply("--dry-run", "--prune", "--json").stdout
    assert "first-secret" in apply("--dry-run", "--prune", "--json", who=ADMIN).stdout
    assert apply("--prune", "--yes", who=ADMIN).returncode == 0
