"""Conventions of the command line: durations, limits, case, names, standard input, following, TLS hints."""

import csv
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, MANAGE_ALL, Server
from tests.support.terminal import Terminal
from tests.support.waiting import until
from watchword.basics.times import parse_span
from watchword.cli.output import json_value
from watchword.declared.policy_file import read_yaml

Done = Callable[..., str]
DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90d", 90 * DAY), ("12H", DAY // 2), ("1d12h", DAY + DAY // 2), ("P90D", 90 * DAY), ("pt12h", DAY // 2),
        ("ONE_DAY", DAY), ("three_months", 90 * DAY), ("0s", 0), ("90", None), ("d", None), ("", None), ("-1d", None),
        ("NO_EXPIRY", None), ("P1Y", None),
    ],
)  # fmt: skip
def test_durations_are_parsed_in_every_form_and_case(text: str, milliseconds: int | None) -> None:
    assert parse_span(text) == milliseconds


@pytest.mark.parametrize("duration", ["7d", "168h", "P7D", "ONE_WEEK", "one_week"])
def test_token_lifetime_takes_every_form_of_a_duration(done: Done, duration: str) -> None:
    made = json.loads(done("token", "create", "--name", "habit", "--duration", duration, "--json"))
    words = ("token", "list", "--expires-before", "8d", "--expires-after", "p6d", "--all", "-o", "json")
    listed = json.loads(done(*words))
    assert made["id"] in {token["id"] for token in listed}


@pytest.mark.parametrize(
    "words",
    [
        ("token", "list"), ("token", "list", "--all-actors"), ("event", "list"), ("operation", "list"),
        ("policy", "list"), ("group", "list"), ("actor", "list"), ("account", "list"), ("event", "actions"),
        ("policy", "privileges"), ("index", "sizes"), ("policy", "who-can", "manage_policies"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_all_shows_everything_and_o_json_is_json(server: Server, run: Run, done: Done, words: tuple[str, ...]) -> None:
    server.create(ADMIN)
    everything = json.loads(done(*words, "--all", "-o", "json"))
    assert len(json.loads(run(*words, "--limit", "1", "--json").stdout)) == min(1, len(everything))


def test_list_says_when_there_is_more(server: Server, run: Run, actor: str) -> None:
    made = [server.create(ADMIN, of=actor)["metadata"]["id"] for _ in range(3)]
    words = ("token", "list", "--actor", actor, "--json")
    first = run(*words, "--limit", "2")
    assert (first.returncode, len(json.loads(first.stdout))) == (0, 2)
    assert first.stderr == "watchword: There are more. To see all, pass --all.\n"
    for more in (("--limit", "3"), ("--limit", "2", "--all")):
        whole = run(*words, *more)
        assert (len(json.loads(whole.stdout)), whole.stderr) == (len(made), "")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_global_flags_stand_before_or_after_the_verb(server: Server, actor: str, place: int) -> None:
    server.create(ADMIN, of=actor)
    given = ["--url", server.url, "--as", ADMIN, "-o", "json", "--debug"]
    words = ["token", "list"]
    ran = watchword(*words[:place], *given, *words[place:], "--actor", actor)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [token["actorUrn"] for token in json.loads(ran.stdout)] == [actor]


def test_last_of_two_values_of_a_global_flag_counts(server: Server, actor: str) -> None:
    ran = watchword("--as", ADMIN, "--json", "whoami", "--as", actor, "-o", "csv", "--url", server.url)
    assert ran.stdout.splitlines()[1].startswith(f"{actor},")


def test_global_flag_that_a_command_does_not_take_is_rejected() -> None:
    ran = watchword("--profile", "x", "completion", "bash")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--profile" in ran.stderr


def test_token_before_the_verb_is_not_repeated(server: Server) -> None:
    token = server.create(ADMIN)["accessToken"]
    for flag in ("--as", "--profile", "--url", "--token-file"):
        ran = watchword(flag, token, "token", "list")
        assert (ran.returncode, ran.stdout) == (2, "")
        assert token not in ran.stderr


def test_formats_have_the_same_records(server: Server, done: Done, actor: str) -> None:
    name = '=cmd|"x"!A1, \u00e4;-b'
    server.create(ADMIN, of=actor, name=name)
    listing = ("token", "list", "--actor", actor, "-o")
    (record,) = json.loads(done(*listing, "json"))
    assert record["name"] == name
    assert read_yaml(done(*listing, "yaml").encode(), "it") == [record]
    head, line = csv.reader(done(*listing, "csv").splitlines())
    assert head == list(record)
    cells = dict(zip(head, line, strict=True))
    assert cells["name"] == "'" + name.replace(";-", ";'-")
    assert (cells["id"], cells["description"]) == (record["id"], "")
    one = json.loads(done("token", "show", record["id"], "--json"))
    assert read_yaml(done("token", "show", record["id"], "-o", "yaml").encode(), "it") == one
    assert done("token", "show", record["id"], "-o", "csv").splitlines()[0].split(",") == list(one)


def test_empty_list_has_no_records_in_any_format(done: Done, actor: str) -> None:
    shown = {form: done("token", "list", "--actor", actor, "-o", form) for form in ("json", "yaml", "csv")}
    assert shown == {"json": "[]\n", "yaml": "", "csv": ""}


def test_status_is_accepted_in_any_case(server: Server, done: Done, actor: str) -> None:
    token_id = server.create(ADMIN, of=actor)["metadata"]["id"]
    for status in ("active", "Active", "ACTIVE"):
        assert token_id in done("token", "list", "--actor", actor, "--status", status)
    assert token_id not in done("token", "list", "--actor", actor, "--status", "revoked")


def test_as_takes_a_name(server: Server) -> None:
    for name in ("admin", ADMIN):
        ran = watchword("whoami", "--url", server.url, "--as", name)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ADMIN in ran.stdout


def test_every_actor_may_be_given_by_name(server: Server, done: Done, actor: str) -> None:
    name = actor.removeprefix("urn:li:corpuser:")
    token_id = server.create(ADMIN, of=actor)["metadata"]["id"]
    assert json.loads(done("actor", "show", name, "--json"))["urn"] == actor
    assert token_id in done("token", "list", "--actor", name)
    assert token_id in done("event", "list", "--about", name, "--target", token_id)
    done("group", "create", name, "--name", "Named")
    assert done("group", "add", name, name) == f"urn:li:corpGroup:{name} has 1 member.\n"
    urn = done("policy", "create", "--name", name, "--scope", "reports:read", "--user", name).strip()
    assert f"Granted to   {actor}\n" in done("policy", "show", urn)
    assert done("policy", "explain", name, "reports:read").startswith("Allowed   yes")
    assert done("session", "list", "--actor", name).count("\n") == 1


def test_token_itself_is_shown_and_revoked_from_standard_input(server: Server, done: Done, run: Run) -> None:
    made = server.create(ADMIN)
    token, token_id = made["accessToken"], made["metadata"]["id"]
    assert json.loads(done("token", "show", "-", "--json", stdin=f"{token}\n"))["id"] == token_id
    assert json.loads(done("token", "show", "-", "--json", stdin=f"{token_id}\n"))["id"] == token_id
    assert done("token", "revoke", "-", "--yes", stdin=token) == f"Revoked {token_id}\n"
    assert server.verify(token).json()["error"]["reason"] == "token_revoked"
    again = run("token", "revoke", "-", "--yes", stdin=token)
    assert (again.returncode, again.stdout) == (1, "")
    assert token not in again.stderr


def test_standard_input_is_read_for_one_thing(server: Server) -> None:
    ran = watchword("token", "show", "-", "--token-file", "-", "--url", server.url, stdin="x")
    assert ran.returncode == 2
    assert "Standard input can be read once" in ran.stderr


def test_who_can_lists_users_groups_and_what_includes_a_privilege(server: Server, done: Done, actor: str) -> None:
    policy = server.grant(actor, privileges=(MANAGE_ALL,), groups=["urn:li:corpGroup:none-such"])
    server.set_status(actor, "SUSPENDED")
    found = json.loads(done("policy", "who-can", "generate_personal_access_tokens", "--json"))
    (row,) = [row for row in found if row["actorUrn"] == actor]
    assert row == {
        "actorUrn": actor,
        "actorName": None,
        "status": "SUSPENDED",
        "policyUrn": policy,
        "policyName": "test policy",
        "via": "USER",
        "groupUrn": None,
        "privilege": MANAGE_ALL,
    }
    assert ADMIN in {row["actorUrn"] for row in found}


def test_scope_is_granted_explained_and_listed(server: Server, done: Done, actor: str) -> None:
    name = actor.rpartition(":")[2]
    urn = done("policy", "create", "--name", name, "--scope", f"{name}:*", "--user", actor).strip()
    assert f"Scopes       {name}:*\n" in done("policy", "show", urn)
    assert done("policy", "explain", actor, f"{name}:read").splitlines()[0] == "Allowed   yes"
    found = json.loads(done("policy", "who-can", f"{name}:read", "--json"))
    root, row = found
    assert (row["actorUrn"], row["policyUrn"], row["privilege"]) == (actor, urn, f"{name}:*")
    assert (root["actorUrn"], root["privilege"]) == (ADMIN, "*")
    assert re.search(rf"^Scopes +{name}:\*$", done("actor", "show", actor), re.MULTILINE)
    assert json.loads(done("whoami", "--json", caller=actor))["scopes"] == [f"{name}:*"]
    done("policy", "update", urn, "--privilege", MANAGE_ALL, "--scope", "")
    assert json.loads(done("policy", "show", urn, "--json"))["scopes"] == []
    ran = watchword("policy", "who-can", "Nonsense", "--url", server.url)
    assert ran.returncode == 2
    assert "must be a scope such as reports:read" in ran.stderr


@pytest.mark.parametrize("form", [(), ("-o", "json")], ids=["text", "json"])
def test_followed_events_are_printed_as_they_happen(server: Server, actor: str, form: tuple[str, ...]) -> None:
    before = server.create(ADMIN, of=actor)["metadata"]["id"]
    words = ("event", "list", "--follow", "--limit", "1", "--action", "token.created", "--as", "admin")
    with Terminal(*words, *form, "--url", server.url, columns=200) as terminal:
        terminal.wait_for(before)
        after = server.create(ADMIN, of=actor)["metadata"]["id"]
        terminal.wait_for(after)
        assert terminal.text.count(before) == 1
        assert terminal.interrupt() == 130


def test_following_without_a_match_reads_only_what_is_new(make_server: Callable[..., Server], actor: str) -> None:
    server = make_server()
    asked = 'watchword_http_requests_total{route="/api/graphql",status="200"}'
    words = ("event", "list", "--follow", "--actor", actor, "--as", "admin", "--url", server.url)

    with Terminal(*words, columns=200) as terminal:
        before = server.samples()[asked]
        until(lambda: server.samples()[asked] >= before + 4, "it looks again")
        long_ago = (1_000, actor, "actor.updated", "long-ago", "", "", "{}")
        with closing(sqlite3.connect(server.data_dir / "watchword.db", timeout=10)) as connection, connection:
            insert = "INSERT INTO events (at, actor, action, target, peer, request_id, detail) VALUES"
            connection.execute(f"{insert} (?, ?, ?, ?, ?, ?, ?)", long_ago)
        server.grant(actor)
        made = server.create(actor)["metadata"]["id"]
        terminal.wait_for(made)
        assert "long-ago" not in terminal.text
        assert terminal.interrupt() == 130


def test_events_about_an_actor_include_those_of_its_tokens(server: Server, done: Done, actor: str) -> None:
    made = server.create(ADMIN, of=actor)["metadata"]["id"]
    server.revoke(made)
    server.set_status(actor, "SUSPENDED")
    policy = server.grant(actor)
    server.create(ADMIN, of=f"{actor}-other")
    found = json.loads(done("event", "list", "--about", actor, "--json"))
    assert [(event["action"], event["target"]) for event in found] == [
        ("policy.created", policy),
        ("actor.suspended", actor),
        ("token.revoked", made),
        ("token.created", made),
    ]
    assert {event["actorUrn"] for event in found} == {ADMIN}


def test_search_that_is_too_long_is_named_as_it_was_typed(run: Run) -> None:
    ran = run("actor", "list", "--search", "x" * 1_000)
    assert ran.returncode == 1
    assert ran.stderr.startswith("watchword: --search must ")


def test_number_is_no_time_whatever_its_name() -> None:
    @dataclass
    class Counted:
        repeat_at: int
        seen_at: datetime

    assert json_value(Counted(5, datetime(2026, 11, 19, tzinfo=UTC))) == {
        "repeatAt": 5,
        "seenAt": "2026-11-19T00:00:00.000Z",
    }
