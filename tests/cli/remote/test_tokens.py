"""`watchword token` against a real server, in a pipe."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store

Done = Callable[..., str]
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def make(server: Server, actor: str, *names: str, **fields: Any) -> list[str]:
    return [server.create(ADMIN, of=actor, name=name, **fields)["metadata"]["id"] for name in names]


def test_piped_new_token_is_printed_alone(server: Server, done: Done, actor: str) -> None:
    server.grant(actor)
    printed = done("token", "create", "--name", "laptop", "--description", "Mine.", caller=actor)
    token = printed.removesuffix("\n")
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", token)
    assert server.verify(token).headers["X-Auth-Urn"] == actor
    listed = watchword("token", "list", "--json", env={"WATCHWORD_URL": server.url, "WATCHWORD_TOKEN": token})
    (found,) = json.loads(listed.stdout)
    assert (found["name"], found["description"], found["status"]) == ("laptop", "Mine.", "ACTIVE")


def test_new_token_as_json_has_the_token_and_its_record(server: Server, done: Done, actor: str) -> None:
    words = ("--name", "nightly", "--duration", "P3D", "--actor", actor, "--json")
    made = json.loads(done("token", "create", *words))
    assert server.verify(made["accessToken"]).headers["X-Auth-Token-Id"] == made["id"]
    assert (made["actorUrn"], made["ownerUrn"], made["revokedAt"]) == (actor, ADMIN, None)
    assert re.fullmatch(ISO, made["expiresAt"])
    shown = json.loads(done("token", "show", made["id"], "--json"))
    assert [one["count"] for one in shown.pop("usesByDay")] == [0] * 14  # uses are written after the request
    assert shown.pop("networks") == []
    unused = {"lastUsedAt": None, "useCount": 0, "lastNetwork": None}
    assert {**shown, **unused} == {name: value for name, value in made.items() if name != "accessToken"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "--name"),
        (("--name", "x", "--data-dir", "d"), "--local"),
        (("--name", "x", "--local"), "--local"),
    ],
)
def test_contradictory_token_options_are_usage_errors(run: Run, flags: tuple[str, ...], said: str) -> None:
    ran = run("token", "create", *flags)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_list_shows_own_tokens_or_all_with_the_privilege(server: Server, run: Run, done: Done, actor: str) -> None:
    server.grant(actor)
    own, other = make(server, actor, "mine")[0], make(server, f"{actor}-b", "other")[0]
    listed = done("token", "list", caller=actor)
    assert own in listed
    assert other not in listed
    assert done("token", "list", "--actor", f"{actor}-b").count(other) == 1
    words = ("token", "list", "--all-actors", "--owner", ADMIN, "--all", "--json")
    everyone = {token["id"] for token in json.loads(done(*words))}
    assert {own, other} <= everyone
    denied = run("token", "list", "--all-actors", caller=actor)
    assert (denied.returncode, denied.stdout) == (1, "")
    assert "MANAGE_ACCESS_TOKENS" in denied.stderr


def test_list_is_filtered_sorted_and_limited(server: Server, done: Done, actor: str) -> None:
    make(server, actor, "c-day", "a-day", "b-day", duration="ONE_DAY")
    ended = make(server, actor, "old", "dead", duration="ONE_YEAR")
    change_store(server, "UPDATE tokens SET expires_at = 1000, created_at = 1 WHERE id = ?", ended[0])
    server.revoke(ended[1])

    def names(*flags: str) -> list[str]:
        return [found["name"] for found in json.loads(done("token", "list", "--actor", actor, "--json", *flags))]

    assert names("--sort", "name") == ["a-day", "b-day", "c-day", "old"]
    assert names("--sort", "name", "--descending")[:2] == ["old", "c-day"]
    assert names("--status", "REVOKED", "--status", "EXPIRED", "--sort", "name") == ["dead", "old"]
    assert names("--search", "A-D") == ["a-day"]
    assert names("--scope", "reports:read") == names("--network", "10.0.0.0/24") == names("--status", "suspended") == []
    assert names("--expires-before", "2020-01-01") == names("--created-before", "P10D") == ["old"]
    assert set(names("--expires-after", "PT1H", "--created-after", "PT1H", "--expires-before", "P2D")) == {
        "a-day",
        "b-day",
        "c-day",
    }
    assert names("--used-before", "2030-01-01T00:00Z") == []


def test_piped_list_is_aligned_complete_and_plain(server: Server, done: Done, actor: str) -> None:
    ids = make(server, actor, "short", "a name with blanks", "日本語の名前", "n" * 200)
    env = {"FORCE_COLOR": "1", "COLUMNS": "40", "TERM": "xterm"}
    head, *lines = done("token", "list", "--actor", actor, "--sort", "createdAt", env=env).splitlines()
    assert head.split() == ["ID", "NAME", "STATUS", "EXPIRES", "USED", "ACTOR"]
    assert [line.split()[0] for line in lines] == ids
    assert all(line.endswith(f"  -     {actor}") and re.search(ISO, line) for line in lines)
    assert "n" * 200 in lines[3]
    assert "\x1b" not in "".join(lines)
    assert head.index("STATUS") == lines[1].index("ACTIVE") == lines[3].index("ACTIVE")


def test_tokens_are_revoked_by_id_urn_and_list(server: Server, run: Run, done: Done, actor: str) -> None:
    ids = make(server, actor, *"abcde")
    urn = f"urn:li:serviceAccessToken:{ids[1]}"
    assert done("token", "revoke", ids[0], urn, "--yes") == f"Revoked {ids[0]}\nRevoked {urn}\n"
    assert done("token", "revoke", "-", "--yes", stdin=f"{ids[2]}\n\n{ids[3]}\n").count("Revoked") == 2
    assert (
        done("token", "revoke", "-", "--yes", stdin=done("token", "list", "--actor", actor, "--json")).count(ids[4])
        == 1
    )
    again = run("token", "revoke", ids[0], "nonsense", "-", "--yes", stdin="[1]")
    assert (again.returncode, again.stdout) == (2, "")
    mixed = make(server, actor, "f")[0]
    some = run("token", "revoke", ids[0], "nonsense", mixed, "--yes")
    assert (some.returncode, some.stdout) == (1, f"Revoked {mixed}\n")
    first, second = some.stderr.splitlines()
    assert ids[0] in first
    assert "Number 2 " in second
    last = make(server, actor, "g")[0]
    some = run("token", "revoke", ids[0], last, "--yes", "--json")
    assert (some.returncode, json.loads(some.stdout)) == (1, [{"id": last, "revoked": True}])
    assert ids[0] in some.stderr
    preview = run("token", "revoke", last, "--dry-run")
    assert (preview.returncode, preview.stdout.endswith("Nothing was revoked.\n")) == (0, True)


def test_one_token_is_shown_line_by_line(server: Server, run: Run, done: Done, actor: str) -> None:
    (token_id,) = make(server, actor, "laptop", description="two\nlines")
    lines = dict(line.split(None, 1) for line in done("token", "show", token_id).splitlines())
    assert (lines["Name"], lines["Id"], lines["Description"]) == ("laptop", token_id, r"two\nlines")
    missing = run("token", "show", "A" * 43 + "=")
    assert (missing.returncode, missing.stdout, len(missing.stderr.splitlines())) == (1, "", 1)
