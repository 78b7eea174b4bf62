"""Parsing the policy file; errors name the line and the key."""

import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.in_process import watchword
from tests.support.strategies import policies, written_policy
from tests.support.system import need_root
from watchword.accounts.declared_rules import ENTITY_PART, Entity
from watchword.authority.policies import POLICY_PART, Policy, PolicySource, PolicyState
from watchword.authority.privileges import Privilege
from watchword.basics.names import POLICY_PREFIX
from watchword.declared.policy_file import PolicyFileError, read_policy_file, yaml_text
from watchword.declared.rules import DeclaredSet
from watchword.notices.webhook_rules import WEBHOOK_PART, WebhookState
from watchword.retention.rules import RULE_PART, Mode, RetentionRule

DAY = 86_400_000
GOOD = """\
policies:
  - id: own-tokens
    name: Own tokens
    description: For people.
    privileges: [GENERATE_PERSONAL_ACCESS_TOKENS]
    actors:
      users: [urn:li:corpuser:alice]
      groups:
        - urn:li:corpGroup:ops
  - id: audit
    name: "Audit"
    state: INACTIVE
    privileges:
      - VIEW_AUDIT_LOG
    actors: {allUsers: true}
"""
SCOPES = """\
policies:
  - id: reports
    name: Reports
    scopes: [reports:read, "orders:*"]
    actors: {groups: [urn:li:corpGroup:ops]}
"""


def read(folder: Path, text: str | bytes) -> DeclaredSet:
    file = folder / "policies.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_policy_file(file).declared


def rejection(folder: Path, text: str | bytes) -> str:
    with pytest.raises(PolicyFileError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert "policies.yaml" in message
    assert "\n" not in message
    return message.partition("policies.yaml")[2].lstrip(", ")


RULES = """\
retention:
  - series: dataset.datasetUsageStatistics
    keep: P30D
    removeAfter: P60D
    maxSize: 20GB
    maxRows: 1_000_000
    keepLast: 1
    schedule: 0 1 * * *
    timeZone: Europe/Berlin
    window: 22:00-06:00
    atMost: 20%
    mode: enforce
    hold: ~
  - {series: "*", keep: P90D, hold: tax audit}
"""


def test_policy_file_defines_retention_rules(tmp_path: Path) -> None:
    declared = read(tmp_path, RULES)
    first, every = (one.rule for one in declared[RULE_PART])
    assert (first.series, first.keep, first.remove_after) == ("dataset.datasetUsageStatistics", 30 * DAY, 60 * DAY)
    assert (first.max_size, first.max_rows, first.keep_last) == (20 * 10**9, 10**6, 1)
    assert (str(first.window), first.at_most, first.mode, first.hold) == ("22:00-06:00", 20.0, Mode.ENFORCE, None)
    assert every == RetentionRule("*", 90 * DAY, hold="tax audit")
    written = yaml_text({"retention": [first.written(), every.written()]})
    assert read(tmp_path, written)[RULE_PART] == declared[RULE_PART]


WEBHOOKS = """\
set: team-a
webhooks:
  - id: chat
    name: Chat
    url: https://example.com/hooks
    actions: [token.*, webhook.stopped]
    groupUrns: [urn:li:corpGroup:ops]
  - {id: quiet, name: Quiet, url: "https://example.com/", enabled: false}
"""


def test_policy_file_defines_webhooks(tmp_path: Path) -> None:
    declared = read(tmp_path, WEBHOOKS)
    chat, quiet = declared[WEBHOOK_PART]
    assert (chat.id, chat.filter.actions, chat.set_name) == ("chat", ("token.*", "webhook.stopped"), "team-a")
    assert (chat.state, quiet.state) == (WebhookState.ENABLED, WebhookState.DISABLED)
    written = yaml_text({"set": "team-a", "webhooks": [WEBHOOK_PART.written(one) for one in (chat, quiet)]})
    assert read(tmp_path, written)[WEBHOOK_PART] == (chat, quiet)
    for before, after, told in (
        ("token.*", "tokn.*", r"line 6: webhooks\[0\].actions must be among"),
        ("https://example.com/hooks", "https://me@example.com", r"line 5: webhooks\[0\].url must have no user"),
        ("id: quiet", "id: chat", r"line 8: webhooks\[1\].id is declared twice"),
        ("name: Chat", "secret: whsec_x", r"webhooks\[0\] has no key 'secret'"),
    ):
        with pytest.raises(PolicyFileError, match=told):
            read(tmp_path, WEBHOOKS.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("keep: P30D", "keep: 30", "line 3: retention[0].keep must be a duration such as 30d"),
        ("    keep: P30D\n", "", "line 2: retention[0] lacks the key 'keep'"),
        ("keep: P30D", "kept: P30D", "line 3: retention[0] has no key 'kept'; its keys are atMost, hold, keep"),
        ("removeAfter: P60D", "removeAfter: P1D", "line 4: retention[0].removeAfter must be at least keep"),
        ("maxSize: 20GB", "maxSize: 20", "line 5: retention[0].maxSize must be a size from 1kB to 999999TB"),
        ("maxRows: 1_000_000", "maxRows: 1e6", "line 6: retention[0].maxRows must be a whole number from 1"),
        ("keepLast: 1", "keepLast: true", "line 7: retention[0].keepLast must be a whole number from 1 to 100"),
        ("window: 22:00-06:00", "window: 22:00", "line 10: retention[0].window must be two different times"),
        ("atMost: 20%", "atMost: 20", "line 11: retention[0].atMost must be a share of the rows from 0% to 100%"),
        ("mode: enforce", "mode: on", "line 12: retention[0].mode must be report or enforce"),
        ("mode: enforce", "mode: [enforce]", "line 12: retention[0].mode must be report or enforce"),
        ('series: "*"', "series: *", "line 14: this is not YAML"),
        ('series: "*"', "series: DATASET.datasetusagestatistics", "line 14: retention[1].series is declared twice"),
    ],
)
def test_invalid_retention_rule_is_rejected_with_line_and_key(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    assert before in RULES
    assert rejection(tmp_path, RULES.replace(before, after, 1)).startswith(told)


def test_policy_file_defines_policies(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD)[POLICY_PART] == (
        Policy(
            urn=POLICY_PREFIX + "own-tokens",
            name="Own tokens",
            description="For people.",
            privileges=frozenset({Privilege.GENERATE_PERSONAL_ACCESS_TOKENS}),
            users=frozenset({"urn:li:corpuser:alice"}),
            groups=frozenset({"urn:li:corpGroup:ops"}),
            source=PolicySource.FILE,
            set_name="default",
        ),
        Policy(
            urn=POLICY_PREFIX + "audit",
            name="Audit",
            state=PolicyState.INACTIVE,
            privileges=frozenset({Privilege.VIEW_AUDIT_LOG}),
            all_users=True,
            source=PolicySource.FILE,
            set_name="default",
        ),
    )


def test_policy_may_grant_scopes_alone(tmp_path: Path) -> None:
    (policy,) = read(tmp_path, SCOPES)[POLICY_PART]
    assert (policy.privileges, policy.scopes) == (frozenset(), frozenset({"reports:read", "orders:*"}))
    for wrong, message in (
        ("[Reports, ", "line 4: policies[0].scopes must be a scope such as reports:read"),
        ("[7, ", "line 4: policies[0].scopes must be text"),
    ):
        assert rejection(tmp_path, SCOPES.replace("[reports:read, ", wrong)).startswith(message)


def test_policy_file_names_its_set(tmp_path: Path) -> None:
    declared = read(tmp_path, f"set: team-a\n{GOOD}")
    assert declared.set_name == "team-a"
    assert {policy.set_name for policy in declared[POLICY_PART]} == {"team-a"}
    assert read(tmp_path, GOOD).set_name == "default"


@pytest.mark.parametrize("bad", ["", "a b", "[a]", "12", "x" * 101])
def test_invalid_set_name_is_rejected(tmp_path: Path, bad: str) -> None:
    assert rejection(tmp_path, f"policies: []\nset: {bad}\n").startswith("line 2: set must ")


def test_policy_file_may_be_empty(tmp_path: Path) -> None:
    for name in ("policies", "groups", "accounts"):
        assert read(tmp_path, f"{name}: []") == DeclaredSet()
    assert rejection(tmp_path, "set: a").startswith("line 1: the file lacks a key: it must have at least one of acc")


ENTITIES = """\
set: team
groups:
  - id: ops
    name: Operations
    members: [urn:li:corpuser:carol]
  - {id: all, name: All}
accounts:
  - id: airflow
    name: Airflow
    description: Runs jobs.
    groups: [urn:li:corpGroup:ops, urn:li:corpGroup:all]
"""


def test_policy_file_declares_groups_and_accounts(tmp_path: Path) -> None:
    account, ops = "urn:li:corpuser:service_airflow", "urn:li:corpGroup:ops"
    found = read(tmp_path, ENTITIES)[ENTITY_PART]
    assert found == (
        Entity(ops, "Operations", None, "team", frozenset({"urn:li:corpuser:carol", account})),
        Entity("urn:li:corpGroup:all", "All", None, "team", frozenset({account})),
        Entity(account, "Airflow", "Runs jobs.", "team"),
    )
    assert [one.urn for one in found if one.is_group and one.is_open] == ["urn:li:corpGroup:all"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("id: ops", "id: o p s", "line 3: groups[0].id must have 1 to 100 letters"),
        ("id: all", "id: ops", "line 6: groups[1].id is declared twice"),
        ("name: Operations", "title: Operations", "line 4: groups[0] has no key 'title'"),
        ("name: Operations", 'name: ""', "line 4: groups[0].name must have 1 to 200"),
        ("[urn:li:corpuser:carol]", "['carol ']", "line 5: groups[0].members must be a urn"),
        ("id: airflow", "id: Airflow", "line 8: accounts[0].id must have 1 to 60 lower-case"),
        ("    name: Airflow\n", "", "line 8: accounts[0] lacks the key 'name'"),
        ("urn:li:corpGroup:all]", "urn:li:corpGroup:x]", "line 11: accounts[0].groups must be urns of groups that the"),
        ("accounts:", "accounts: {}\nx:", "line 8: the file has no key 'x'"),
    ],
)
def test_invalid_group_or_account_is_rejected_with_line_and_key(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    assert before in ENTITIES
    assert rejection(tmp_path, ENTITIES.replace(before, after, 1)).startswith(told)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("name: Own tokens", "nam: Own tokens", "line 3: policies[0] has no key 'nam'; its keys are actors, descr"),
        ("    name: Own tokens\n", "", "line 2: policies[0] lacks the key 'name'"),
        ("name: Own tokens", "name: 17", "line 3: policies[0].name must be text"),
        ("name: Own tokens", 'name: ""', "line 3: policies[0].name must have 1 to 200"),
        ("description: For people.", "name: Again", "line 4: policies[0] has the key 'name' twice"),
        ("policies:", "set: a\nset: b\npolicies:", "line 2: the file has the key 'set' twice"),
        ("description: For people.", "description: [a]", "line 4: policies[0].description must be text"),
        (
            "[GENERATE_PERSONAL_ACCESS_TOKENS]",
            "[RULE_THE_WORLD]",
            "line 5: policies[0].privileges must be among: GENER",
        ),
        ("[GENERATE_PERSONAL_ACCESS_TOKENS]", "[]", "line 5: policies[0].privileges must name at least one"),
        ("[GENERATE_PERSONAL_ACCESS_TOKENS]", "VIEW_AUDIT_LOG", "line 5: policies[0].privileges must be a list"),
        ("[urn:li:corpuser:alice]", "['al ice']", "line 7: policies[0].actors.users must be a urn"),
        ("[urn:li:corpuser:alice]", "[[x]]", "line 7: policies[0].actors.users must be text"),
        ("urn:li:corpGroup:ops", "urn:li:corpuser:ops", "line 9: policies[0].actors.groups must be the urn of a group"),
        ("      groups:", "      roles:", "line 8: policies[0].actors has no key 'roles'"),
        ("id: audit", "id: own-tokens", "line 10: policies[1].id is declared twice"),
        ("id: audit", "id: root", "line 10: policies[1].id must not be root"),
        ("id: audit", "id: a b", "line 10: policies[1].id must have 1 to 100 letters"),
        ("state: INACTIVE", "state: ON", "line 12: policies[1].state must be"),
        ("state: INACTIVE", "state: DRAFT", "line 12: policies[1].state must be ACTIVE or INACTIVE"),
        ("allUsers: true", "allUsers: maybe", "line 15: policies[1].actors.allUsers must be true or false"),
        ("actors: {allUsers: true}", "actors: everyone", "line 15: policies[1].actors must be a mapping"),
        ("policies:", "polices:", "line 1: the file has no key 'polices'"),
        ('name: "Audit"', 'name: "Audit', "line 11: this is not YAML"),
    ],
)
def test_invalid_policy_file_is_rejected_with_line_and_key(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in GOOD
    assert rejection(tmp_path, GOOD.replace(before, after, 1)).startswith(told)


def test_names_without_a_prefix_are_those_of_users_and_groups(tmp_path: Path) -> None:
    short = GOOD.replace("urn:li:corpuser:", "").replace("urn:li:corpGroup:", "")
    assert short != GOOD
    assert read(tmp_path, short) == read(tmp_path, GOOD)
    entities = ENTITIES.replace("urn:li:corpuser:", "").replace("urn:li:corpGroup:", "")
    assert read(tmp_path, entities) == read(tmp_path, ENTITIES)


@pytest.mark.parametrize("word", ["*", "corpuser:eve", "urn:li:corpuser:", ""])
def test_word_that_is_neither_a_name_nor_a_urn_is_rejected(tmp_path: Path, word: str) -> None:
    told = rejection(tmp_path, f"policies: [{{id: a, name: a, privileges: [], actors: {{users: [{word!r}]}}}}]")
    assert f"users must be urns such as urn:li:corpuser:alice, or names; {word!r} is neither." in told
    assert ("write allUsers: true" in told) == (word == "*")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "[GENERATE_PERSONAL_ACCESS_TOKENS]",
            "[GENERATE_ACCESS_TOKENS]",
            "Did you mean GENERATE_PERSONAL_ACCESS_TOKENS?",
        ),
        ("[GENERATE_PERSONAL_ACCESS_TOKENS]", "[manage_policy]", "Did you mean MANAGE_POLICIES?"),
        ("      groups:", "      group:", "its keys are allUsers, groups, users. Did you mean groups?"),
        ("policies:", "polices:", "Did you mean policies?"),
        ("state: INACTIVE", "state: inactive", "must be ACTIVE or INACTIVE. Did you mean INACTIVE?"),
    ],
)
def test_misspelled_word_gets_a_suggestion(tmp_path: Path, before: str, after: str, told: str) -> None:
    assert rejection(tmp_path, GOOD.replace(before, after, 1)).endswith(told)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing",
        "- a",
        "text",
        "policies:",
        "policies: {}",
        b"\xff\xfe\x00",
        "a: &a [*a]",
        "\t- x",
        "{" * 500_000,
        "\x00",
    ],
    ids=repr,
)
def test_malformed_policy_file_is_rejected_in_one_sentence(tmp_path: Path, text: str | bytes) -> None:
    rejection(tmp_path, text)


def test_missing_or_oversized_policy_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="cannot be read"):
        read_policy_file(tmp_path / "nowhere.yaml")
    with pytest.raises(PolicyFileError, match="cannot be read"):
        read_policy_file(tmp_path)
    assert "at most" in rejection(tmp_path, b"#" * 5_000_000)


def test_world_writable_policy_file_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(GOOD)
    file.chmod(0o646)
    with pytest.raises(PolicyFileError, match="chmod o-w"):
        read_policy_file(file)
    file.chmod(0o664)
    assert len(read_policy_file(file).declared[POLICY_PART]) == 2


@pytest.mark.parametrize(
    ("owner", "group", "mode", "told"),
    [
        (10_001, 0, 0o644, r"belongs to another user \(10001\).* chown root"),
        (0, 10_001, 0o664, "Group 10001 may.* chmod g-w"),
    ],
)
def test_policy_file_that_another_user_may_change_does_not_start(
    tmp_path: Path, owner: int, group: int, mode: int, told: str
) -> None:
    need_root("to make files of another user")
    file = tmp_path / "policies.yaml"
    file.write_text(GOOD)
    file.chmod(mode)
    os.chown(file, owner, group)
    done = watchword("serve", "--data-dir", str(tmp_path / "data"), "--policy-file", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(told, done.stderr)
    checked = watchword("doctor", "--data-dir", str(tmp_path / "data"), "--policy-file", str(file))
    assert re.search(told, checked.stdout)
    os.chown(file, 0, 0)
    assert len(read_policy_file(file, at_start=True).declared[POLICY_PART]) == 2


def test_policy_file_with_huge_aliases_is_rejected(tmp_path: Path) -> None:
    users = ", ".join(f"urn:li:corpuser:u{number}" for number in range(900))
    entries = "".join(
        f"  - {{id: p{number}, name: n, privileges: [VIEW_AUDIT_LOG], actors: {{users: *u}}}}\n"
        for number in range(500)
    )
    first = f"  - {{id: first, name: n, privileges: [VIEW_AUDIT_LOG], actors: {{users: &u [{users}]}}}}\n"
    assert "the file is too large" in rejection(tmp_path, f"policies:\n{first}{entries}")
    many = "".join(f"  - {{id: p{number}}}\n" for number in range(1_001))
    assert "line 2: policies may have at most 1,000" in rejection(tmp_path, f"policies:\n{many}")


def test_policy_file_cannot_be_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PolicyFileError, match="not a regular file"):
        read_policy_file(tmp_path / "pipe")


def test_policy_file_may_start_with_a_bom(tmp_path: Path) -> None:
    assert len(read(tmp_path, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())[POLICY_PART]) == 2


def test_yaml_cannot_construct_python_objects(tmp_path: Path) -> None:
    assert "line 1" in rejection(tmp_path, "policies: !!python/object/apply:os.system [id]")


DECLARED = st.lists(policies(), max_size=5, unique_by=lambda policy: policy.urn).map(
    lambda made: tuple(policy for policy in made if policy.privileges)
)


@given(DECLARED)
def test_written_policy_file_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[Policy, ...]
) -> None:
    folder = tmp_path_factory.mktemp("file")
    written = yaml_text({"set": "team-a", "policies": list(map(written_policy, made))})
    declared = read(folder, written)
    assert declared.set_name == "team-a"
    found = declared[POLICY_PART]
    assert {policy.urn: (policy.name, policy.description, policy.state, policy.privileges) for policy in found} == {
        policy.urn: (policy.name, policy.description, policy.state, policy.privileges) for policy in made
    }
    assert [(p.users, p.groups, p.all_users, p.scopes) for p in found] == [
        (p.users, p.groups, p.all_users, p.scopes) for p in made
    ]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_words_of_pyyaml_are_those_that_errors_look_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: object
) -> None:
    """It says nothing else about an alias, and about a text without an end, whose line is where it begins."""
    monkeypatch.setattr("watchword.declared.policy_file._LOADER", loader)
    for text in ("retention:\n  - series: *\n", "retention:\n  - series: *a\n"):
        said = rejection(tmp_path, text)
        assert said.startswith("line 2: this is not YAML: ")
        assert said.endswith("; put text that begins with * in quotes.")
    said = rejection(tmp_path, 'policies: []\nset: "a\n\n\n')
    assert said.startswith("line 2: this is not YAML: ")
    assert said.endswith("end of stream.")
