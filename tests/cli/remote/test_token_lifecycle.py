"""Limits, derived tokens, rotation, bulk revocation and service accounts, by commands."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, Server
from tests.support.store_file import change_store
from tests.support.terminal import Terminal

Done = Callable[..., str]


def test_token_is_created_and_shown_with_limits(server: Server, done: Done, actor: str) -> None:
    server.grant(actor, scopes=("orders:read",))
    limits = ("--scope", "orders:read", "--scope", GENERATE, "--audience", "https://api.example")
    words = ("--name", "shop", "--actor", actor, *limits, "--network", "10.0.0.0/8", "--json")
    made = json.loads(done("token", "create", *words))
    assert made["scopes"] == [GENERATE, "orders:read"]
    assert (made["audience"], made["allowedNetworks"]) == (["https://api.example"], ["10.0.0.0/8"])
    shown = done("token", "show", made["id"])
    assert re.search(rf"Scopes +{GENERATE},orders:read\nAudience +https://api.example\nNetworks +10.0.0.0/8\n", shown)
    none = json.loads(done("token", "create", "--name", "x", "--actor", actor, "--no-scopes", "--json"))
    assert (none["scopes"], none["audience"]) == ([], None)
    assert re.search(r"Scopes +nothing\nAudience +this service\nNetworks +any\n", done("token", "show", none["id"]))


def test_name_and_description_are_edited(run: Run, done: Done, server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor, name="old")["metadata"]["id"]
    shown = done("token", "update", made, "--name", "reports", "--description", "nightly")
    assert re.search(r"Name +reports\nDescription +nightly\n", shown)
    assert json.loads(done("token", "update", made, "--description", "", "--json"))["description"] is None
    assert "reports" in done("token", "show", made)
    assert run("token", "update", made).returncode == 2


def test_local_token_can_have_limits(server: Server) -> None:
    ran = server.command_line("token", "create", "--local", "--scope", "orders:read", "--json")
    assert json.loads(ran.stdout)["scopes"] == ["orders:read"]
    token = json.loads(ran.stdout)["accessToken"]
    assert server.verify(token).headers["X-Auth-Scopes"] == "orders:read"
    wrong = server.command_line("token", "create", "--local", "--scope", "NO_SUCH_PRIVILEGE")
    assert (wrong.returncode, wrong.stdout) == (1, "")


def test_derived_token_is_printed_and_revoked_with_its_parent(server: Server, actor: str, tmp_path: Path) -> None:
    server.grant(actor, scopes=("a",))
    parent = server.create(actor)
    (tmp_path / "token").write_text(parent["accessToken"])
    words = ("--url", server.url, "--token-file", str(tmp_path / "token"))
    ran = watchword("token", "derive", "--name", "job", "--duration", "PT5M", "--scope", "a", *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    child = ran.stdout.strip()
    assert server.verify(child).headers["X-Auth-Scopes"] == "a"
    server.revoke(parent["metadata"]["id"])
    assert server.verify(child).status_code == 401


def test_rotation_prints_the_new_token_and_its_use_starts_the_grace_period(
    server: Server, done: Done, actor: str
) -> None:
    old = server.create(ADMIN, of=actor, duration="ONE_WEEK")
    token_id = old["metadata"]["id"]
    new = done("token", "rotate", token_id, "--overlap", "12h", "--grace", "0s").strip()
    assert server.verify(old["accessToken"]).status_code == 204
    new_id = json.loads(done("token", "show", token_id, "--json"))["replacedBy"]
    waiting = done("token", "show", new_id)
    assert re.search(rf"Replaces +{re.escape(token_id)}\nFirst use +pending", waiting)
    assert server.verify(new).status_code == 204
    assert server.verify(old["accessToken"]).status_code == 401
    assert "Replaced by" in done("token", "show", token_id)
    assert "First use" not in done("token", "show", new_id)


def test_rotation_replaces_the_token_in_a_file(server: Server, actor: str, tmp_path: Path) -> None:
    server.grant(actor)
    old = server.create(actor)["accessToken"]
    file = tmp_path / "token"
    file.write_text(old)
    ran = watchword("token", "rotate", "--file", str(file), "--grace", "0s", "--json", "--url", server.url)
    assert (ran.returncode, ran.stderr) == (0, "")
    new = file.read_text()
    told = json.loads(ran.stdout)
    assert server.verify(new).headers["X-Auth-Token-Id"] == told["id"]
    assert (told["file"], told["actorUrn"]) == (str(file), actor)
    assert server.verify(old).status_code == 401
    assert not {old, new} & set(re.findall(r"eyJ[\w.-]+", ran.stdout))


def test_another_caller_rotates_the_token_in_a_file(
    server: Server, run: Run, done: Done, actor: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(server.create(ADMIN, of=actor, scopes=[])["accessToken"])
    own = watchword("token", "rotate", "--file", str(file), "--url", server.url)
    assert own.returncode == 1
    assert GENERATE in own.stderr
    assert done("token", "rotate", "--file", str(file)).startswith("File")
    file.write_text("no token")
    wrong = run("token", "rotate", "--file", str(file))
    assert (wrong.returncode, wrong.stdout, len(wrong.stderr.splitlines())) == (2, "", 1)
    assert "no token" not in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("rotate",),
        ("rotate", "A" * 43 + "=", "--file", "x"),
        ("revoke",),
        ("revoke", "A" * 43 + "=", "--actor", "urn:li:corpuser:a"),
        ("revoke", "--actor", "urn:li:corpuser:a"),
        ("create", "--name", "x", "--scope", "a", "--no-scopes"),
        ("scan", "-", "-"),
    ],
    ids=" ".join,
)
def test_contradictory_options_are_usage_errors(run: Run, words: tuple[str, ...]) -> None:
    ran = run("token", *words)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (2, "", 1)


def test_bulk_revocation_counts_then_prints_a_receipt(server: Server, done: Done, actor: str) -> None:
    ids = [server.create(ADMIN, of=actor, name=name)["metadata"]["id"] for name in ("nightly 1", "nightly 2", "laptop")]
    some = ("--actor", actor, "--search", "nightly")
    plan = done("token", "revoke", *some, "--dry-run")
    assert re.search(rf"2 +{actor}\n2 tokens to revoke\.\nThis was a dry run", plan)
    assert json.loads(done("token", "revoke", *some, "--dry-run", "--json"))["count"] == 2
    ended = done("token", "revoke", *some, "--yes")
    assert re.search(r"Revoked 2 tokens at \S+Z\. Receipt: [0-9a-f]{64}\n", ended)
    receipt = json.loads(done("token", "revoke", "--actor", actor, "--yes", "--json"))
    assert (receipt["count"], len(receipt["digest"])) == (1, 64)
    assert json.loads(done("token", "show", ids[2], "--json"))["revokedAt"] == receipt["revokedAt"]
    assert "0 tokens" in done("token", "revoke", "--actor", actor, "--yes")


def test_bulk_revocation_defaults_to_own_tokens(server: Server, run: Run, done: Done, actor: str) -> None:
    server.grant(actor)
    server.create(actor)
    server.create(ADMIN, of=f"{actor}-b")
    assert json.loads(done("token", "revoke", "--search", "", "--dry-run", "--json", caller=actor))["count"] == 1
    denied = run("token", "revoke", "--all-actors", "--dry-run", caller=actor)
    assert (denied.returncode, denied.stdout) == (1, "")
    assert MANAGE_ALL in denied.stderr
    assert json.loads(done("token", "revoke", "--all-actors", "--dry-run", "--json"))["count"] >= 2


def test_bulk_revocation_asks_at_a_terminal(server: Server, actor: str) -> None:
    made = server.create(ADMIN, of=actor)["accessToken"]
    where = ("--url", server.url, "--as", ADMIN)
    with Terminal("token", "revoke", "--actor", actor, *where) as terminal:
        terminal.wait_for("Revoke 1 token? This cannot be undone.")
        assert actor in terminal.text
        terminal.enter("n\r")
        assert terminal.finish() == 1
    assert server.verify(made).status_code == 204
    with Terminal("token", "revoke", "--actor", actor, *where) as terminal:
        terminal.wait_for("Revoke 1 token? This cannot be undone.")
        another = server.create(ADMIN, of=actor)["metadata"]["id"]
        terminal.enter("y\r")
        assert terminal.finish() == 1
        assert "2 tokens match; atMost is" in terminal.text
    assert server.verify(made).status_code == 204
    server.revoke(another)
    with Terminal("token", "revoke", "--actor", actor, *where) as terminal:
        terminal.wait_for("Revoke 1 token? This cannot be undone.")
        terminal.enter("y\r")
        assert terminal.finish() == 0
        assert "Receipt" in terminal.text
    assert server.verify(made).status_code == 401


def test_cascade_needs_a_flag(server: Server, done: Done, actor: str) -> None:
    server.grant(actor)
    first = server.create(actor)
    minted = server.create(actor, token=first["accessToken"])
    assert (
        json.loads(done("token", "show", minted["metadata"]["id"], "--json"))["createdWith"] == first["metadata"]["id"]
    )
    done("token", "revoke", first["metadata"]["id"], "--cascade", "--yes")
    assert server.verify(minted["accessToken"]).status_code == 401


def test_dry_run_of_a_cascade_shows_the_tree(server: Server, run: Run, done: Done, actor: str) -> None:
    server.grant(actor)
    first = server.create(actor, name="first")
    minted = server.create(actor, token=first["accessToken"], name="minted")
    last = server.create(actor, token=minted["accessToken"], name="last")
    ids = [one["metadata"]["id"] for one in (first, minted, last)]
    shown = done("token", "revoke", ids[0], "--cascade", "--dry-run")
    names = ("first", "minted", "last")
    assert shown.splitlines() == [
        *(f"{'  ' * depth}{ids[depth]}  ACTIVE  {names[depth]}  {actor}" for depth in range(3)),
        "3 tokens to revoke.",
        "This was a dry run. Nothing was revoked.",
    ]
    assert done("token", "revoke", ids[0], "--dry-run").splitlines()[-2] == "1 token to revoke."
    plan = json.loads(done("token", "revoke", ids[1], "--cascade", "--dry-run", "--json"))
    assert (plan["count"], [(one["id"], one["depth"]) for one in plan["tokens"]]) == (2, [(ids[1], 0), (ids[2], 1)])
    for one in (first, minted, last):
        assert server.verify(one["accessToken"]).status_code == 204
    missing = run("token", "revoke", "x" * 43 + "=", "--dry-run")
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (1, "", 1)


def test_unused_tokens_are_found(server: Server, done: Done, actor: str) -> None:
    idle, used, new = (server.create(ADMIN, of=actor, name=name)["metadata"]["id"] for name in ("idle", "used", "new"))
    change_store(server, "UPDATE tokens SET created_at = created_at - 100 * 86400000 WHERE id IN (?, ?)", idle, used)
    change_store(
        server, "UPDATE tokens SET last_used_at = created_at + 99 * 86400000, use_count = 3 WHERE id = ?", used
    )
    found = json.loads(done("token", "list", "--actor", actor, "--unused-for", "90d", "--json"))
    assert [token["name"] for token in found] == ["idle"]
    assert new not in done("token", "list", "--actor", actor, "--unused-for", "P90D")
    assert re.search(r"Uses +3\n", done("token", "show", used))


def test_service_account_commands_create_show_and_delete(server: Server, run: Run, done: Done, actor: str) -> None:
    urn = done("account", "create", "--name", f"CI of {actor}", "--description", "Builds.").strip()
    token = done("token", "create", "--name", "nightly", "--actor", urn).strip()
    assert server.verify(token).headers["X-Auth-Urn"] == urn
    shown = json.loads(done("account", "show", urn.rpartition("_")[2], "--json"))
    assert (shown["displayName"], shown["liveTokens"], shown["createdBy"]) == (f"CI of {actor}", 1, ADMIN)
    assert [found["urn"] for found in json.loads(done("account", "list", "--search", actor, "--json"))] == [urn]
    assert any(line.startswith(urn) for line in done("account", "list", "--all").splitlines())
    assert done("account", "delete", urn, "--yes") == f"Deleted {urn} with 1 token\n"
    assert server.verify(token).status_code == 401
    gone = run("account", "show", urn)
    assert (gone.returncode, gone.stdout, len(gone.stderr.splitlines())) == (1, "", 1)
    denied = run("account", "list", caller=actor)
    assert (denied.returncode, denied.stdout) == (1, "")
    assert "MANAGE_SERVICE_ACCOUNTS" in denied.stderr


def test_unprintable_new_token_leaves_the_old_one_valid(server: Server, actor: str) -> None:
    old = server.create(ADMIN, of=actor)
    words = f"token rotate {old['metadata']['id']} --url {server.url} --as {ADMIN}"
    ran = _to_full_disk(words)
    assert ran.returncode == 1
    assert "old one stays valid" in ran.stderr
    assert server.verify(old["accessToken"]).status_code == 204


def _to_full_disk(words: str) -> "subprocess.CompletedProcess[str]":
    with Path("/dev/full").open("w") as full:
        return subprocess.run(
            [sys.executable, "-m", "watchword", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
