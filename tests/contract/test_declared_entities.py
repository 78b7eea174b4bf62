"""Groups and service accounts that a policy file declares are applied with its policies."""

from dataclasses import replace
from typing import Any

from tests.contract.harness import ADMIN, ANN, BOB, EVE, StoreHarness
from tests.support.backends import StoreLocation
from watchword.access.group_rules import Group
from watchword.accounts.declared_rules import ENTITY_PART, Entity
from watchword.authority.declared_parts import Change, ChangeKind
from watchword.basics.errors import Reason
from watchword.basics.names import ACCOUNT_PREFIX, GROUP_PREFIX
from watchword.declared.rules import DeclaredSet, parse_set

OPS, AIRFLOW = GROUP_PREFIX + "ops", ACCOUNT_PREFIX + "airflow"
THE_ACCOUNT = {"id": "airflow", "name": "Airflow", "groups": [OPS]}


def group(*members: str, name: str = "Operations") -> dict[str, Any]:
    return {"id": "ops", "name": name, "members": list(members)}


def declaration(
    *groups: dict[str, Any], account: dict[str, Any] | None = None, set_name: str = "default"
) -> DeclaredSet:
    return parse_set({"set": set_name, "groups": groups, "accounts": [] if account is None else [account]})


def apply(harness: StoreHarness, declared: DeclaredSet, *, prune: bool = True) -> tuple[Change[Entity], ...]:
    plan = harness.run(harness.store.apply_set(harness.precondition(), declared, prune=prune))
    return plan[ENTITY_PART].changes


def kinds(changes: tuple[Change[Entity], ...]) -> list[tuple[str, str]]:
    return [(change.kind.value, change.name) for change in changes]


def members(harness: StoreHarness) -> set[str]:
    return set(harness.run(harness.store.members(OPS, 0, 100))[1])


def test_declared_groups_and_accounts_are_created_updated_and_pruned(
    harness: StoreHarness, location: StoreLocation
) -> None:
    assert kinds(apply(harness, declaration(group(ANN), account=THE_ACCOUNT))) == [("CREATE", OPS), ("CREATE", AIRFLOW)]
    assert members(harness) == {ANN, AIRFLOW}
    made = harness.run(harness.store.get_account(AIRFLOW))
    assert (made.name, made.created_by, made.set_name) == ("Airflow", ADMIN, "default")
    assert apply(harness, declaration(group(ANN), account=THE_ACCOUNT)) == ()

    renamed = THE_ACCOUNT | {"name": "Scheduler", "groups": []}
    assert kinds(apply(harness, declaration(group(BOB, name="Ops"), account=renamed))) == [
        ("UPDATE", OPS),
        ("UPDATE", AIRFLOW),
    ]
    assert members(harness) == {BOB}
    found = harness.run(harness.store.get_group(OPS))
    assert (found.name, found.members, found.set_name) == ("Ops", 1, "default")

    assert kinds(apply(harness, declaration())) == [("DELETE", OPS), ("UPDATE", AIRFLOW)]
    assert harness.fault_of(harness.store.get_group(OPS)).reason is Reason.GROUP_NOT_FOUND
    kept = harness.run(harness.store.get_account(AIRFLOW))
    assert kept == replace(made, name="Scheduler", set_name=None)
    assert [event.action for event in location.events()[-9:]] == [
        "group.created", "group.members_added", "account.created",
        "group.updated", "group.members_added", "group.members_removed", "account.updated",
        "group.deleted", "account.updated",
    ]  # fmt: skip


def test_members_that_are_not_declared_stay(harness: StoreHarness) -> None:
    harness.run(harness.store.add_group(harness.precondition(), Group(OPS, "By hand", None)))
    harness.run(harness.store.change_members(harness.precondition(), OPS, add=[ANN, EVE]))
    open_group = {"id": "ops", "name": "Operations"}
    (change, _) = apply(harness, declaration(open_group, account=THE_ACCOUNT))
    assert change.kind is ChangeKind.UPDATE  # it joins the set
    assert members(harness) == {ANN, EVE, AIRFLOW}
    assert apply(harness, declaration(open_group, account=THE_ACCOUNT)) == ()


def test_without_prune_undeclared_groups_and_accounts_are_reported_and_stay(harness: StoreHarness) -> None:
    apply(harness, declaration(group(ANN), account=THE_ACCOUNT))
    plan = harness.run(harness.store.apply_set(harness.precondition(), declaration(), prune=False))
    changes, undeclared = plan[ENTITY_PART]
    assert (changes, [one.urn for one in undeclared]) == ((), [OPS, AIRFLOW])
    assert members(harness) == {ANN, AIRFLOW}


def test_group_of_another_set_and_deleted_account_are_conflicts(harness: StoreHarness, location: StoreLocation) -> None:
    apply(harness, declaration(group(ANN), account=THE_ACCOUNT))
    for declared in (
        declaration(group(BOB), set_name="b"),
        declaration(account=THE_ACCOUNT | {"groups": []}, set_name="b"),
    ):
        refusal = harness.fault_of(harness.store.apply_set(harness.precondition(), declared, prune=True))
        assert (refusal.reason, refusal.details["set"]) == (Reason.POLICY_DECLARED_ELSEWHERE, "default")
    harness.run(harness.store.delete_account(harness.precondition(), AIRFLOW))
    before = location.events()
    again = declaration(group(BOB), account=THE_ACCOUNT)
    refusal = harness.fault_of(harness.store.apply_set(harness.precondition(), again, prune=True))
    assert refusal.reason is Reason.ALREADY_EXISTS
    assert location.events() == before
    assert ANN in members(harness)
    assert kinds(apply(harness, declaration(group(ANN)))) == [("UPDATE", OPS)]  # without the deleted account
