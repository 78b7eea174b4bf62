"""`actor offboard`: preview, offboarding and receipt."""

import json
from collections.abc import Callable

import pytest

from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server
from tests.support.terminal import Terminal

Done = Callable[..., str]
NEEDED = ("MANAGE_POLICIES", MANAGE_ALL, "MANAGE_SERVICE_ACCOUNTS")
OFFBOARD = """mutation ($input: OffboardActorInput!) { offboardActor(input: $input) {
  dryRun tokenCount receipt { tokens { count } } } }"""


def leaving(server: Server, done: Done, actor: str) -> dict[str, str]:
    """An actor with everything that offboarding removes, by name."""
    policy = server.grant(actor, privileges=(GENERATE, *NEEDED[1:]))
    account = done("account", "create", "--name", "nightly", caller=actor).strip()
    group = done("group", "create", "--name", "Leavers").strip()
    done("group", "add", group, actor, ADMIN)
    own = [server.create(actor) for _ in range(2)]
    minted = server.create(actor, of=f"{actor}-colleague")
    return {
        "policy": policy,
        "account": account,
        "group": group,
        "own": own[0]["accessToken"],
        "owns": ",".join(sorted(one["metadata"]["id"] for one in own)),
        "minted": minted["accessToken"],
        "minted id": minted["metadata"]["id"],
    }


def accepted(server: Server, token: str) -> bool:
    return server.http.get("/auth", headers={"Authorization": f"Bearer {token}"}).status_code == 204


def test_offboarding_shows_a_preview_and_a_receipt(server: Server, run: Run, done: Done, actor: str) -> None:
    left = leaving(server, done, actor)
    plan = json.loads(done("actor", "offboard", actor, "--dry-run", "--json"))
    assert (plan["dryRun"], plan["status"], plan["receipt"]) == (True, "ACTIVE", None)
    assert (plan["tokenCount"], plan["tokensForOthersCount"], plan["sessionCount"]) == (2, 1, 0)
    assert ",".join(sorted(token["id"] for token in plan["tokens"])) == left["owns"]
    assert [token["id"] for token in plan["tokensForOthers"]] == [left["minted id"]]
    assert [account["urn"] for account in plan["serviceAccounts"]] == [left["account"]]
    assert (plan["groups"], [policy["urn"] for policy in plan["policies"]]) == ([left["group"]], [left["policy"]])
    shown = done("actor", "offboard", actor, "--dry-run")
    assert "  2 live tokens: to revoke\n" in shown
    assert shown.endswith("This was a dry run. Nothing was changed.\n")
    assert accepted(server, left["own"])

    unasked = run("actor", "offboard", actor)
    assert (unasked.returncode, unasked.stdout) == (2, "")
    assert "Pass --yes" in unasked.stderr
    assert accepted(server, left["own"])

    receipt = json.loads(done("actor", "offboard", actor, "--yes", "--json"))["receipt"]
    assert receipt["status"] == "SUSPENDED"
    assert (receipt["tokens"]["count"], ",".join(sorted(receipt["tokens"]["ids"]))) == (2, left["owns"])
    assert (receipt["tokensForOthers"], receipt["sessionCount"], receipt["groups"]) == (None, 0, [left["group"]])
    assert not accepted(server, left["own"])
    assert accepted(server, left["minted"]), "made for others: kept unless that is asked for"
    assert json.loads(done("actor", "show", actor, "--json"))["status"] == "SUSPENDED"
    (member,) = json.loads(done("group", "show", left["group"], "--json"))["members"]
    assert member["urn"] == ADMIN
    assert json.loads(done("account", "show", left["account"], "--json"))["status"] == "ACTIVE"

    since = json.loads(done("actor", "offboard", actor, "--dry-run", "--json"))["suspension"]
    assert (since["actorUrn"], since["tokens"]["count"], since["tokensForOthers"]["count"]) == (ADMIN, 2, 0)
    assert since["tokens"]["digest"] == receipt["tokens"]["digest"], "the same tokens, whoever asks and when"
    assert ",".join(sorted(since["tokens"]["ids"])) == left["owns"]
    assert since["groups"] == [{"urn": left["group"], "name": "Leavers", "set": None}]
    done("policy", "update", left["policy"], "--user", "")
    since = json.loads(done("actor", "offboard", actor, "--dry-run", "--json"))["suspension"]
    assert [policy["urn"] for policy in since["policies"]] == [left["policy"]]
    done("group", "add", left["group"], actor)
    since = json.loads(done("actor", "offboard", actor, "--dry-run", "--json"))["suspension"]
    assert since["groups"] == [], "it is a member again"

    again = done("actor", "offboard", actor, "--yes", "--revoke-tokens-for-others").splitlines()
    assert again[0] == f"{actor} is SUSPENDED."
    assert again[1].startswith("  Suspended at ")
    assert again[1].endswith(f"Z by {ADMIN}; 2 tokens revoked since.")
    assert any(line.startswith("  Revoked 0 tokens. Receipt: ") for line in again)
    assert any(line.startswith("  Revoked 1 token created for others. Receipt: ") for line in again)
    assert not accepted(server, left["minted"])


def test_offboarding_an_unknown_actor_says_so_and_how_to_undo_it(done: Done, actor: str) -> None:
    unused = "No tokens, groups or policies reference it."
    told = f"{unused} If you mistyped it, undo this: watchword actor resume {actor}"
    for status in ("ACTIVE", "SUSPENDED"):
        lines = done("actor", "offboard", actor, "--yes").splitlines()
        assert lines[0] == f"{actor} is {status}. {unused}"
        receipt = lines[-5:]
        assert receipt[0].startswith(f"Offboarded {actor} at ")
        assert receipt[1] == "  Suspended the actor."
        assert receipt[2].startswith("  Revoked 0 tokens. Receipt: ")
        assert receipt[3:] == ["  Ended 0 console sessions, left 0 groups.", f"  {told}"]
    found = json.loads(done("actor", "offboard", actor, "--yes", "--json"))
    assert (found["known"], found["receipt"]["status"]) == (False, "SUSPENDED")
    assert done("actor", "resume", actor) == f"Resumed {actor}\n"


def test_offboarding_asks_at_a_terminal(server: Server, actor: str) -> None:
    server.grant(actor)
    made = server.create(actor)["accessToken"]
    with Terminal("actor", "offboard", actor, "--url", server.url, "--as", ADMIN) as terminal:
        terminal.wait_for(f"Offboard {actor}? [y/N]")
        assert "1 live token: to revoke" in terminal.text
        terminal.enter("n\n")
        assert terminal.finish() == 1
    assert accepted(server, made)


@pytest.mark.parametrize("missing", NEEDED)
def test_offboarding_checks_privileges_before_any_lookup(server: Server, actor: str, missing: str) -> None:
    server.grant(actor, privileges=tuple(word for word in NEEDED if word != missing))
    for dry_run in (True, False):
        with pytest.raises(GraphQLRefused) as refusal:
            server.ask(OFFBOARD, {"input": {"urn": "nonsense", "dryRun": dry_run}}, actor=actor)
        assert refusal.value.code == 403
        assert refusal.value.errors[0]["extensions"]["privilege"] == missing


def test_root_actor_and_caller_cannot_be_offboarded(server: Server, actor: str) -> None:
    server.grant(actor, privileges=NEEDED)
    for urn, reason in ((ADMIN, "not_editable"), (actor, "invalid_field")):
        for dry_run in (True, False):
            with pytest.raises(GraphQLRefused) as refusal:
                server.ask(OFFBOARD, {"input": {"urn": urn, "dryRun": dry_run}}, actor=actor)
            assert refusal.value.reason == reason
    assert server.ask("{ me { corpUser { urn } } }", actor=actor)


def test_offboarding_defaults_to_a_dry_run(server: Server, actor: str) -> None:
    server.grant(actor)
    server.create(actor)
    found = server.ask(OFFBOARD, {"input": {"urn": actor}}, actor=ADMIN)["offboardActor"]
    assert found == {"dryRun": True, "tokenCount": 1, "receipt": None}


def test_preview_lists_the_first_hundred_tokens_and_counts_all(server: Server, actor: str) -> None:
    server.grant(actor)
    for _ in range(101):
        server.create(actor)
    query = OFFBOARD.replace("tokenCount", "tokenCount tokens { id }")
    plan = server.ask(query, {"input": {"urn": actor}}, actor=ADMIN)["offboardActor"]
    assert (plan["tokenCount"], len(plan["tokens"])) == (101, 100)


def test_offboarding_names_the_policy_set_that_may_undo_it(server: Server, run: Run, done: Done, actor: str) -> None:
    group = f"urn:li:corpGroup:{actor.rpartition(':')[2]}"
    declared = {"id": group.rpartition(":")[2], "name": "Declared", "members": [actor]}
    apply = "mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) { unchanged } }"
    server.ask(apply, {"input": {"set": "team-x", "groups": [declared]}}, actor=ADMIN)
    sentence = (
        f"The policy set team-x declares {group}. If its file lists the group's members, the next apply undoes this."
    )
    for command, fix in (("remove", "Remove them there too."), ("add", "Add them there too.")):
        assert f"{sentence} {fix}" in run("group", command, group, actor).stderr
    assert f"  {sentence} Remove the actor there too.\n" in done("actor", "offboard", actor, "--dry-run")
    result = json.loads(done("actor", "offboard", actor, "--yes", "--json"))
    assert result["declaredGroups"] == [{"urn": group, "set": "team-x"}]
    assert result["receipt"]["groups"] == [group]
