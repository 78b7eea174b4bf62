"""`watchword policy`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from watchword.cli.options import Command, json_flag, list_flags, yes_flag
from watchword.cli.output import Cell, Column, json_text, json_value, one_line, say, show_list, show_one, warn
from watchword.cli.remote import can_ask, confirm, urn_argument, with_client
from watchword.cli.run import read_input
from watchword.domain import policies as domain
from watchword.domain.errors import OperatorError
from watchword.domain.names import GROUP_PREFIX, POLICY_PREFIX
from watchword.domain.policies import DEFAULT_SET, PolicyState, Privilege, included
from watchword.files import write_text

if TYPE_CHECKING:
    from watchword.client import AppliedPolicies, Client, DeclaredPolicy, PolicyDiff, PolicyInfo, PrivilegeDescription
    from watchword.domain.policies import PolicyDeclaration

DRIFT = 3
"""Exit code when the policies differ from the file."""
_SIGNS = {"CREATE": "+", "UPDATE": "~", "DELETE": "-"}
_policy = urn_argument("POLICY", POLICY_PREFIX)
_privilege_choice = click.Choice([privilege.name for privilege in Privilege], case_sensitive=False)


def _granted_to(policy: "PolicyInfo") -> tuple[str, ...]:
    actors = policy.actors
    return (*(["all users"] if actors.all_users else []), *actors.users, *actors.groups)


_COLUMNS: "list[Column[PolicyInfo]]" = [
    Column("URN", lambda policy: policy.urn, terse=("POLICY", POLICY_PREFIX)),
    Column("NAME", lambda policy: policy.name, free=True),
    Column("STATE", lambda policy: policy.state),
    Column("SOURCE", lambda policy: policy.source),
    Column("GRANTED TO", _granted_to, free=True),
    Column("PRIVILEGES", lambda policy: policy.privileges, free=True),
    Column("SET", lambda policy: policy.set),
]


_PRIVILEGE_COLUMNS: "list[Column[PrivilegeDescription]]" = [
    Column("PRIVILEGE", lambda privilege: privilege.name),
    Column("ALLOWS", lambda privilege: privilege.allows, free=True),
    Column("INCLUDES", lambda privilege: privilege.includes, free=True),
]


@click.group()
def policy() -> None:
    """Manage policies: who may do what. POLICY is a URN or the id at its end."""


@policy.command("list")
@click.option("--query", default=None, metavar="TEXT", help="Policies with these words in name or description.")
@list_flags()
@with_client
def list_policies(client: "Client", query: str | None, limit: int, as_json: bool) -> None:
    """List policies.

    \b
    Example: watchword policy list --json
    """
    show_list(client.policies(query=query), _COLUMNS, json=as_json, limit=limit, empty="No policies.")


@policy.command()
@_policy
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """Show one policy.

    \b
    Example: watchword policy show own-tokens
    """
    found = client.get_policy(urn)
    pairs = {
        "Urn": found.urn,
        "Name": found.name,
        "Description": found.description,
        "State": found.state,
        "Source": found.source,
        "Set": found.set,
        "Privileges": found.privileges,
        "Granted to": _granted_to(found),
    }
    show_one(pairs, found, json=as_json)


def _with_changes(command: Command) -> Command:
    """The flags that `create` and `update` share."""
    for option in (
        click.option("--inactive/--active", default=None, help="Whether the policy grants anything."),
        click.option("--all-users/--not-all-users", default=None, help="Whether it grants to every user."),
        click.option("--group", "groups", multiple=True, metavar="URN", help="Group it grants to; repeatable."),
        click.option("--user", "users", multiple=True, metavar="URN", help="User it grants to; repeatable."),
        click.option(
            "--privilege",
            "privileges",
            multiple=True,
            type=_privilege_choice,
            metavar="WORD",
            help="Privilege it grants; repeatable. `watchword policy privileges` lists them.",
        ),
        click.option("--description", default=None, help="Description of the policy."),
    ):
        command = option(command)
    return command


@policy.command()
@click.option("--name", required=True, help="Display name.")
@_with_changes
@with_client
def create(
    client: "Client",
    name: str,
    description: str | None,
    privileges: tuple[str, ...],
    users: tuple[str, ...],
    groups: tuple[str, ...],
    all_users: bool | None,
    inactive: bool | None,
) -> None:
    """Create a policy and print its URN. It applies from the next request on.

    \b
    Example: watchword policy create --name CI --privilege MANAGE_SERVICE_ACCOUNTS --user urn:li:corpuser:ci
    """
    from watchword.client import PolicyActors

    actors = PolicyActors(users, tuple(map(_group_urn, groups)), bool(all_users))
    state = _state(inactive) or PolicyState.ACTIVE.value
    say(one_line(client.create_policy(name, privileges, actors, description=description, state=state)))


@policy.command()
@_policy
@click.option("--name", default=None, help="Display name.")
@_with_changes
@with_client
def update(
    client: "Client",
    urn: str,
    name: str | None,
    description: str | None,
    privileges: tuple[str, ...],
    users: tuple[str, ...],
    groups: tuple[str, ...],
    all_users: bool | None,
    inactive: bool | None,
) -> None:
    """Update a policy: given flags replace its values, the rest stays. --user '' removes all users.

    \b
    Example: watchword policy update own-tokens --inactive
    """
    from watchword.client import PolicyActors

    found = client.get_policy(urn)
    actors = PolicyActors(
        tuple(filter(None, users)) if users else found.actors.users,
        tuple(map(_group_urn, filter(None, groups))) if groups else found.actors.groups,
        found.actors.all_users if all_users is None else all_users,
    )
    client.update_policy(
        urn,
        found.name if name is None else name,
        privileges or found.privileges,
        actors,
        description=found.description if description is None else description,
        state=_state(inactive) or found.state,
    )
    say(f"Updated {one_line(urn)}")


def _state(inactive: bool | None) -> str | None:
    return None if inactive is None else (PolicyState.INACTIVE if inactive else PolicyState.ACTIVE).value


def _group_urn(word: str) -> str:
    return word if word.startswith("urn:") else GROUP_PREFIX + word


@policy.command()
@click.argument("actor", metavar="ACTOR")
@click.argument("privilege", type=_privilege_choice, metavar="PRIVILEGE")
@json_flag
@with_client
def explain(client: "Client", actor: str, privilege: str, as_json: bool) -> None:
    """Explain whether ACTOR holds PRIVILEGE, through which policies, or why not.

    \b
    Example: watchword policy explain urn:li:corpuser:alice MANAGE_ACCESS_TOKENS
    """
    found = client.explain_privilege(actor, privilege)
    pairs: dict[str, Cell] = {
        "Allowed": "yes" if found.allowed else "no, suspended" if found.suspended else "no",
        "Reason": found.sentence,
        "Policies": tuple(dict.fromkeys(ground.policy_urn for ground in found.grounds)),
    }
    show_one(pairs, found, json=as_json)


@dataclass(frozen=True, slots=True)
class Holder:
    """An actor that holds a privilege, and through what; `urn` is None for all users."""

    urn: str | None
    status: str | None
    group: str | None
    policy_urn: str
    policy_name: str
    privilege: str


_HOLDER_COLUMNS: list[Column[Holder]] = [
    Column("ACTOR", lambda holder: holder.urn or "all users"),
    Column("STATUS", lambda holder: holder.status),
    Column("GROUP", lambda holder: holder.group),
    Column("POLICY", lambda holder: holder.policy_urn),
    Column("PRIVILEGE", lambda holder: holder.privilege),
]


@click.command("who-can")
@click.argument("privilege", type=_privilege_choice, metavar="PRIVILEGE")
@list_flags()
@with_client
def who_can(client: "Client", privilege: str, limit: int, as_json: bool) -> None:
    """List who holds PRIVILEGE and through which policy. Suspended actors are listed with their status.

    \b
    Example: watchword who-can MANAGE_ACCESS_TOKENS
    """
    show_list(_holders(client, Privilege[privilege]), _HOLDER_COLUMNS, json=as_json, limit=limit, empty="No one.")


def _holders(client: "Client", privilege: Privilege) -> Iterator[Holder]:
    """One row for each way in which an actor holds the privilege, or one that includes it."""
    granting = {one.name for one in Privilege if privilege in included([one])}
    suspended = {actor.urn for actor in client.actors(only_suspended=True)}

    def status(urn: str) -> str:
        return "SUSPENDED" if urn in suspended else "ACTIVE"

    for found in client.policies():
        granted = next((name for name in found.privileges if name in granting), None)
        if granted is None or found.state != PolicyState.ACTIVE.value:
            continue
        through = (found.urn, found.name, privilege.name if privilege.name in found.privileges else granted)
        if found.actors.all_users:
            yield Holder(None, None, None, *through)
        yield from (Holder(urn, status(urn), None, *through) for urn in found.actors.users)
        for group in found.actors.groups:
            yield from (Holder(urn, status(urn), group, *through) for urn in _members(client, group))


def _members(client: "Client", group: str) -> Iterator[str]:
    from watchword.client import NotFound

    try:
        yield from client.group_members(group)
    except NotFound:  # a policy may name a group that does not exist
        return


@policy.command()
@list_flags()
@with_client
def privileges(client: "Client", limit: int, as_json: bool) -> None:
    """List the privileges that a policy can grant and what each allows.

    \b
    Example: watchword policy privileges
    """
    show_list(client.privileges(), _PRIVILEGE_COLUMNS, json=as_json, limit=limit, empty="No privileges.")


@policy.command()
@_policy
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool) -> None:
    """Delete a policy. It grants nothing from the next request on.

    \b
    Example: watchword policy delete own-tokens --yes
    """
    found = client.get_policy(urn)
    confirm(f"Delete {one_line(urn)} ({one_line(found.name)})?", yes=yes)
    client.delete_policy(urn)
    say(f"Deleted {one_line(urn)}")


_file = click.argument("file", type=click.Path(path_type=Path))
_prune = click.option("--prune", is_flag=True, help="Also remove policies of the set that FILE does not declare.")


@policy.command()
@_file
@_prune
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit with 3 if anything would.")
@yes_flag
@json_flag
@with_client
def apply(client: "Client", file: Path, prune: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Create and update the policies that FILE declares, in one transaction; - is standard input.

    FILE declares one set of policies (`set: NAME`, by default the set default). Policies of other sets, and those made
    with `policy create` or the API, stay. Policies of the set that FILE does not declare are removed only with --prune,
    and at a terminal you are asked first.

    \b
    Example: watchword policy apply policies.yaml --dry-run
    """
    declared = _read(file)
    if dry_run:
        _show_drift(client, declared, prune=prune, as_json=as_json)
        return
    policies = [_declared(one) for one in declared.policies]
    if prune and not yes and can_ask():
        plan = client.apply_policies(policies, set=declared.set_name, prune=True, dry_run=True)
        removed = [one_line(change.urn) for change in plan.changes if change.change == "DELETE"]
        if removed:
            confirm(f"Remove {', '.join(removed)}?", yes=yes)
    applied = client.apply_policies(policies, set=declared.set_name, prune=prune)
    _show_applied(applied, "{} created, {} updated, {} removed, {} unchanged.", as_json=as_json)


@policy.command()
@_file
@_prune
@json_flag
@with_client
def diff(client: "Client", file: Path, prune: bool, as_json: bool) -> None:
    """Show what `policy apply FILE` would change; - is standard input.

    Exit code 0: the set is exactly what FILE declares. Exit code 3: it differs, or has policies that FILE does not
    declare. Nothing is changed.

    \b
    Example: watchword policy diff policies.yaml
    """
    _show_drift(client, _read(file), prune=prune, as_json=as_json)


def _read(file: Path) -> "PolicyDeclaration":
    from watchword.policyfile import MAX_BYTES, read_policy_file, read_policy_text

    if str(file) == "-":
        return read_policy_text(read_input(MAX_BYTES + 1), "standard input")
    return read_policy_file(file)


def _show_drift(client: "Client", declared: "PolicyDeclaration", *, prune: bool, as_json: bool) -> None:
    policies = [_declared(one) for one in declared.policies]
    plan = client.apply_policies(policies, set=declared.set_name, prune=prune, dry_run=True)
    _show_applied(plan, "{} to create, {} to update, {} to remove, {} unchanged.", as_json=as_json)
    if plan.changes or plan.undeclared:
        raise click.exceptions.Exit(DRIFT)


def _show_applied(applied: "AppliedPolicies", words: str, *, as_json: bool) -> None:
    if as_json:
        say(json_text(applied))
        return
    for change in applied.changes:
        _show_change(change)
    for undeclared in applied.undeclared:
        say(f"! {one_line(undeclared.urn)}")
        say(f"    The file does not declare it. --prune removes it from the set {one_line(applied.set)}.")
    counts = [sum(change.change == kind for change in applied.changes) for kind in _SIGNS]
    say(words.format(*counts, applied.unchanged))


def _declared(policy: domain.Policy) -> "DeclaredPolicy":
    from watchword.client import DeclaredPolicy, PolicyActors

    return DeclaredPolicy(
        id=policy.urn.removeprefix(POLICY_PREFIX),
        name=policy.name,
        description=policy.description,
        state=policy.state.value,
        privileges=tuple(privilege.name for privilege in Privilege if privilege in policy.privileges),
        actors=PolicyActors(tuple(sorted(policy.users)), tuple(sorted(policy.groups)), policy.all_users),
    )


def _show_change(change: "PolicyDiff") -> None:
    """Print the fields of a new policy, or the changed fields of an existing one."""
    say(f"{_SIGNS.get(change.change, '?')} {one_line(change.urn)}")
    before, after = _fields(change.before), _fields(change.after)
    for field, new in after.items():
        old = before.get(field)
        if change.before is None:
            if new and field not in {"source", "set"}:
                say(f"    {field}: {json_text(new)}")
        elif old != new:
            say(f"    {field}: {json_text(old)} -> {json_text(new)}")


def _fields(policy: "PolicyInfo | None") -> dict[str, object]:
    """The fields that a file can declare, and its source and set."""
    if policy is None:
        return {}
    shown = json_value(policy)
    fields = {name: shown[name] for name in ("name", "description", "state", "privileges", "source", "set")}
    return fields | {f"actors.{name}": value for name, value in shown["actors"].items()}


@policy.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--set", "set_name", default=None, metavar="NAME", help="Only the policies of this set.")
@with_client
def export(client: "Client", file: Path | None, set_name: str | None) -> None:
    """Write policies as a file for `policy apply`, to FILE or standard output.

    Without --set, exports the set default and the policies that no file declares, as the set default.

    \b
    Example: watchword policy export policies.yaml
    """
    from watchword.policyfile import write_policy_file

    editable = [found for found in client.policies() if found.editable]
    sets = {found.set for found in editable if found.set is not None}
    if set_name is not None and set_name not in sets:
        raise OperatorError(f"There is no policy set {set_name!r}. Sets here: {', '.join(sorted(sets)) or 'none'}.")
    wanted = {set_name} if set_name else {DEFAULT_SET, None}
    text = write_policy_file(
        (_domain_policy(found) for found in editable if found.set in wanted), set_name or DEFAULT_SET
    )
    if set_name is None and (others := one_line(", ".join(sorted(sets - wanted)))):
        warn(f"Left out policy sets: {others}. Export each with --set NAME.")
    if file is None:
        click.echo(text, nl=False)
    else:
        write_text(file, text)


def _domain_policy(policy: "PolicyInfo") -> domain.Policy:
    try:
        return domain.Policy(
            urn=policy.urn,
            name=policy.name,
            description=policy.description,
            privileges=frozenset(Privilege[word] for word in policy.privileges),
            state=PolicyState(policy.state),
            users=frozenset(policy.actors.users),
            groups=frozenset(policy.actors.groups),
            all_users=policy.actors.all_users,
        )
    except (KeyError, ValueError):
        raise OperatorError(
            f"{one_line(policy.urn)} has values that this version does not know. Use the version of the server."
        ) from None
