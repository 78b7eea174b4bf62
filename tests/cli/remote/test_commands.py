"""`watchword policy`, `group`, `actor`, `event` and `whoami`."""

import json
from collections.abc import Callable

from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.terminal import Terminal

Done = Callable[..., str]


def test_whoami_prints_actor_and_privileges(server: Server, done: Done, actor: str) -> None:
    server.grant(actor)
    told = json.loads(done("whoami", "--json", caller=actor))
    assert (told["urn"], told["username"]) == (actor, actor.rpartition(":")[2])
    assert GENERATE in told["privileges"]
    assert actor in done("whoami", caller=actor)


def test_group_commands_manage_members_and_delete(server: Server, run: Run, done: Done) -> None:
    urn = "urn:li:corpGroup:cli-ops"
    carol, dave = "urn:li:corpuser:carol", "urn:li:corpuser:dave"
    assert done("group", "create", "cli-ops", "--name", "Operations") == f"{urn}\n"
    assert done("group", "add", "cli-ops", carol, dave) == f"{urn} has 2 members.\n"
    assert done("group", "remove", urn, dave) == f"{urn} has 1 member.\n"
    shown = json.loads(done("group", "show", "cli-ops", "--json"))
    (member,) = shown.pop("members")
    assert (member["urn"], member["displayName"]) == (carol, None)
    assert shown == {"urn": urn, "name": "Operations", "description": None, "memberCount": 1, "set": None}
    assert urn in [group["urn"] for group in json.loads(done("group", "list", "--all", "--json"))]
    assert any(line.split()[:3] == [urn, "Operations", "1"] for line in done("group", "list", "--all").splitlines())
    assert done("group", "delete", "cli-ops", "--yes") == f"Deleted {urn}\n"
    gone = run("group", "show", "cli-ops")
    assert (gone.returncode, gone.stdout, len(gone.stderr.splitlines())) == (1, "", 1)


def test_actor_is_suspended_shown_and_resumed(server: Server, run: Run, done: Done, actor: str) -> None:
    server.grant(actor)
    held = [server.create(actor)["metadata"]["id"] for _ in range(2)]
    server.revoke(server.create(actor)["metadata"]["id"])
    assert done("actor", "suspend", actor) == (
        f"Suspended {actor}\n    Rejected from now on: 2 live tokens, 0 console sessions.\n"
    )
    listed = json.loads(done("token", "list", "--actor", actor, "--json"))
    assert {(one["id"], one["status"], one["effectiveStatus"]) for one in listed} == {
        (token_id, "ACTIVE", "SUSPENDED") for token_id in held
    }
    assert [line.split()[-4] for line in done("token", "list", "--actor", actor).splitlines()[1:]] == ["SUSPENDED"] * 2
    assert "Status       SUSPENDED" in done("token", "show", held[0])
    shown = json.loads(done("actor", "show", actor, "--json"))
    assert (shown["status"], shown["changedBy"]) == ("SUSPENDED", ADMIN)
    refused = run("whoami", caller=actor)
    assert refused.returncode == 1
    assert "WATCHWORD_TOKEN" in refused.stderr
    assert done("actor", "resume", actor) == f"Resumed {actor}\n"
    assert "ACTIVE" in done("actor", "show", actor)


def test_suspending_an_unknown_actor_says_so(done: Done, actor: str) -> None:
    lines = done("actor", "suspend", actor).splitlines()
    told = (
        f"    No tokens, groups or policies reference it. If you mistyped it, undo this: watchword actor resume {actor}"
    )
    assert lines == [f"Suspended {actor}", told]
    assert json.loads(done("actor", "show", actor, "--json"))["status"] == "SUSPENDED"
    again = done("actor", "suspend", actor).splitlines()
    assert again == [f"{actor} was suspended already.", told]
    assert done("actor", "resume", actor) == f"Resumed {actor}\n"


def test_resuming_an_actor_that_is_not_suspended_says_so(server: Server, done: Done, actor: str) -> None:
    assert done("actor", "resume", actor) == f"{actor} was not suspended. No tokens, groups or policies reference it.\n"
    assert json.loads(done("actor", "list", "--search", actor, "--json")) == []
    server.grant(actor)
    assert done("actor", "resume", actor) == f"{actor} was not suspended.\n"


def test_known_actors_are_listed(server: Server, done: Done, actor: str) -> None:
    server.grant(f"{actor}-a", f"{actor}-b")
    done("actor", "suspend", f"{actor}-b")
    name = actor.rpartition(":")[2]
    found = json.loads(done("actor", "list", "--search", f"{name}-", "--json"))
    assert [(one["urn"], one["status"]) for one in found] == [(f"{actor}-a", "ACTIVE"), (f"{actor}-b", "SUSPENDED")]
    lines = done("actor", "list", "--search", actor, "--suspended").splitlines()
    assert [line.split()[:2] for line in lines] == [["URN", "STATUS"], [f"{actor}-b", "SUSPENDED"]]


def test_actor_is_named_and_shown_by_name(server: Server, run: Run, done: Done, actor: str) -> None:
    assert run("actor", "update", actor).returncode == 2
    assert done("actor", "update", actor, "--name", "Ann Example", "--email", "ann@example.com") == f"Updated {actor}\n"
    shown = done("actor", "show", actor)
    assert "Ann Example" in shown
    assert "ann@example.com" in shown
    token = server.create(ADMIN, of=actor)["metadata"]["id"]
    assert f"{actor} (Ann Example)" in done("token", "show", token)
    listed = done("token", "list", "--actor", actor)
    assert actor in listed
    assert "Ann" not in listed  # a pipe has urns
    assert json.loads(done("token", "list", "--actor", actor, "--json"))[0]["actorName"] == "Ann Example"
    for flags, there, absent in (((), "Ann Example", actor), (("--urns",), actor, "Ann Example")):
        words = ("token", "list", "--actor", actor, *flags, "--url", server.url, "--as", ADMIN)
        with Terminal(*words, columns=200) as terminal:
            assert terminal.finish() == 0
        assert there in terminal.text
        assert absent not in terminal.text
    done("actor", "update", actor, "--name", "")
    assert json.loads(done("actor", "show", actor, "--json"))["displayName"] is None


def test_can_prints_the_policy_or_the_denial(server: Server, done: Done, actor: str) -> None:
    asked = ("policy", "explain", actor, GENERATE)
    denied = f"You lack the privilege 'Generate Personal Access Tokens' ({GENERATE}). Ask someone who manages policies."
    assert done(*asked).splitlines()[:2] == ["Allowed   no", f"Reason    {denied}"]
    urn = server.grant(actor)
    told = done(*asked).splitlines()
    assert told[0].split() == ["Allowed", "yes"]
    assert told[2].split() == ["Policies", urn]
    (grant,) = json.loads(done(*asked, "--json"))["grants"]
    assert (grant["policyUrn"], grant["via"]) == (urn, "USER")
    assert done(*asked, caller=actor).splitlines() == told


def test_every_privilege_is_listed_with_what_it_allows(server: Server, done: Done) -> None:
    lines = done("policy", "privileges").splitlines()
    (line,) = [line for line in lines if line.startswith("VIEW_AUDIT_LOG")]
    assert line.split("  ", 1)[1].strip().startswith("Read the audit log.")


def test_every_action_that_leaves_an_event_is_listed(server: Server, done: Done) -> None:
    found = {line.split()[0]: line for line in done("event", "actions").splitlines()}
    assert "A policy was deleted." in found["policy.deleted"]
    happened = {event["action"] for event in json.loads(done("event", "list", "--all", "--json"))}
    assert happened <= set(found)


def test_policies_are_listed_shown_and_deleted(server: Server, run: Run, done: Done, actor: str) -> None:
    urn = server.grant(actor)
    (found,) = [policy for policy in json.loads(done("policy", "list", "--all", "--json")) if policy["urn"] == urn]
    assert found == json.loads(done("policy", "show", urn.rpartition(":")[2], "--json"))
    assert (found["privileges"], found["source"], found["editable"]) == ([GENERATE], "API", True)
    actors = found["actors"]
    assert (actors["users"], actors["groups"], actors["allUsers"]) == ([actor], [], False)
    (line,) = [line for line in done("policy", "list", "--all").splitlines() if line.startswith(urn)]
    assert line.split()[-4:] == [actor, GENERATE, "-", "-"]
    assert done("policy", "delete", urn, "--yes") == f"Deleted {urn}\n"
    for words in (("show", urn), ("delete", urn, "--yes"), ("delete", "root", "--yes")):
        ran = run("policy", *words)
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1)


def test_events_are_listed_newest_first_and_filtered(server: Server, run: Run, done: Done, actor: str) -> None:
    made = [server.create(ADMIN, of=actor)["metadata"]["id"] for _ in range(3)]
    server.revoke(made[0])
    targets = [word for token_id in made for word in ("--target", token_id)]
    found = json.loads(done("event", "list", *targets, "--json"))
    assert [event["target"] for event in found] == [made[0], *reversed(made)]
    assert (found[0]["action"], found[0]["actorUrn"]) == ("token.revoked", ADMIN)
    assert found[0]["at"] >= found[1]["at"] >= found[3]["at"]
    narrowed = done("event", "list", *targets, "--action", "token.revoked", "--actor", ADMIN, "--since", "PT1H")
    assert [line.split()[1] for line in narrowed.splitlines()] == ["ACTION", "token.revoked"]
    assert len(json.loads(run("event", "list", "--limit", "2", "--json").stdout)) == 2
    assert json.loads(done("event", "list", *targets, "--until", "P1D", "--json")) == []
    assert run("event", "list", caller=actor).returncode == 1
