"""Declared policies and the event log, through the client."""

from itertools import islice

import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, GENERATE, Server
from watchword.client import (
    DeclaredAccountInfo,
    DeclaredGroupInfo,
    DeclaredPolicyInfo,
    GrantedActors,
    PolicyActors,
    Unauthorized,
)


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Declared policies apply to a whole server, so each test has its own."""
    return Server(tmp_path_factory.mktemp("own"))


def test_declared_policies_are_shown_first_then_made_changed_and_removed(
    own: Server, connect: Clients, actor: str
) -> None:
    first = DeclaredPolicyInfo(
        "own-tokens", "Own tokens", (GENERATE,), PolicyActors(users=(actor,)), description="Why."
    )
    second = DeclaredPolicyInfo("own-tokens", "Own tokens", (GENERATE,), PolicyActors(all_users=True), state="INACTIVE")
    with own:
        client = connect(own.url, actor=ADMIN)
        shown = client.policies.apply([first], dry_run=True)
        assert [policy for policy in client.policies.list() if policy.source == "FILE"] == []
        made = client.policies.apply([first])
        again = client.policies.apply([first])
        changed = client.policies.apply([second])
        left = client.policies.apply([])
        removed = client.policies.apply([], prune=True)

    assert (shown.dry_run, made.dry_run, shown.changes) == (True, False, made.changes)
    assert [(change.change, change.before) for change in made.changes] == [("CREATE", None)]
    assert (again.changes, again.unchanged) == ((), 1)
    (change,) = changed.changes
    assert change.before is not None
    assert change.after is not None
    assert (change.change, change.before.actors.users, change.before.description) == ("UPDATE", (actor,), "Why.")
    assert (change.after.actors, change.after.state) == (GrantedActors(all_users=True), "INACTIVE")
    assert (left.changes, [policy.urn for policy in left.undeclared]) == ((), [change.urn])
    assert [(change.change, change.urn) for change in removed.changes] == [("DELETE", change.urn)]


def test_groups_and_accounts_are_declared_with_policies(own: Server, connect: Clients, actor: str) -> None:
    group, account = "urn:li:corpGroup:ops", "urn:li:corpuser:service_airflow"
    with own:
        client = connect(own.url, actor=ADMIN)
        groups = [DeclaredGroupInfo("ops", "Operations", members=(actor,))]
        accounts = [DeclaredAccountInfo("airflow", "Airflow", groups=(group,))]
        made = client.policies.apply(groups=groups, accounts=accounts, set="ops")
        assert [(one.change, one.urn) for one in made.entities] == [("CREATE", group), ("CREATE", account)]
        assert {member.urn for member in client.groups.members(group)} == {actor, account}
        assert (client.groups.get(group).set, client.accounts.get(account).set) == ("ops", "ops")
        assert client.policies.apply(groups=groups, accounts=accounts, set="ops").unchanged == 2
        left = client.policies.apply(set="ops")
        assert (left.entities, left.undeclared_entities) == ((), (group, account))


def test_events_are_walked_newest_first_and_narrowed(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = [client.tokens.create(actor, f"{number}", duration="ONE_DAY").metadata.id for number in range(5)]
    client.tokens.revoke(made[0])
    found = list(client.events.list(targets=made, page_size=2))
    assert [event.target for event in found] == [made[0], *reversed(made)]
    assert (found[0].action, found[0].actor_urn) == ("token.revoked", ADMIN)
    assert [e.target for e in client.events.list(targets=made, actions=["token.revoked"], actor_urns=[ADMIN])] == made[
        :1
    ]
    assert [event.target for event in islice(client.events.list(targets=made, page_size=1), 2)] == [made[0], made[4]]
    moments = [event.at for event in found]
    assert all(event.at >= moments[2] for event in client.events.list(targets=made, since=moments[2]))
    assert moments[0] not in [event.at for event in client.events.list(targets=made, until=moments[0])]


def test_events_need_their_privilege(server: Server, connect: Clients, actor: str) -> None:
    with pytest.raises(Unauthorized) as denied:
        next(connect(server.url, actor=actor).events.list())
    assert denied.value.privilege == "VIEW_AUDIT_LOG"
