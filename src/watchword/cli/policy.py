"""`watchword policy`."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from watchword.cli.options import (
    ActorParam,
    add_options,
    full_urn,
    limit_flag,
    need_change,
    page_size,
    repeatable,
    urns_flag,
    yes_flag,
)
from watchword.cli.output import (
    Cell,
    Column,
    json_text,
    json_value,
    say,
    say_json,
    show_list,
    show_one,
    show_result,
    warn,
    with_name,
)
from watchword.cli.remote import confirm, need_confirmation, urn_argument, with_client, with_client_only
from watchword.cli.run import Command, CommandGroup, read_input
from watchword.client.errors import Unauthorized
from watchword.domain import policies as domain
from watchword.domain.declared_entities import NO_ENTITIES, DeclaredAccount, DeclaredEntities, DeclaredGroup
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.names import ACCOUNT_PREFIX, GROUP_PREFIX, POLICY_PREFIX, is_account
from watchword.domain.policies import DEFAULT_SET, PolicyState, Privilege, right_name, right_of
from watchword.domain.resources import Resource
from watchword.domain.retention import FIELDS as RULE_FIELDS
from watchword.domain.retention import parse_rule
from watchword.domain.webhooks import DECLARED, WebhookState, check_webhooks, declared_webhook
from watchword.files import write_text

if TYPE_CHECKING:
    from watchword.client import (
        AppliedPolicies,
        Client,
        DeclaredAccountInfo,
        DeclaredGroupInfo,
        GroupInfo,
        PolicyInfo,
        PrivilegeDescription,
        PrivilegeHolder,
        RetentionRuleInfo,
        UserInfo,
        WebhookInfo,
    )
    from watchword.client.records import Json

T = TypeVar("T")
DRIFT = 3
"""Exit code when the policies differ from the file."""
_SIGNS = {"CREATE": "+", "UPDATE": "~", "DELETE": "-"}
_RULE_NAME, _WEBHOOK_NAME, _RESOURCE_NAME = "retention {}", "webhook {}", "resource {}"
_policy = urn_argument("POLICY", POLICY_PREFIX)
_PRIVILEGE = click.Choice([privilege.name for privilege in Privilege], case_sensitive=False)


class _RightType(click.ParamType["domain.Right"]):
    """The name of a privilege, in any case, or a scope."""

    name = "right"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> domain.Right:
        if isinstance(value, str) and value.upper() in Privilege.__members__:
            return Privilege[value.upper()]
        try:
            return value if isinstance(value, Privilege) else right_of(value, "it")
        except Fault as fault:
            self.fail(fault.message.removeprefix("it "), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _PRIVILEGE.shell_complete(ctx, param, incomplete)


_right = click.argument("right", type=_RightType(), metavar="PRIVILEGE_OR_SCOPE")


def _granted_to(policy: "PolicyInfo", shown: "Callable[[UserInfo], str]" = lambda user: user.urn) -> tuple[str, ...]:
    actors = policy.actors
    return (*(["all users"] if actors.all_users else []), *map(shown, actors.resolved_users), *actors.groups)


_COLUMNS: "list[Column[PolicyInfo]]" = [
    Column("URN", lambda policy: policy.urn, terse=("POLICY", POLICY_PREFIX)),
    Column("NAME", lambda policy: policy.name, free=True),
    Column("STATE", lambda policy: policy.state),
    Column("SOURCE", lambda policy: policy.source),
    Column(
        "GRANTED TO",
        _granted_to,
        free=True,
        name=lambda policy: ", ".join(_granted_to(policy, lambda user: user.display_name or user.urn)),
    ),
    Column("PRIVILEGES", lambda policy: policy.privileges, free=True),
    Column("SCOPES", lambda policy: policy.scopes, free=True),
    Column("SET", lambda policy: policy.set),
]


_PRIVILEGE_COLUMNS: "list[Column[PrivilegeDescription]]" = [
    Column("PRIVILEGE", lambda privilege: privilege.name),
    Column("ALLOWS", lambda privilege: privilege.allows, free=True),
    Column("INCLUDES", lambda privilege: privilege.includes, free=True),
]


@click.group(cls=CommandGroup)
def policy() -> None:
    """Manage policies: who may do what. POLICY is a URN or the id at its end."""


@policy.command("list")
@click.option("--query", help="Policies with these words in name or description.")
@urns_flag
@limit_flag()
@with_client
def list_policies(client: "Client", query: str | None, limit: int, as_json: bool, urns: bool) -> None:
    """List policies.

    Example: watchword policy list --json
    """
    show_list(client.policies(query=query), _COLUMNS, json=as_json, limit=limit, empty="No policies.", urns=urns)


@policy.command()
@_policy
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """Show one policy.

    Example: watchword policy show own-tokens
    """
    found = client.get_policy(urn)
    pairs = {
        "URN": found.urn,
        "Name": found.name,
        "Description": found.description,
        "State": found.state,
        "Source": found.source,
        "Set": found.set,
        "Privileges": found.privileges,
        "Scopes": found.scopes,
        "Granted to": _granted_to(found, lambda user: with_name(user.urn, user.display_name)),
    }
    show_one(pairs, found, json=as_json)


_with_changes = add_options(
    click.option("--description", help="Description of the policy."),
    repeatable("--privilege", "privileges", "WORD", "Privilege it grants. See `policy privileges`.", type=_PRIVILEGE),
    repeatable(
        "--scope", "scopes", "WORD", "Scope of another service that it grants. Such as reports:read or orders:*."
    ),
    repeatable("--user", "users", "ACTOR", "User it grants to.", type=ActorParam(may_be_empty=True)),
    repeatable("--group", "groups", "GROUP", "Group it grants to."),
    click.option("--all-users/--not-all-users", default=None, help="Whether it grants to every user."),
    click.option("--inactive/--active", default=None, help="Whether the policy grants anything."),
)


@policy.command()
@click.option("--name", required=True, help="Display name.")
@_with_changes
@with_client
def create(client: "Client", as_json: bool, **flags: Any) -> None:
    """Create a policy and print its URN. It applies from the next request on.

    Example: watchword policy create --name Reports --scope reports:read --group analysts
    """
    urn = client.create_policy(**_with_flags(None, flags))
    show_result(urn, client.get_policy(urn) if as_json else None, json=as_json)


@policy.command()
@_policy
@click.option("--name", help="Display name.")
@_with_changes
@with_client
def update(client: "Client", urn: str, as_json: bool, **flags: Any) -> None:
    """Update a policy: given flags replace its values, the rest stays. --user '' removes all users, --scope '' all
    scopes.

    Example: watchword policy update own-tokens --inactive
    """
    need_change(flags)
    found = client.get_policy(urn)
    client.update_policy(urn, **_with_flags(found, flags), revision=found.revision)
    show_result(f"Updated {urn}", client.get_policy(urn) if as_json else None, json=as_json)


def _with_flags(found: "PolicyInfo | None", flags: dict[str, Any]) -> dict[str, Any]:
    """The values of a policy, or of a new one, with those that the flags replace."""
    from watchword.client import PolicyActors

    values = {"name": None, "description": None, "privileges": (), "scopes": (), "state": PolicyState.ACTIVE.value}
    if found is not None:
        values = {name: getattr(found, name) for name in values}
    values |= {name: flags[name] for name in ("name", "description") if flags[name] is not None}
    if flags["inactive"] is not None:
        values["state"] = (PolicyState.INACTIVE if flags["inactive"] else PolicyState.ACTIVE).value
    actors = PolicyActors() if found is None else found.actors
    users, groups, scopes = (tuple(filter(None, flags[name])) for name in ("users", "groups", "scopes"))
    return {
        **values,
        "privileges": flags["privileges"] or values["privileges"],
        "scopes": scopes if flags["scopes"] else values["scopes"],
        "actors": PolicyActors(
            users if flags["users"] else actors.users,
            tuple(full_urn(group, GROUP_PREFIX) for group in groups) if flags["groups"] else actors.groups,
            actors.all_users if flags["all_users"] is None else flags["all_users"],
        ),
    }


@policy.command()
@click.argument("actor", metavar="ACTOR", type=ActorParam())
@_right
@with_client
def explain(client: "Client", actor: str, right: domain.Right, as_json: bool) -> None:
    """Explain whether ACTOR holds PRIVILEGE_OR_SCOPE, through which policies, or why not.

    Example: watchword policy explain urn:li:corpuser:alice MANAGE_ACCESS_TOKENS
    """
    found = client.explain_privilege(actor, right_name(right))
    pairs: dict[str, Cell] = {
        "Allowed": "yes" if found.allowed else "no, suspended" if found.suspended else "no",
        "Reason": found.explanation,
        "Policies": tuple(dict.fromkeys(grant.policy_urn for grant in found.grants)),
    }
    show_one(pairs, found, json=as_json)


_HOLDER_COLUMNS: "list[Column[PrivilegeHolder]]" = [
    Column("ACTOR", lambda holder: holder.actor_urn or "all users", name=lambda holder: holder.actor_name),
    Column("STATUS", lambda holder: holder.status),
    Column("GROUP", lambda holder: holder.group_urn),
    Column("POLICY", lambda holder: holder.policy_urn),
    Column("GRANTS", lambda holder: holder.privilege),
]


@click.command("who-can", cls=Command)
@_right
@urns_flag
@limit_flag()
@with_client
def who_can(client: "Client", right: domain.Right, limit: int, as_json: bool, urns: bool) -> None:
    """List who holds PRIVILEGE_OR_SCOPE and through which policy. Suspended actors are listed with their status.

    Example: watchword who-can reports:read
    """
    found = client.holders(right_name(right), page_size=page_size(limit))
    show_list(found, _HOLDER_COLUMNS, json=as_json, limit=limit, empty="No one.", urns=urns)


@policy.command()
@limit_flag()
@with_client
def privileges(client: "Client", limit: int, as_json: bool) -> None:
    """List the privileges that a policy can grant and what each allows.

    Example: watchword policy privileges
    """
    show_list(client.privileges(), _PRIVILEGE_COLUMNS, json=as_json, limit=limit, empty="No privileges.")


@policy.command()
@_policy
@yes_flag
@with_client
def delete(client: "Client", urn: str, yes: bool, as_json: bool) -> None:
    """Delete a policy. It grants nothing from the next request on.

    Example: watchword policy delete own-tokens --yes
    """
    found = client.get_policy(urn)
    confirm(f"Delete {urn} ({found.name})?", yes=yes)
    client.delete_policy(urn)
    show_result(f"Deleted {urn}", {"urn": urn, "deleted": True}, json=as_json)


_file = click.argument("file", type=click.Path(path_type=Path))
_prune = click.option("--prune", is_flag=True, help="Also remove what the set has and FILE does not declare.")


@policy.command()
@_file
@_prune
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit with 3 if anything would.")
@yes_flag
@with_client
def apply(client: "Client", file: Path, prune: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Create and update what FILE declares, in one transaction; - is standard input.

    FILE declares one set of policies, groups, service accounts, retention rules, webhooks and resources (`set: NAME`,
    by default the set default). Those of other sets, and those made with `policy create` or the API, stay. What the set
    has and FILE does not declare is removed only with --prune, after a question or with --yes. Accounts are never
    removed.

    Example: watchword policy apply policies.yaml --dry-run
    """
    if prune:
        need_confirmation(yes=yes, dry_run=dry_run)
    declared = read_declaration(file)
    apply_file = _applier(client, declared)
    _warn_of_missing_groups(client, declared)
    if dry_run:
        _show_drift(apply_file(prune=prune, dry_run=True), as_json=as_json)
        return
    if prune and not yes:
        plan = apply_file(prune=True, dry_run=True)
        removed = [name for kind, name, *_ in _changes(plan) if kind == "DELETE"]
        if removed:
            removed.sort(key=lambda name: not name.startswith(POLICY_PREFIX))
            confirm(f"Remove {', '.join(removed)}?", yes=yes)
    _show_applied(apply_file(prune=prune), "{} created, {} updated, {} removed, {} unchanged.", as_json=as_json)


@policy.command()
@_file
@_prune
@with_client
def diff(client: "Client", file: Path, prune: bool, as_json: bool) -> None:
    """Show what `policy apply FILE` would change; - is standard input.

    Exit code 0: the set is exactly what FILE declares. Exit code 3: it differs, or has what FILE does not declare.
    Nothing is changed.

    Example: watchword policy diff policies.yaml
    """
    declared = read_declaration(file)
    _warn_of_missing_groups(client, declared)
    _show_drift(_applier(client, declared)(prune=prune, dry_run=True), as_json=as_json)


def read_declaration(file: Path) -> domain.PolicyDeclaration:
    """Read a policy file; - is standard input."""
    from watchword.policyfile import MAX_BYTES, read_policy_file, read_policy_text

    if str(file) == "-":
        return read_policy_text(read_input(MAX_BYTES + 1), "standard input")
    return read_policy_file(file)


def _warn_of_missing_groups(client: "Client", declared: domain.PolicyDeclaration) -> None:
    """A misspelled group grants nothing, silently."""
    named = {group for policy in declared.policies for group in policy.groups}
    made = {group.urn for group in (declared.entities or NO_ENTITIES).groups}
    if not named - made:
        return
    try:
        known = {group.urn: group.name for group in client.groups()}
    except Unauthorized:  # what the caller may do is decided, and said, by the request that applies the file
        return
    for urn in sorted(named - made - known.keys()):
        close = get_close_matches(urn, [*known, *made], 1, 0.8)
        hint = f" Did you mean {close[0]}?" if close else ""
        warn(f"There is no group {urn}: the policies that name it grant nothing by it until it has members.{hint}")


def _applier(client: "Client", declared: domain.PolicyDeclaration) -> "Callable[..., AppliedPolicies]":
    """What applies the declaration when it is called."""
    from watchword.client import DeclaredPolicyInfo, PolicyActors

    policies = [
        DeclaredPolicyInfo(
            id=policy.urn.removeprefix(POLICY_PREFIX),
            name=policy.name,
            description=policy.description,
            state=policy.state.value,
            privileges=tuple(privilege.name for privilege in Privilege if privilege in policy.privileges),
            scopes=tuple(sorted(policy.scopes)),
            actors=PolicyActors(tuple(sorted(policy.users)), tuple(sorted(policy.groups)), policy.all_users),
        )
        for policy in declared.policies
    ]
    groups, accounts = _declared_entities(declared.entities or NO_ENTITIES)
    return partial(
        client.apply_policies,
        policies,
        groups=groups,
        accounts=accounts,
        retention=[rule.written() for rule in declared.rules],
        webhooks=[declared_webhook(webhook) for webhook in declared.webhooks],
        resources=[resource.written() for resource in declared.resources],
        set_name=declared.set_name,
    )


def _declared_entities(
    entities: DeclaredEntities,
) -> "tuple[list[DeclaredGroupInfo], list[DeclaredAccountInfo]]":
    """Convert them to records of the client: an account names only groups whose members are not declared."""
    from watchword.client import DeclaredAccountInfo, DeclaredGroupInfo

    open_groups = [group for group in entities.groups if group.urn in entities.open_groups]
    groups = [
        DeclaredGroupInfo(
            group.urn.removeprefix(GROUP_PREFIX),
            group.name,
            group.description,
            None if group in open_groups else tuple(sorted(group.members)),
        )
        for group in entities.groups
    ]
    accounts = [
        DeclaredAccountInfo(
            account.urn.removeprefix(ACCOUNT_PREFIX),
            account.name,
            account.description,
            tuple(group.urn for group in open_groups if account.urn in group.members),
        )
        for account in entities.accounts
    ]
    return groups, accounts


def _show_drift(plan: "AppliedPolicies", *, as_json: bool) -> None:
    _show_applied(plan, "{} to create, {} to update, {} to remove, {} unchanged.", as_json=as_json)
    undeclared = (plan.undeclared, plan.undeclared_entities, plan.undeclared_retention, plan.undeclared_webhooks)
    changes = (plan.changes, plan.entities, plan.retention, plan.webhooks, plan.resources)
    if any((*changes, *undeclared, plan.undeclared_resources)):
        raise click.exceptions.Exit(DRIFT)


def _show_applied(applied: "AppliedPolicies", words: str, *, as_json: bool) -> None:
    if as_json:
        say_json(applied)
        return
    changes = _changes(applied)
    for kind, name, before, after in changes:
        show_change(kind, name, before, after)
        if is_account(name) and after is not None and after["set"] is None:
            say("    The file does not declare it. It leaves the set and keeps its tokens: accounts are never removed.")
            say(f"    To delete it: watchword account delete {name.removeprefix(ACCOUNT_PREFIX)}")
    undeclared = [*applied.undeclared_entities, *(policy.urn for policy in applied.undeclared)]
    undeclared += [_RULE_NAME.format(series) for series in applied.undeclared_retention]
    undeclared += [_WEBHOOK_NAME.format(webhook_id) for webhook_id in applied.undeclared_webhooks]
    undeclared += [_RESOURCE_NAME.format(name) for name in applied.undeclared_resources]
    for name in undeclared:
        say(f"! {name}")
        takes = "takes it out of" if is_account(name) else "removes it from"
        say(f"    The file does not declare it. --prune {takes} the set {applied.set}.")
    kinds = [kind for kind, *_ in changes]
    say(words.format(*map(kinds.count, _SIGNS), applied.unchanged))


def _changes(applied: "AppliedPolicies") -> "list[tuple[str, str, Json | None, Json | None]]":
    """The kind of each change, the urn or name of what changes, and its fields before and after."""
    changes = [(one.change, one.urn, one.before, one.after) for one in applied.entities]
    changes += [(one.change, one.urn, _fields(one.before), _fields(one.after)) for one in applied.changes]
    changes += [(one.change, _RULE_NAME.format(one.series), one.before, one.after) for one in applied.retention]
    changes += [(one.change, _WEBHOOK_NAME.format(one.id), one.before, one.after) for one in applied.webhooks]
    return changes + [(one.change, _RESOURCE_NAME.format(one.name), one.before, one.after) for one in applied.resources]


def show_change(kind: str, name: str, before: "Json | None", after: "Json | None") -> None:
    """Print the fields of what is new, or the changed fields of what exists. A field that is absent is null."""
    say(f"{_SIGNS.get(kind, '?')} {name}")
    fields = dict.fromkeys([*(after or {}), *(before or {})]) if after is not None else {}
    for field in fields:
        old, new = (before or {}).get(field), (after or {}).get(field)
        if before is None and new and field not in {"source", "set", "series"}:
            say(f"    {field}: {json_text(new)}")
        elif before is not None and old != new:
            say(f"    {field}: {json_text(old)} -> {json_text(new)}")


def _fields(policy: "PolicyInfo | None") -> dict[str, object] | None:
    """The fields that a file can declare, and its source and set."""
    if policy is None:
        return None
    shown = json_value(policy)
    fields = {name: shown[name] for name in ("name", "description", "state", "privileges", "scopes", "source", "set")}
    return fields | {f"actors.{name}": shown["actors"][name] for name in ("users", "groups", "allUsers")}


@policy.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--set", "set_name", metavar="NAME", help="Only the policies of this set.")
@with_client_only
def export(client: "Client", file: Path | None, set_name: str | None) -> None:
    """Write policies, groups, service accounts, retention rules, webhooks and resources as a file for `policy apply`,
    to FILE or standard output.

    Without --set, exports the set default and what no file declares, as the set default.

    Example: watchword policy export policies.yaml
    """
    from watchword.policyfile import write_policy_file

    editable = [policy for policy in client.policies() if policy.editable]
    groups = list(client.groups())
    accounts = _readable(client.service_accounts, "service accounts", "Manage Service Accounts")
    rules = _readable(client.retention_rules, "retention rules", "Truncate time series index")
    webhooks = _readable(client.webhooks, "webhooks", "Manage Webhooks and View Audit Log")
    resources = client.resources()
    found_sets = {one.set for found in (editable, groups, accounts, rules, webhooks, resources) for one in found}
    sets = {name for name in found_sets if name is not None}
    if set_name is not None and set_name not in sets:
        raise OperatorError(f"There is no policy set {set_name!r}. Sets here: {', '.join(sorted(sets)) or 'none'}.")
    wanted = {set_name} if set_name else {DEFAULT_SET, None}
    text = write_policy_file(
        (_domain_policy(policy) for policy in editable if policy.set in wanted),
        set_name or DEFAULT_SET,
        [_exported_group(client, group) for group in groups if group.set in wanted],
        [
            DeclaredAccount(account.urn.removeprefix(ACCOUNT_PREFIX), account.display_name, account.description)
            for account in accounts
            if account.set in wanted
        ],
        [parse_rule(declared_fields(rule)) for rule in rules if rule.set in wanted],
        check_webhooks([_exported_webhook(webhook) for webhook in webhooks if webhook.set in wanted], DEFAULT_SET),
        [Resource(resource.name, resource.id) for resource in resources if resource.set in wanted],
    )
    if set_name is None and (others := ", ".join(sorted(sets - wanted))):
        warn(f"Left out policy sets: {others}. Export each with --set NAME.")
    if file is None:
        click.echo(text, nl=False)
    else:
        write_text(file, text)


def _readable(read: Callable[[], Iterable[T]], what: str, privileges: str) -> list[T]:
    """What the caller may read."""
    try:
        return list(read())
    except Unauthorized:
        warn(f"Left out {what}: to read them needs {privileges}.")
        return []


def _exported_webhook(webhook: "WebhookInfo") -> dict[str, Any]:
    shown = json_value(webhook)
    enabled = webhook.state != WebhookState.DISABLED.value or webhook.stop_reason is not None
    return {name: shown[name] for name in DECLARED if name != "enabled"} | {"enabled": enabled}


def declared_fields(rule: "RetentionRuleInfo") -> dict[str, Any]:
    """Return the fields as a policy file declares them."""
    shown = json_value(rule) | {"mode": rule.mode.lower(), "hold": rule.hold_reason}
    return {name: shown[name] for name in RULE_FIELDS if shown[name] is not None}


def _exported_group(client: "Client", group: "GroupInfo") -> DeclaredGroup:
    """Without members if they are too many to declare."""
    declares = group.member_count <= domain.MAX_ENTRIES
    members = frozenset(member.urn for member in client.group_members(group.urn)) if declares else None
    return DeclaredGroup(group.urn.removeprefix(GROUP_PREFIX), group.name, group.description, members)


def _domain_policy(policy: "PolicyInfo") -> domain.Policy:
    try:
        return domain.Policy(
            urn=policy.urn,
            name=policy.name,
            description=policy.description,
            privileges=frozenset(Privilege[word] for word in policy.privileges),
            scopes=frozenset(policy.scopes),
            state=PolicyState(policy.state),
            users=frozenset(policy.actors.users),
            groups=frozenset(policy.actors.groups),
            all_users=policy.actors.all_users,
        )
    except (KeyError, ValueError):
        raise OperatorError(
            f"{policy.urn} has values that this version does not know. Use the version of the server."
        ) from None
