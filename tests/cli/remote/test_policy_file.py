"""`policy apply` and `policy export`."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, Server
from tests.support.terminal import Terminal

DIFFERS = "watchword: Exit code 3: the set differs from the file.\n"
FIRST = """policies:
  - id: own-tokens
    name: Own tokens
    privileges: [GENERATE_PERSONAL_ACCESS_TOKENS]
    actors: {users: [urn:li:corpuser:alice]}
  - id: readers
    name: Readers
    privileges: [VIEW_AUDIT_LOG]
    actors: {allUsers: true}
"""
SECOND = """policies:
  - id: own-tokens
    name: Own tokens
    description: Everybody.
    privileges: [GENERATE_PERSONAL_ACCESS_TOKENS]
    actors: {allUsers: true}
"""


def test_policy_file_is_applied_changed_and_exported(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server, file = make_server(), tmp_path / "policies.yaml"
    by_hand = server.grant("urn:li:corpuser:bob")

    def apply(text: str, *flags: str) -> list[str]:
        file.write_text(text)
        ran = watchword("policy", "apply", str(file), *flags, "--url", server.url, "--as", ADMIN)
        assert (ran.returncode, ran.stderr) == ((3, DIFFERS) if "--dry-run" in flags else (0, ""))
        return ran.stdout.splitlines()

    shown = apply(FIRST, "--dry-run")
    assert shown[0] == "+ urn:li:servicePolicy:own-tokens"
    assert '    actors.users: ["urn:li:corpuser:alice"]' in shown
    assert shown[-1] == "2 to create, 0 to update, 0 to remove, 0 unchanged."
    assert apply(FIRST)[-1] == "2 created, 0 updated, 0 removed, 0 unchanged."
    assert apply(FIRST) == ["0 created, 0 updated, 0 removed, 2 unchanged."]

    changed = json.loads(apply(SECOND, "--prune", "--dry-run", "--json")[0])
    assert [(c["change"], c["urn"].rpartition(":")[2]) for c in changed["changes"]] == [
        ("UPDATE", "own-tokens"),
        ("DELETE", "readers"),
    ]
    lines = apply(SECOND, "--prune", "--yes")
    assert lines[0] == "~ urn:li:servicePolicy:own-tokens"
    assert lines[1:-1] == [
        '    description: null -> "Everybody."',
        '    actors.users: ["urn:li:corpuser:alice"] -> []',
        "    actors.allUsers: false -> true",
        "- urn:li:servicePolicy:readers",
    ]
    assert lines[-1] == "0 created, 1 updated, 1 removed, 0 unchanged."

    connection = ("--url", server.url, "--as", ADMIN)
    exported = watchword("policy", "export", *connection).stdout
    assert watchword("policy", "export", str(tmp_path / "out.yaml"), *connection).stdout == ""
    assert (tmp_path / "out.yaml").read_text() == exported
    assert by_hand.rpartition(":")[2] in exported
    assert "id: root" not in exported


def test_groups_and_accounts_are_applied_pruned_and_exported(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server, file = make_server(), tmp_path / "policies.yaml"
    connection = ("--url", server.url, "--as", ADMIN)
    file.write_text("""\
groups: [{id: ops, name: Operations, members: [urn:li:corpuser:carol]}]
accounts: [{id: airflow, name: Airflow, groups: [urn:li:corpGroup:ops]}]
""")
    ran = watchword("policy", "apply", str(file), *connection)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "+ urn:li:corpGroup:ops",
        '    name: "Operations"',
        '    members: ["urn:li:corpuser:carol", "urn:li:corpuser:service_airflow"]',
        "+ urn:li:corpuser:service_airflow",
        '    name: "Airflow"',
        "2 created, 0 updated, 0 removed, 0 unchanged.",
    ]
    exported = watchword("policy", "export", *connection).stdout
    again = watchword("policy", "apply", "-", "--dry-run", *connection, stdin=exported)
    assert "service_airflow" not in again.stdout
    assert "corpGroup:ops" not in again.stdout
    file.write_text("policies: []")
    pruned = watchword("policy", "apply", str(file), "--prune", "--yes", *connection).stdout.splitlines()
    assert pruned == [
        "- urn:li:corpGroup:ops",
        "~ urn:li:corpuser:service_airflow",
        '    set: "default" -> null',
        "    The file does not declare it. It leaves the set and keeps its tokens: accounts are never removed.",
        "    To delete it: watchword account delete airflow",
        "0 created, 1 updated, 1 removed, 0 unchanged.",
    ]
    assert watchword("account", "show", "airflow", *connection).returncode == 0


def test_apply_rejects_an_invalid_file_with_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(FIRST.replace("VIEW_AUDIT_LOG", "VIEW_EVERYTHING"))
    ran = watchword("policy", "apply", str(file), "--url", "http://127.0.0.1:1", "--as", ADMIN)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"watchword: {file}, line 8: ")
    missing = watchword("policy", "apply", str(tmp_path / "none"), "--url", "http://127.0.0.1:1", "--as", ADMIN)
    assert (missing.returncode, len(missing.stderr.splitlines())) == (1, 1)


def test_policy_file_is_read_from_standard_input(make_server: Callable[..., Server]) -> None:
    words = ("policy", "apply", "-", "--url", make_server().url, "--as", ADMIN)
    applied = watchword(*words, stdin=FIRST)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert applied.stdout.splitlines()[-1] == "2 created, 0 updated, 0 removed, 0 unchanged."
    broken = watchword(*words, stdin=FIRST.replace("VIEW_AUDIT_LOG", "VIEW_EVERYTHING"))
    assert (broken.returncode, broken.stdout) == (1, "")
    assert broken.stderr.startswith("watchword: standard input, line 8: ")


def test_policy_removal_asks_at_a_terminal(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server, file = make_server(), tmp_path / "policies.yaml"
    words = ("policy", "apply", str(file), "--url", server.url, "--as", ADMIN, "--prune")
    file.write_text(FIRST)
    assert watchword(*words, "--yes").returncode == 0
    file.write_text(SECOND)
    with Terminal(*words) as terminal:
        terminal.wait_for("readers? [y/N]")
        terminal.enter("n\n")
        assert terminal.finish() == 1
        assert "Nothing was changed." in terminal.text
    assert "readers" in watchword("policy", "list", *words[3:-1]).stdout
    with Terminal(*words) as terminal:
        terminal.wait_for("readers? [y/N]")
        terminal.enter("y\n")
        assert terminal.finish() == 0
        assert "1 removed" in terminal.text


def test_apply_without_a_terminal_keeps_policies_of_other_files(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server()
    flags = ("--url", server.url, "--as", ADMIN)

    def apply(text: str, *more: str) -> tuple[int, list[str], str]:
        ran = watchword("policy", "apply", "-", *more, *flags, stdin=text)
        return ran.returncode, ran.stdout.splitlines(), ran.stderr

    def sets() -> dict[str, str | None]:
        listed = json.loads(watchword("policy", "list", "--json", *flags).stdout)
        return {one["urn"].rpartition(":")[2]: one["set"] for one in listed if one["source"] == "FILE"}

    others = SECOND.replace("own-tokens", "others")
    assert apply(FIRST)[0] == 0
    assert apply(f"set: team-a\n{others}", "--prune", "--yes")[0] == 0
    assert sets() == {"own-tokens": "default", "readers": "default", "others": "team-a"}

    kept = apply(SECOND)
    assert (kept[0], kept[1][-3:]) == (
        0,
        [
            "! urn:li:servicePolicy:readers",
            "    The file does not declare it. --prune removes it from the set default.",
            "0 created, 1 updated, 0 removed, 0 unchanged.",
        ],
    )
    assert sets() == {"own-tokens": "default", "readers": "default", "others": "team-a"}
    shown = apply(SECOND, "--dry-run")
    assert shown == (3, [*kept[1][-3:-1], "0 to create, 0 to update, 0 to remove, 1 unchanged."], DIFFERS)
    assert apply(SECOND, "--prune", "--dry-run")[1][0] == "- urn:li:servicePolicy:readers"
    assert apply(SECOND, "--prune", "--yes")[:2] == (
        0,
        ["- urn:li:servicePolicy:readers", "0 created, 0 updated, 1 removed, 1 unchanged."],
    )
    assert apply(SECOND, "--dry-run") == (0, ["0 to create, 0 to update, 0 to remove, 1 unchanged."], "")

    code, lines, told = apply(others)
    assert (code, lines) == (1, [])
    assert "others belongs to the policy set 'team-a'; this is the set 'default'. Nothing was changed." in told
    exported = watchword("policy", "export", *flags)
    assert exported.stdout.startswith("set: default\n")
    assert "others" not in exported.stdout
    assert exported.stderr == "watchword: Left out policy sets: team-a. Export each with --set NAME.\n"
    missing = watchword("policy", "export", "--set", "nosuch", *flags)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "watchword: There is no policy set 'nosuch'. Sets here: default, team-a.\n"
    team = watchword("policy", "export", "--set", "team-a", *flags)
    assert (team.stdout.count("- id: "), team.stderr) == (1, "")
    assert apply(team.stdout, "--prune", "--dry-run")[0] == 0
    assert sets() == {"own-tokens": "default", "others": "team-a"}


def test_missing_group_is_a_warning(run: Run, done: Callable[..., str], actor: str) -> None:
    name = actor.rpartition(":")[2][-20:].strip("-_")
    done("group", "create", f"{name}-ops", "--name", "Ops")
    made = (
        f"set: {name}\ngroups: [{{id: {name}-new, name: New}}]\npolicies:\n  - {{id: {name}, name: x, scopes: [a:b], "
    )
    text = f"{made}actors: {{groups: [{name}-opps, {name}-ops, {name}-new]}}}}\n"
    told = (
        f"watchword: There is no group urn:li:corpGroup:{name}-opps: the policies that name it grant nothing by it "
        f"until it has members. Did you mean urn:li:corpGroup:{name}-ops?\n"
    )
    for words, outcome in ((("apply", "-", "--dry-run"), (3, told + DIFFERS)), (("apply", "-"), (0, told))):
        ran = run("policy", *words, stdin=text)
        assert (ran.returncode, ran.stderr) == outcome
    done("policy", "apply", "-", stdin=text.replace("-opps", "-ops"))
