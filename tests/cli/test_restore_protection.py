"""`db restore` keeps what protects in the current store: holds, deleted accounts, suspensions and links."""

import json
from typing import Any

import pytest

from tests.support.server import ADMIN, Server
from tests.support.story import ACCEPT, LATER, REVOKE_ALL, BackupHistory

HOLD = 'mutation ($s: String!) { holdSeries(input: {series: $s, reason: "lawsuit"}) { hold { setBy } } }'
RELEASE = "mutation ($s: String!) { releaseSeries(series: $s) }"
ADD_ACCOUNT = 'mutation { createServiceAccount(input: {id: "robot"}) { urn } }'
DELETE_ACCOUNT = "mutation ($urn: String!) { deleteServiceAccount(urn: $urn) }"
ROBOT = "urn:li:corpuser:service_robot"
HELD, RELEASED = "dataset.datasetprofile", "dataset.operation"
GONE, PERSON = "urn:li:corpuser:gone", "urn:li:corpuser:person"


def link(subject: str, actor: str) -> str:
    columns = "issuer, subject, actor_urn, linked_at"
    return f"INSERT INTO identities ({columns}) VALUES ('https://id.example', '{subject}', '{actor}', 1)"


def change_since(story: BackupHistory, server: Server) -> None:
    """A backup, and then: a hold, another released, an account deleted, an actor suspended, another resumed, and a link
    changed.
    """
    ask: Any = server.ask
    ask(HOLD, {"s": RELEASED}, actor=ADMIN)
    ask(ADD_ACCOUNT, actor=ADMIN)
    server.set_status(GONE, "SUSPENDED")
    story.change(link("old", PERSON))
    story.change(f"INSERT INTO group_members VALUES ('{PERSON}', 'urn:li:corpGroup:theirs', 1)")
    made = story.command("db", "backup", str(story.file), "--force")
    assert made.returncode == 0, made.stderr
    ask(HOLD, {"s": HELD}, actor=ADMIN)
    ask(RELEASE, {"s": RELEASED}, actor=ADMIN)
    ask(DELETE_ACCOUNT, {"urn": ROBOT}, actor=ADMIN)
    server.set_status(LATER, "SUSPENDED")
    server.set_status(GONE, "ACTIVE")
    story.change("DELETE FROM identities")
    story.change("DELETE FROM group_members")
    story.change(link("new", PERSON))


@pytest.fixture
def changed(any_story: BackupHistory) -> BackupHistory:
    change_since(any_story, any_story.server.start())
    any_story.server.stop()
    return any_story


def protections(story: BackupHistory) -> list[Any]:
    return [
        story.look("SELECT series, reason, set_by FROM retention_holds ORDER BY 1"),
        story.look("SELECT urn, deleted_at IS NOT NULL FROM service_accounts"),
        story.look("SELECT urn FROM actors WHERE status = 'SUSPENDED' ORDER BY 1"),
        story.look("SELECT subject, actor_urn FROM identities"),
        story.look("SELECT actor_urn, group_urn FROM group_members"),
    ]


def test_revoking_restore_carries_over_holds_deleted_accounts_suspensions_and_links(changed: BackupHistory) -> None:
    asked = changed.restore()
    words = f"1 hold ({HELD}), 1 deleted account ({ROBOT}), 1 suspension ({LATER}), 1 changed link"
    assert f"; carries over {words})" in asked.stderr
    assert f"; loses {words})" in asked.stderr
    done = changed.restore(REVOKE_ALL)
    assert done.returncode == 0, done.stderr
    assert f"Carried over from the old store: {words}.\n" in done.stdout
    assert f"Series released since, held again: {RELEASED}.\n" in done.stdout
    assert f"Actors resumed since, suspended again: {GONE}.\n" in done.stdout
    holds, accounts, suspended, links, members = protections(changed)
    assert holds == [(HELD, "lawsuit", ADMIN), (RELEASED, "lawsuit", ADMIN)]
    assert accounts == [(ROBOT, True)]
    assert suspended == [(GONE,), (LATER,), (ROBOT,)]
    assert (links, members) == ([("new", PERSON)], [])
    ((text,),) = changed.look("SELECT detail FROM events WHERE action = 'store.restored'")
    told = json.loads(text)
    assert (told["carriedOver"], told["holds"], told["deletedAccounts"]) == (True, [HELD], [ROBOT])
    assert (told["suspensions"], told["links"], told["releasedHolds"]) == ([LATER], 1, [RELEASED])
    assert changed.command("db", "check").returncode == 0
    server = changed.server.start()
    refused = server.post(ADD_ACCOUNT, actor=ADMIN).json()["errors"]
    assert [error["extensions"]["reason"] for error in refused] == ["already_exists"]


def test_accepting_restore_brings_back_the_backup_and_lists_what_is_lost(changed: BackupHistory) -> None:
    told = json.loads(changed.restore(ACCEPT, "--json").stdout)
    assert (told["carriedOver"], told["holds"], told["deletedAccounts"]) == (False, [HELD], [ROBOT])
    assert (told["suspensions"], told["resumedActors"], told["linksChanged"]) == ([LATER], [GONE], 1)
    assert told["releasedHolds"] == [RELEASED]
    holds, accounts, suspended, links, members = protections(changed)
    assert holds == [(RELEASED, "lawsuit", ADMIN)]
    assert accounts == [(ROBOT, False)]
    assert suspended == [(GONE,)]
    assert (links, members) == ([("old", PERSON)], [(PERSON, "urn:li:corpGroup:theirs")])


def test_hold_that_a_rule_declared_is_carried_over_as_one_set_by_hand(any_story: BackupHistory) -> None:
    any_story.change(f"INSERT INTO retention_holds VALUES ('{HELD}', 'lawsuit', '{ADMIN}', 1, 1)")
    assert any_story.restore(REVOKE_ALL).returncode == 0
    assert any_story.look("SELECT series, by_rule FROM retention_holds") == [(HELD, 0)]


def test_restored_retention_run_must_be_approved_again(any_story: BackupHistory) -> None:
    columns = "home, series, due_at, state, rule, asked_by, made_at, approved_by, approved_at"
    values = f"'', '{HELD}', 1, 'WAITING', '{{}}', '{ADMIN}', 1, '{ADMIN}', 1"
    any_story.change(f"INSERT INTO retention_runs ({columns}) VALUES ({values})")
    assert any_story.command("db", "backup", str(any_story.file), "--force").returncode == 0
    assert any_story.restore(ACCEPT).returncode == 0
    assert any_story.look("SELECT state, approved_by, approved_at FROM retention_runs") == [("WAITING", None, None)]
