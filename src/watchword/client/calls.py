"""Every call that can be made, said once: the document, its variables, how to read the answer.

`Client` and `AsyncClient` have these functions as their methods, and those of the modules beside this one whose names
end in `_calls`.
"""

from collections.abc import Iterable
from typing import Any

from watchword.client.records import (
    ActorInfo,
    ActorSummary,
    AppliedPolicies,
    DeclaredPolicy,
    EventAction,
    EventInfo,
    GroupInfo,
    Json,
    Me,
    OffboardingReport,
    PolicyActors,
    PolicyDiff,
    PolicyInfo,
    PrivilegeDescription,
    PrivilegeExplanation,
    ServerInfo,
    record,
    selection,
)
from watchword.client.walks import PAGE_SIZE, Cursored, Paged, ResultPage, Stretch, page_of
from watchword.client.wire import ApiRequest, ask, done

_POLICY, _GROUP, _ACTOR, _EVENT = map(selection, (PolicyInfo, GroupInfo, ActorInfo, EventInfo))


def server() -> ApiRequest[ServerInfo]:
    """Which version it is and what it can do. Needs no credential."""
    return ApiRequest(_server_info, method="GET", path="/config", public=True)


def _server_info(answer: Json) -> ServerInfo:
    own = answer["watchword"]
    return ServerInfo(version=own["version"], capabilities=tuple(own["capabilities"]))


def me() -> ApiRequest[Me]:
    """Who this client is to the server."""
    return ask("{ me { corpUser { urn username } } }", lambda found: record(Me, found["corpUser"]))


def granted_privileges(actor: str) -> ApiRequest[tuple[str, ...]]:
    """What an actor may do: one's own for the asking, another's with Manage Policies."""
    document = "query ($actor: String!) { getGrantedPrivileges(input: {actorUrn: $actor}) { privileges } }"
    return ask(document, lambda found: tuple(found["privileges"]), {"actor": actor})


def explain_privilege(actor: str, privilege: str) -> ApiRequest[PrivilegeExplanation]:
    """Whether an actor may do something, by which policies, and what it would be told."""
    document = f"""query ($input: ExplainPrivilegeInput!) {{
      explainPrivilege(input: $input) {{ {selection(PrivilegeExplanation)} }} }}"""
    wanted = {"actorUrn": actor, "privilege": privilege}
    return ask(document, lambda found: record(PrivilegeExplanation, found), {"input": wanted})


def privileges() -> ApiRequest[tuple[PrivilegeDescription, ...]]:
    """All privileges there are, and what each allows."""
    document = f"{{ listPrivileges {{ {selection(PrivilegeDescription)} }} }}"
    return ask(document, lambda found: tuple(record(PrivilegeDescription, one) for one in found))


def policies(*, query: str | None = None, page_size: int = PAGE_SIZE) -> Paged[PolicyInfo]:
    """All policies, or those with these words in name or description."""
    document = f"""query ($input: ListPoliciesInput!) {{
      listPolicies(input: $input) {{ total policies {{ {_POLICY} }} }} }}"""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[PolicyInfo]]:
        wanted = {"start": start, "count": count, "query": query}
        return ask(document, lambda found: page_of(PolicyInfo, found, "policies"), {"input": wanted})

    return Paged(fetch, lambda policy: policy.urn, page_size)


def get_policy(urn: str) -> ApiRequest[PolicyInfo]:
    document = f"query ($urn: String!) {{ getPolicy(urn: $urn) {{ {_POLICY} }} }}"
    return ask(document, lambda found: record(PolicyInfo, found), {"urn": urn})


def create_policy(
    name: str,
    privileges: Iterable[str],
    actors: PolicyActors,
    *,
    description: str | None = None,
    state: str = "ACTIVE",
) -> ApiRequest[str]:
    """Make a policy; returns its urn."""
    document = "mutation ($input: PolicyUpdateInput!) { createPolicy(input: $input) }"
    wanted = _policy_input(name, privileges, actors, description, state)
    return ask(document, str, {"input": wanted}, changes=True)


def update_policy(
    urn: str,
    name: str,
    privileges: Iterable[str],
    actors: PolicyActors,
    *,
    description: str | None = None,
    state: str = "ACTIVE",
) -> ApiRequest[str]:
    """Replace a policy as a whole; returns its urn."""
    document = "mutation ($urn: String!, $input: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $input) }"
    wanted = _policy_input(name, privileges, actors, description, state)
    return ask(document, str, {"urn": urn, "input": wanted}, changes=True)


def _policy_input(
    name: str, privileges: Iterable[str], actors: PolicyActors, description: str | None, state: str
) -> dict[str, Any]:
    return {
        "type": "PLATFORM",
        "name": name,
        "state": state,
        "description": description,
        "privileges": list(privileges),
        "actors": _actors_input(actors),
    }


def _actors_input(actors: PolicyActors) -> dict[str, Any]:
    """What is not there is left out: a body may have so many parts, and a file so many policies."""
    sent = {"users": list(actors.users), "groups": list(actors.groups), "allUsers": actors.all_users}
    return {name: value for name, value in sent.items() if value}


def delete_policy(urn: str) -> ApiRequest[None]:
    document = "mutation ($urn: String!) { deletePolicy(urn: $urn) }"
    return ask(document, _nothing, {"urn": urn}, changes=True)


def apply_policies(
    declared: Iterable[DeclaredPolicy],
    *,
    set: str = "default",  # noqa: A002 - the schema's word
    prune: bool = False,
    dry_run: bool = False,
) -> ApiRequest[AppliedPolicies]:
    """Create or update the policies of a set, in one transaction. With `prune`, also remove those of the set that are
    not declared. A dry run only says what would change.
    """
    document = f"""mutation ($input: ApplyPoliciesInput!) {{ applyPolicies(input: $input) {{
      set dryRun unchanged changes {{ {selection(PolicyDiff)} }} undeclared {{ {_POLICY} }} }} }}"""
    wanted = [
        {
            "id": policy.id,
            "name": policy.name,
            "description": policy.description,
            "state": policy.state,
            "privileges": list(policy.privileges),
            "actors": _actors_input(policy.actors),
        }
        for policy in declared
    ]
    given = {"policies": wanted, "set": set, "prune": prune, "dryRun": dry_run}
    return ask(document, lambda found: record(AppliedPolicies, found), {"input": given}, changes=not dry_run)


def groups(*, page_size: int = PAGE_SIZE) -> Paged[GroupInfo]:
    document = f"""query ($start: Int, $count: Int) {{
      listGroups(input: {{start: $start, count: $count}}) {{ total groups {{ {_GROUP} }} }} }}"""

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[GroupInfo]]:
        return ask(document, lambda found: page_of(GroupInfo, found, "groups"), {"start": start, "count": count})

    return Paged(fetch, lambda group: group.urn, page_size)


def get_group(urn: str) -> ApiRequest[GroupInfo]:
    document = f"query ($urn: String!) {{ getGroup(urn: $urn) {{ {_GROUP} }} }}"
    return ask(document, lambda found: record(GroupInfo, found), {"urn": urn})


def create_group(name: str, *, id: str | None = None, description: str | None = None) -> ApiRequest[str]:  # noqa: A002 - the schema's word
    """Make a group; returns its urn, which ends in the id where one is given."""
    document = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
    wanted = {"id": id, "name": name, "description": description}
    return ask(document, str, {"input": wanted}, changes=True)


def delete_group(urn: str) -> ApiRequest[None]:
    """Delete a group and its memberships."""
    document = "mutation ($urn: String!) { removeGroup(urn: $urn) }"
    return ask(document, done, {"urn": urn}, changes=True)


def group_members(urn: str, *, page_size: int = PAGE_SIZE) -> Paged[str]:
    """The urns of a group's members."""
    document = """query ($input: ListGroupMembersInput!) {
      listGroupMembers(input: $input) { total members { urn } } }"""

    def read(found: Json) -> ResultPage[str]:
        return ResultPage(tuple(member["urn"] for member in found["members"]), found["total"])

    def fetch(start: int, count: int) -> ApiRequest[ResultPage[str]]:
        return ask(document, read, {"input": {"groupUrn": urn, "start": start, "count": count}})

    return Paged(fetch, lambda member: member, page_size)


def add_members(group: str, users: Iterable[str]) -> ApiRequest[None]:
    document = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    return ask(document, done, {"input": {"groupUrn": group, "userUrns": list(users)}}, changes=True)


def remove_members(group: str, users: Iterable[str]) -> ApiRequest[None]:
    document = "mutation ($input: GroupMembersInput!) { removeGroupMembers(input: $input) }"
    return ask(document, done, {"input": {"groupUrn": group, "userUrns": list(users)}}, changes=True)


def actor(urn: str) -> ApiRequest[ActorInfo]:
    """Whether an actor is suspended."""
    document = f"query ($urn: String!) {{ getActor(urn: $urn) {{ {_ACTOR} }} }}"
    return ask(document, lambda found: record(ActorInfo, found), {"urn": urn})


def actors(*, prefix: str = "", only_suspended: bool = False, page_size: int = PAGE_SIZE) -> Cursored[ActorSummary]:
    """The actors that are known, by urn; those whose urn, or name as a user, begins so."""
    document = f"""query ($input: ListActorsInput) {{
      listActors(input: $input) {{ cursor actors {{ {selection(ActorSummary)} }} }} }}"""
    wanted = {"prefix": prefix, "onlySuspended": only_suspended, "count": page_size}

    def read(found: Json) -> Stretch[ActorSummary]:
        return Stretch(tuple(record(ActorSummary, actor) for actor in found["actors"]), found["cursor"])

    def fetch(cursor: str | None) -> ApiRequest[Stretch[ActorSummary]]:
        return ask(document, read, {"input": {**wanted, "cursor": cursor}})

    return Cursored(fetch)


def suspend(urn: str) -> ApiRequest[None]:
    """Refuse everything the actor does and every token of it, from now on."""
    return _set_status(urn, "SUSPENDED")


def resume(urn: str) -> ApiRequest[None]:
    """Let a suspended actor act again."""
    return _set_status(urn, "ACTIVE")


def offboard(urn: str, *, dry_run: bool = True, revoke_minted: bool = False) -> ApiRequest[OffboardingReport]:
    """Suspend an actor, revoke its tokens, end its sessions and take it out of its groups. A dry run, the default, only
    says what there is. With `revoke_minted`, live tokens that it made for others are revoked too.
    """
    document = f"""mutation ($input: OffboardActorInput!) {{
      offboardActor(input: $input) {{ {selection(OffboardingReport)} }} }}"""
    wanted = {"urn": urn, "dryRun": dry_run, "revokeMinted": revoke_minted}
    return ask(document, lambda found: record(OffboardingReport, found), {"input": wanted}, changes=not dry_run)


def _set_status(urn: str, status: str) -> ApiRequest[None]:
    document = "mutation ($urn: String!, $status: CorpUserStatus!) { updateUserStatus(urn: $urn, status: $status) }"
    return ask(document, _nothing, {"urn": urn, "status": status}, changes=True)


def events(
    *,
    actors: Iterable[str] = (),
    actions: Iterable[str] = (),
    targets: Iterable[str] = (),
    about: Iterable[str] = (),
    since: int | None = None,
    until: int | None = None,
    page_size: int = PAGE_SIZE,
) -> Cursored[EventInfo]:
    """What happened, newest first, from `since` on and before `until` (milliseconds). Needs View Audit Log.

    `about` selects events that target or name an actor, or target one of its tokens.
    """
    document = f"query ($input: ListEventsInput) {{ listEvents(input: $input) {{ cursor events {{ {_EVENT} }} }} }}"
    lists = {"actorUrns": actors, "actions": actions, "targets": targets, "aboutUrns": about}
    wanted = {name: list(words) for name, words in lists.items()} | {"since": since, "until": until}

    def read(found: Json) -> Stretch[EventInfo]:
        return Stretch(tuple(record(EventInfo, event) for event in found["events"]), found["cursor"])

    def fetch(cursor: str | None) -> ApiRequest[Stretch[EventInfo]]:
        return ask(document, read, {"input": {**wanted, "count": page_size, "cursor": cursor}})

    return Cursored(fetch)


def event_actions() -> ApiRequest[tuple[EventAction, ...]]:
    """Everything that leaves an event: what `actions` of `events` takes."""
    document = f"{{ listEventActions {{ {selection(EventAction)} }} }}"
    return ask(document, lambda found: tuple(record(EventAction, one) for one in found))


def _nothing(found: Any) -> None:
    """Done: the answer only repeats the urn."""
