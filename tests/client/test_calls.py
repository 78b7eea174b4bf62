"""Every client call, on a real server."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, GENERATE, Server
from watchword import __version__
from watchword.client import (
    BadRequest,
    Conflict,
    Duration,
    NotFound,
    PolicyActors,
    TokenFilter,
    Unauthenticated,
)

Call = Callable[[Any], object]


def test_server_version_needs_no_credential(server: Server, connect: Clients) -> None:
    told = connect(server.url).server_info()
    assert told.version == __version__
    assert "tokens" in told.capabilities


def test_text_of_any_script_may_be_as_long_as_any_other(server: Server, connect: Clients) -> None:
    names = [f"{number:03}" + "\N{KEY}" * 160 for number in range(300)]
    assert list(connect(server.url, actor=ADMIN).tokens.list(TokenFilter("name", names, condition="IN"))) == []


def test_server_rejects_invalid_text(server: Server, connect: Clients) -> None:
    with pytest.raises(BadRequest):
        list(connect(server.url, actor=ADMIN).tokens.list(TokenFilter("name", "\ud800")))


def test_caller_learns_who_it_is_and_what_it_may_do(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    client = connect(server.url, actor=actor)
    assert (client.me().urn, client.me().username) == (actor, actor.rpartition(":")[2])
    assert GENERATE in client.privileges.granted(actor)


def test_client_asks_why_who_and_what_there_is_to_grant(server: Server, connect: Clients, actor: str) -> None:
    urn = server.grant(actor)
    client = connect(server.url, actor=ADMIN)
    told = client.privileges.explain(actor, GENERATE)
    assert (told.allowed, [grant.policy_urn for grant in told.grants]) == (True, [urn])
    assert not client.privileges.explain(actor, "VIEW_AUDIT_LOG").allowed
    assert GENERATE in [privilege.name for privilege in client.privileges.list()]
    assert "policy.created" in [action.name for action in client.events.actions()]
    server.grant(*(f"{actor}-{number}" for number in range(3)))
    assert [one.urn for one in client.actors.list(prefix=f"{actor}-", page_size=2)] == [
        f"{actor}-{n}" for n in range(3)
    ]
    assert list(client.actors.list(prefix=f"{actor}-", only_suspended=True)) == []


@pytest.mark.parametrize(
    ("duration", "lives"),
    [
        (Duration.ONE_DAY, timedelta(days=1)),
        ("ONE_WEEK", timedelta(weeks=1)),
        ("PT90M", timedelta(minutes=90)),
        ("one_week", timedelta(weeks=1)),
        ("90d", timedelta(days=90)),
        ("1d12h", timedelta(hours=36)),
        (timedelta(hours=36), timedelta(hours=36)),
    ],
)
def test_token_has_the_requested_lifetime(
    server: Server, connect: Clients, actor: str, duration: Duration | timedelta | str, lives: timedelta
) -> None:
    made = connect(server.url, actor=ADMIN).tokens.create(actor, "laptop", duration=duration).metadata
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == lives
    assert made.created_at.tzinfo is UTC
    assert abs(datetime.now(UTC) - made.created_at) < timedelta(hours=1)


def test_client_creates_uses_finds_and_revokes_a_token(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    made = connect(server.url, actor=actor).tokens.create(actor, "laptop", duration="ONE_DAY", description="Mine.")
    holder = connect(server.url, token=made.token)

    assert holder.me().urn == actor
    assert holder.tokens.find(made.token).id == made.metadata.id
    assert (made.metadata.name, made.metadata.description, made.metadata.owner_urn) == ("laptop", "Mine.", actor)
    assert [token.id for token in holder.tokens.list(TokenFilter("actorUrn", actor))] == [made.metadata.id]
    holder.tokens.revoke(made.metadata.urn)
    with pytest.raises(Unauthenticated) as refused:
        holder.me()
    assert refused.value.reason == "token_revoked"


def test_page_has_the_total(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    for name in ("b", "a", "c"):
        client.tokens.create(actor, name, duration="ONE_DAY")
    page = client.tokens.page(TokenFilter("actorUrn", actor), page_size=2, start=1, sort="name", descending=False)
    assert ([token.name for token in page.items], page.total) == (["b", "c"], 3)


def test_conditions_narrow_a_list(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    for name in ("nightly build", "nightly backup", "laptop"):
        client.tokens.create(actor, name, duration="ONE_DAY")
    nightly = (TokenFilter("actorUrn", actor), TokenFilter("name", "nightly", condition="CONTAIN"))
    assert {token.name for token in client.tokens.list(*nightly)} == {"nightly build", "nightly backup"}
    assert [t.name for t in client.tokens.list(*nightly, TokenFilter("name", ["nightly build", "x"]))] == [
        "nightly build"
    ]
    assert [t.name for t in client.tokens.list(TokenFilter("actorUrn", actor), TokenFilter("name", "laptop"))] == [
        "laptop"
    ]
    tomorrow = datetime.now(UTC) + timedelta(days=2)
    assert (
        list(client.tokens.list(TokenFilter("actorUrn", actor), TokenFilter("expiresAt", tomorrow, "GREATER_THAN")))
        == []
    )
    assert (
        len(list(client.tokens.list(TokenFilter("actorUrn", actor), TokenFilter("expiresAt", tomorrow, "LESS_THAN"))))
        == 3
    )
    never = TokenFilter("lastUsedAt", condition="EXISTS", negated=True)
    assert len(list(client.tokens.list(TokenFilter("actorUrn", actor), never))) == 3


def test_group_page_manages_members_and_deletes_the_group(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    name = actor.rpartition(":")[2].replace("[", "-")[-60:]
    urn = client.groups.create("Operations", id=name)
    users = [f"{actor}-{number}" for number in range(3)]
    client.groups.add_members(urn, users)
    client.groups.remove_members(urn, users[:1])

    assert urn == f"urn:li:corpGroup:{name}"
    assert {member.urn for member in client.groups.members(urn)} == set(users[1:])
    assert {group.urn: group.member_count for group in client.groups.list()}[urn] == 2
    with pytest.raises(Conflict):
        client.groups.create("Operations", id=name)
    client.groups.delete(urn)
    assert urn not in {group.urn for group in client.groups.list()}


def test_actor_is_suspended_and_resumed(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    client.actors.suspend(actor)
    state = client.actors.get(actor)
    assert (state.status, state.changed_by) == ("SUSPENDED", ADMIN)
    with pytest.raises(Unauthenticated):
        connect(server.url, actor=actor).me()
    client.actors.resume(actor)
    assert connect(server.url, actor=actor).me().urn == actor


def test_policy_is_made_replaced_and_deleted(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    urn = client.policies.create(f"Own tokens of {actor}", [GENERATE], PolicyActors(users=(actor,)), description="Why.")
    (made,) = client.policies.list(query=f"tokens of {actor}")
    scopes = ("orders:*", "reports:read")
    client.policies.update(
        urn, f"Nothing for {actor}", [], PolicyActors(users=(actor,)), scopes=scopes, state="INACTIVE"
    )
    replaced = client.policies.get(urn)
    client.policies.delete(urn)

    assert (made.urn, made.state, made.privileges, made.description) == (urn, "ACTIVE", (GENERATE,), "Why.")
    assert (made.actors.users, made.actors.groups, made.editable) == ((actor,), (), True)
    assert (replaced.name, replaced.state, replaced.description) == (f"Nothing for {actor}", "INACTIVE", None)
    assert (replaced.privileges, replaced.scopes) == ((), scopes)
    with pytest.raises(NotFound) as refused:
        client.policies.get(urn)
    assert refused.value.reason == "policy_not_found"


def test_token_and_a_group_are_read_by_name(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "laptop", duration="ONE_DAY").metadata
    group = client.groups.create("Readers")
    client.tokens.revoke(made.id)
    assert client.tokens.get(made.urn).status == "REVOKED"
    assert client.groups.get(group).name == "Readers"
    client.groups.delete(group)
    for missing in (lambda: client.groups.get(group), lambda: client.tokens.get("A" * 43 + "=")):
        with pytest.raises(NotFound):
            missing()


def test_rotation_takes_short_durations(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    old = client.tokens.create(actor, "short", duration="90d").metadata
    new = client.tokens.rotate(old.id, overlap="2d", grace="0s").metadata
    assert new.expires_at is not None
    assert timedelta(days=1, hours=23) < new.expires_at - new.created_at <= timedelta(days=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.events.list(since="soon"), "since must be a datetime with a time zone."),
        (lambda client: client.events.list(until=timedelta(days=1)), "until must be a datetime with a time zone."),
        (lambda client: client.webhooks.replay("x", since=timedelta(1)), "since must be a datetime with a time zone."),
        (lambda client: client.series.truncate("a", "b", 7), "end_time must be a datetime with a time zone."),
        (lambda client: client.tokens.create(ADMIN, "x", duration=7), "duration must be a timedelta or a text such as"),
    ],
)
def test_argument_of_another_type_is_a_type_error(connect: Clients, call: Call, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        call(connect("http://127.0.0.1:1", actor=ADMIN))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda client: client.mail_preferences.update("token-created"), "off"),
        (lambda client: client.events.list(actions="token.created"), "actions"),
        (lambda client: client.groups.add_members("urn:li:corpGroup:x", ADMIN), "user_urns"),
        (lambda client: client.webhooks.update("x", group_urns="urn:li:corpGroup:x"), "group_urns"),
        (lambda client: client.policies.create("x", [], PolicyActors(users=ADMIN)), "actors.users"),  # type: ignore[arg-type]
    ],
)
def test_text_for_a_list_is_rejected(connect: Clients, call: Call, argument: str) -> None:
    with pytest.raises(ValueError, match=f"^{argument} must be a list"):
        call(connect("http://127.0.0.1:1", actor=ADMIN))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda client: list(client.webhooks.deliveries("x", page_size=0)), "page_size"),
        (lambda client: list(client.events.list(page_size=0)), "page_size"),
        (lambda client: list(client.webhooks.list(page_size=100_000)), "page_size"),
        (lambda client: client.webhooks.create("x", "https://8.8.8.8/", id="A B"), "id"),
        (lambda client: client.groups.create("x", id="A B"), "id"),
        (lambda client: client.accounts.create("x", id="A B"), "id"),
        (lambda client: client.policies.apply(set="A B"), "set"),
        (lambda client: client.operations.task_status("a:b:c"), "task"),
        (lambda client: client.retention.set("chart.x", keep="P1D", remove_after="PT1H"), "remove_after"),
        (lambda client: list(client.sessions.list("x")), "actor_urn"),
    ],
)
def test_server_error_names_the_argument(server: Server, connect: Clients, call: Call, argument: str) -> None:
    with pytest.raises(BadRequest) as rejected:
        call(connect(server.url, actor=ADMIN))
    assert rejected.value.argument == argument
    assert str(rejected.value).startswith(argument)


def test_retention_rule_is_set_by_keyword(server: Server, connect: Clients) -> None:
    client = connect(server.url, actor=ADMIN)
    client.retention.set("chart.keyword", keep="30d", remove_after=timedelta(days=60), at_most="20%", mode="enforce")
    rule = client.retention.get("chart.keyword")
    assert (rule.keep, rule.remove_after, rule.at_most, rule.mode) == ("P30D", "P60D", "20%", "ENFORCE")
    client.retention.delete("chart.keyword")


@pytest.mark.parametrize("suffix", ["", "/", "/gms", "/api/gms/", "/api/graphql", "/gms/api/graphql"])
def test_address_may_end_as_gateways_and_habits_have_it(server: Server, connect: Clients, suffix: str) -> None:
    assert connect(server.url + suffix, actor=ADMIN).me().urn == ADMIN


def test_server_on_a_unix_socket_is_spoken_to(tmp_path: Path, connect: Clients) -> None:
    socket = tmp_path / "w.sock"
    trust = {"WATCHWORD_TRUSTED_PEERS": "unix"}
    with Server(tmp_path / "server", "--host", f"unix:{socket}", env=trust):
        assert connect(f"unix:{socket}", actor=ADMIN).me().urn == ADMIN


def test_program_of_a_consumer_runs_with_both_clients(server: Server) -> None:
    program = Path(__file__).parent / "applications" / "consumer.py"
    ran = subprocess.run([sys.executable, program, server.url, ADMIN], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("admin admin\n", "")
