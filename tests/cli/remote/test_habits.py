"""First guesses of people who know other programs: a token's name for its id, other words for commands and flags."""

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, Server
from tests.support.terminal import Terminal

Done = Callable[..., str]
ONLY_OWN = "watchword: Only yours. To see everyone's, pass --all-actors.\n"


def make(server: Server, actor: str, name: str, **how: str) -> str:
    made: str = server.create(ADMIN, of=actor, name=name, **how)["metadata"]["id"]
    return made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("token", "list"), ONLY_OWN),
        (("token", "ls", "--all"), ONLY_OWN),
        (("token", "list", "--json"), ""),
        (("token", "list", "--actor", ADMIN, "--search", "none such"), ""),
        (("token", "list", "-A", "--search", "none such"), ""),
        (("session", "list"), ""),
    ],
    ids=" ".join,
)
def test_list_of_only_ones_own_says_so_to_those_who_may_see_more(
    server: Server, run: Run, actor: str, words: tuple[str, ...], said: str
) -> None:
    server.grant(actor)
    assert run(*words[:2], caller=actor).stderr == ""
    server.grant(actor, privileges=(MANAGE_ALL,))
    ran = run(*words, caller=actor)
    assert (ran.returncode, ran.stderr) == (0, said)


def test_sessions_of_one_or_of_all_are_listed_as_tokens_are(run: Run, actor: str) -> None:
    assert run("session", "list").stderr == ONLY_OWN
    for words in (("-A",), ("--actor", actor), ("--all-actors", "--actor", actor)):
        ran = run("session", "list", *words)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_token_is_shown_changed_rotated_and_revoked_by_its_name(
    server: Server, run: Run, done: Done, actor: str
) -> None:
    server.grant(actor)
    token_id = make(server, actor, "ci")
    make(server, f"{actor}-other", "ci")
    assert json.loads(done("token", "rename", "ci", "ci 2", "--json", caller=actor))["id"] == token_id
    assert json.loads(done("token", "get", "ci 2", "--json", caller=actor))["id"] == token_id
    for_another = make(server, f"{actor}-other", actor)
    assert json.loads(done("token", "show", actor, "--json"))["id"] == for_another
    asked = run("token", "revoke", "ci 2", caller=actor)
    assert (asked.returncode, asked.stdout) == (2, "")
    assert f"{for_another}  ACTIVE" in done("token", "revoke", actor, "--dry-run")
    assert done("token", "delete", "ci 2", "-y", caller=actor) == f"Revoked {token_id}\n"
    assert "'ci 2' is neither." in run("token", "show", "ci 2", caller=actor).stderr
    old = make(server, actor, "nightly")
    done("token", "rotate", "nightly", "--json", caller=actor)
    twice = run("token", "show", "nightly", caller=actor)
    assert (twice.returncode, old in twice.stderr) == (1, True)


def test_terminal_names_the_token_before_it_asks(server: Server, actor: str) -> None:
    server.grant(actor)
    token_id = make(server, actor, "asked")
    with Terminal("token", "revoke", "asked", "--url", server.url, "--as", actor, columns=200) as terminal:
        terminal.wait_for("[y/N]")
        assert f"'asked' is the token {token_id}." in terminal.text
        terminal.enter("n\n")
        assert terminal.finish() == 1


@pytest.mark.parametrize(
    "words",
    [("show",), ("update", "--description", "x"), ("rotate",), ("revoke", "--yes"), ("revoke", "--dry-run")],
    ids=" ".join,
)
def test_name_of_several_tokens_is_never_guessed(server: Server, run: Run, actor: str, words: tuple[str, ...]) -> None:
    server.grant(actor)
    twins = {make(server, actor, "twin") for _ in range(2)}
    ran = run("token", words[0], "twin", *words[1:], caller=actor)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert all(twin in ran.stderr for twin in twins)
    found = json.loads(run("token", "list", "--actor", actor, "--json", caller=actor).stdout)
    assert {(one["id"], one["status"], one["description"]) for one in found} == {
        (twin, "ACTIVE", None) for twin in twins
    }


def test_names_are_neither_taken_for_ids_nor_read_from_standard_input(
    server: Server, run: Run, done: Done, actor: str
) -> None:
    server.grant(actor)
    token_id = make(server, actor, "plain")
    make(server, actor, token_id)
    assert json.loads(done("token", "show", token_id, "--json", caller=actor))["name"] == "plain"
    ran = run("token", "revoke", "-", "--yes", stdin="plain", caller=actor)
    assert (ran.returncode, ran.stdout, "plain" in ran.stderr) == (1, "", False)


def test_policy_is_found_by_a_name_that_only_it_has(done: Done, run: Run, actor: str) -> None:
    name = f"Readers of {actor}"
    made = [done("policy", "create", "--name", name, "--scope", "reports:read").strip() for _ in range(2)]
    for words in (("show",), ("update", "--inactive"), ("delete", "--yes")):
        assert run("policy", words[0], name, *words[1:]).returncode == 1
    assert done("policy", "delete", made[0], "--yes") == f"Deleted {made[0]}\n"
    assert json.loads(done("policy", "show", name, "--json"))["urn"] == made[1]
    assert done("policy", "edit", name, "--inactive") == f"Updated {made[1]}\n"
    assert done("policy", "rm", name, "--yes") == f"Deleted {made[1]}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("group rm ops", "Did you mean delete or remove?"),
        ("actor delete alice", "Did you mean offboard?"),
        ("index rm dataset.operation", "Did you mean truncate?"),
        ("operation delete node:1", "Did you mean cancel?"),
        ("policy diff policies.yaml", "Did you mean apply --dry-run?"),
        ("token renew ci", "Did you mean rotate?"),
        ("token create ci --name ci", "NAME or --name, not both"),
        ("policy who-can GENERATE_TOKENS", "Did you mean GENERATE_PERSONAL_ACCESS_TOKENS?"),
        ("policy who-can manage-policy", "Close privileges: MANAGE_POLICIES"),
        ("policy who-can create-tokens", "only * grants it. Close privileges: GENERATE_PERSONAL_ACCESS_TOKENS, "),
        ("policy who-can zzz:zzz", "Close privileges: none. To list all: watchword policy privileges"),
        ("account create", "Pass ID, --name or both."),
    ],
)
def test_what_is_unclear_or_destroys_is_named_and_not_done(run: Run, words: str, said: str) -> None:
    ran = run(*words.split())
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert said in ran.stderr


def test_scope_that_no_policy_names_is_pointed_out(server: Server, run: Run, done: Done, actor: str) -> None:
    scope = actor.rpartition(":")[2].lower()
    ran = run("policy", "explain", actor, f"{scope}:read")
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (0, "Allowed   no")
    assert f"No policy names the scope {scope}:read; only * grants it." in ran.stderr
    done("policy", "create", "--name", actor, "--scope", f"{scope}:*", "--inactive")
    for right in ("manage_policies", f"{scope}:read", "*"):
        done("policy", "who-can", right)
        done("policy", "explain", actor, right)
    server.grant(actor)
    own = run("policy", "explain", actor, "create-tokens", caller=actor)
    assert (own.returncode, own.stdout.splitlines()[0]) == (0, "Allowed   no")
    denied = run("policy", "who-can", "create-tokens", caller=actor)
    assert (denied.returncode, "You lack the privilege" in denied.stderr) == (1, True)


def test_limited_token_finds_tokens_by_name_among_those_that_act_as_its_actor(
    server: Server, run: Run, actor: str, tmp_path: Path
) -> None:
    server.grant(actor)
    file = tmp_path / "limited"
    made = server.create(ADMIN, of=actor, name="limited", scopes=[GENERATE])
    file.write_text(made["accessToken"])
    other = make(server, actor, "other")

    def by_token(*words: str) -> "CompletedProcess[str]":
        return watchword(*words, "--token-file", str(file), "--url", server.url)

    shown = by_token("token", "show", "limited", "--json")
    assert json.loads(shown.stdout)["id"] == made["metadata"]["id"]
    assert by_token("token", "rotate", "limited").returncode == 0
    revoked = by_token("token", "revoke", "other", "--yes")
    assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, f"Revoked {other}\n", "")


def test_token_that_expires_earlier_than_asked_is_pointed_out(server: Server, actor: str, tmp_path: Path) -> None:
    server.grant(actor)
    file = tmp_path / "limited"
    file.write_text(server.create(ADMIN, of=actor, scopes=[GENERATE])["accessToken"])
    for flags, notes in ((("--duration", "30d"), 1), (("--duration", "5m"), 0), ((), 0)):
        ran = watchword("token", "create", "short", *flags, "--token-file", str(file), "--url", server.url)
        assert (ran.returncode, ran.stderr.count("\n")) == (0, notes), ran.stderr
        assert ran.stderr.count("The token expires with the one that created it") == notes


@pytest.mark.parametrize("words", ["key list --as admin", "--as admin key list", "doctor --url http://127.0.0.1:1"])
def test_flags_of_a_caller_are_explained_where_a_command_works_on_the_store(words: str) -> None:
    ran = watchword(*words.split())
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "This works on the store and needs no actor." in ran.stderr


def test_words_and_flags_of_other_programs_work(
    server: Server, run: Run, done: Done, actor: str, tmp_path: Path
) -> None:
    server.grant(actor)
    made = json.loads(done("token", "new", "habit", "--ttl=7d", "--json", caller=actor))
    listed = done("token", "ls", "--expires-before", "8d", "--expires-after", "6d", caller=actor)
    assert (made["name"], made["id"] in listed) == ("habit", True)
    account = f"habit-{actor.rpartition('-')[2]}"
    assert json.loads(done("account", "add", account, "--json"))["displayName"] == account
    file = tmp_path / "small.yaml"
    file.write_text("set: habits\npolicies: []\n")
    for flag in ("-f", "--filename"):
        assert done("policy", "apply", flag, str(file), "--dry-run").endswith("0 unchanged.\n")
    assert done("index", "list") == done("series", "list")
    assert done("user", "list", "--search", actor).startswith("URN ")
    assert done("audit", "list", "--actor", actor, "--json").startswith("[")
    assert "rule for dataset.operation" in run("retention", "show", "dataset/operation").stderr
