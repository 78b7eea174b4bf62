"""`watchword policy`."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from watchword import client as api
from watchword.authority.declared_parts import DEFAULT_SET
from watchword.authority.policies import MAX_ENTRIES, PolicyState
from watchword.authority.privileges import Privilege, Right, right_name, right_of
from watchword.basics.errors import Fault, OperatorError
from watchword.basics.files import write_text
from watchword.basics.names import ACCOUNT_PREFIX, GROUP_PREFIX, POLICY_PREFIX, did_you_mean, is_account
from watchword.basics.scopes import ALL_SCOPES, covering
from watchword.cli import output as out
from watchword.cli.options import (
    actor_or_empty,
    add_options,
    full_urn,
    need_change,
    page_size,
    repeatable,
    yes_flag,
)
from watchword.cli.remote import (
    ACTOR,
    complete_groups,
    completes,
    confirm,
    need_confirmation,
    urn_argument,
    with_client,
    with_client_only,
    with_list,
)
from watchword.cli.run import CommandGroup, WrongUse, read_input
from watchword.client.errors import BadRequest, NotFound, Unauthorized
from watchword.notices.webhook_rules import DECLARED, WebhookState
from watchword.retention.rules import FIELDS as RULE_FIELDS

if TYPE_CHECKING:
    from watchword.client.records import Json
    from watchword.declared.policy_file import PolicyFile

T = TypeVar("T")
DRIFT = 3
"""Exit code when the policies differ from the file."""
_SIGNS = {"CREATE": "+", "UPDATE": "~", "DELETE": "-"}
# How other parts of a set are called, their fields in `AppliedPolicies`, and the field that names one.
_PARTS = (
    ("retention {}", "retention", "series"),
    ("webhook {}", "webhooks", "id"),
    ("resource {}", "resources", "name"),
)
_complete = completes(lambda client, _: client.policies.list(), prefix=POLICY_PREFIX)
_policy = urn_argument("POLICY", POLICY_PREFIX, _complete)
_PRIVILEGE = click.Choice([privilege.name for privilege in Privilege], case_sensitive=False)


class _RightType(click.ParamType["Right"]):
    """The name of a privilege, in any case, or a scope."""

    name = "right"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Right:
        word = value.upper()
        try:
            return right_of(word if word in Privilege.__members__ else value, "it")
        except Fault as fault:
            self.fail(fault.message.removeprefix("it ") + did_you_mean(word, Privilege.__members__), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _PRIVILEGE.shell_complete(ctx, param, incomplete)


_right = click.argument("right", type=_RightType(), metavar="PRIVILEGE_OR_SCOPE")


def _unnamed(client: "api.Client", right: Right) -> str | None:
    """What to say of a scope that no policy names: it may be a misspelt privilege."""
    if isinstance(right, Privilege) or right == ALL_SCOPES:
        return None
    try:
        if any(covering({*one.scopes} - {ALL_SCOPES}, right) for one in client.policies.list()):
            return None
    except Unauthorized:  # of those who may not list policies, the request itself says what they lack
        return None
    word = right.upper().replace("-", "_")
    close = [name for name in Privilege.__members__ if word.rpartition("_")[2] in name]
    close = close[:3] or get_close_matches(word, Privilege.__members__, 3, 0.5)
    sentence = f"No policy names the scope {right}; only * grants it. Close privileges: {', '.join(close) or 'none'}."
    return f"{sentence} To list all: watchword policy privileges"


def _granted_to(
    policy: "api.PolicyInfo", shown: "Callable[[api.UserInfo], str]" = lambda user: user.urn
) -> tuple[str, ...]:
    actors = policy.actors
    return (*(["all users"] if actors.all_users else []), *map(shown, actors.resolved_users), *actors.groups)


_COLUMNS = out.columns(
    out.Column("URN", "urn", terse=("POLICY", POLICY_PREFIX)),
    "name*, state, source",
    out.Column(
        "GRANTED TO",
        _granted_to,
        free=True,
        name=lambda policy: ", ".join(_granted_to(policy, lambda user: user.display_name or user.urn)),
    ),
    "privileges*, scopes*, set",
)
_PRIVILEGE_COLUMNS = out.columns("PRIVILEGE=name, allows*, includes*")


@click.group(cls=CommandGroup)
def policy() -> None:
    """POLICY is a URN, the id at its end, or the name of one policy."""


def _find(client: "api.Client", urn: str) -> "api.PolicyInfo":
    try:
        return client.policies.get(urn)
    except (BadRequest, NotFound):
        named = [one for one in client.policies.list() if one.name == urn.removeprefix(POLICY_PREFIX)]
        if len(named) != 1:
            raise
        return named[0]


@policy.command("list")
@click.option("--search", metavar="TEXT", help="Words in the name or description.")
@with_list(urns=True)
def list_policies(client: "api.Client", search: str | None) -> None:
    """List policies.

    Example: watchword policy list --json
    """
    out.show_list(client.policies.list(query=search), _COLUMNS, "No policies.")


@policy.command()
@_policy
@with_client
def show(client: "api.Client", urn: str) -> None:
    """Show one policy.

    Example: watchword policy show own-tokens
    """
    found = _find(client, urn)
    pairs = {
        **out.attributes(found, "urn, name, description, state, source, set, privileges, scopes"),
        "Granted to": _granted_to(found, lambda user: out.with_name(user.urn, user.display_name)),
    }
    out.show_one(found, pairs)


_with_changes = add_options(
    click.option("--description", help="Description of the policy."),
    repeatable("--privilege", "privileges", "WORD", "Privilege it grants. See `policy privileges`.", type=_PRIVILEGE),
    repeatable(
        "--scope", "scopes", "WORD", "Scope of another service that it grants. Such as reports:read or orders:*."
    ),
    repeatable("--user", "users", "ACTOR", "User it grants to.", **ACTOR | {"type": actor_or_empty}),
    repeatable("--group", "groups", "GROUP", "Group it grants to.", shell_complete=complete_groups),
    click.option("--all-users/--not-all-users", default=None, help="Whether it grants to every user."),
    click.option("--inactive/--active", default=None, help="Whether the policy grants anything."),
)


@policy.command()
@click.option("--name", required=True, help="Display name.")
@_with_changes
@with_client
def create(client: "api.Client", **flags: Any) -> None:
    """Create a policy and print its URN. It applies from the next request on.

    Example: watchword policy create --name Reports --scope reports:read --group analysts
    """
    urn = client.policies.create(**_with_flags(None, flags))
    out.show_result(urn, client.policies.get(urn) if out.is_data() else None)


@policy.command()
@_policy
@click.option("--name", help="Display name.")
@_with_changes
@with_client
def update(client: "api.Client", urn: str, **flags: Any) -> None:
    """Update a policy: given flags replace its values, the rest stays. --user '' removes all users, --scope '' all
    scopes.

    Example: watchword policy update own-tokens --inactive
    """
    need_change(flags)
    found = _find(client, urn)
    client.policies.update(found.urn, **_with_flags(found, flags), revision=found.revision)
    out.show_result(f"Updated {found.urn}", client.policies.get(found.urn) if out.is_data() else None)


def _with_flags(found: "api.PolicyInfo | None", flags: dict[str, Any]) -> dict[str, Any]:
    """The values of a policy, or of a new one, with those that the flags replace."""
    values = {"name": None, "description": None, "privileges": (), "scopes": (), "state": PolicyState.ACTIVE.value}
    if found is not None:
        values = {name: getattr(found, name) for name in values}
    values |= {name: flags[name] for name in ("name", "description") if flags[name] is not None}
    if flags["inactive"] is not None:
        values["state"] = (PolicyState.INACTIVE if flags["inactive"] else PolicyState.ACTIVE).value
    actors = api.PolicyActors() if found is None else found.actors
    users, groups, scopes = (tuple(filter(None, flags[name])) for name in ("users", "groups", "scopes"))
    return {
        **values,
        "privileges": flags["privileges"] or values["privileges"],
        "scopes": scopes if flags["scopes"] else values["scopes"],
        "actors": api.PolicyActors(
            users if flags["users"] else actors.users,
            tuple(full_urn(group, GROUP_PREFIX) for group in groups) if flags["groups"] else actors.groups,
            actors.all_users if flags["all_users"] is None else flags["all_users"],
        ),
    }


@policy.command()
@click.argument("actor", metavar="ACTOR", **ACTOR)
@_right
@with_client
def explain(client: "api.Client", actor: str, right: Right) -> None:
    """Explain whether ACTOR holds PRIVILEGE_OR_SCOPE, through which policies, or why not.

    Example: watchword policy explain urn:li:corpuser:alice MANAGE_ACCESS_TOKENS
    """
    found = client.privileges.explain(actor, right_name(right))
    if unnamed := _unnamed(client, right):
        out.warn(unnamed)
    pairs: dict[str, out.Cell] = {
        "Allowed": "yes" if found.allowed else "no, suspended" if found.suspended else "no",
        "Reason": found.explanation,
        "Policies": tuple(dict.fromkeys(grant.policy_urn for grant in found.grants)),
    }
    out.show_one(found, pairs)


_HOLDER_COLUMNS = out.columns(
    out.Column("ACTOR", lambda holder: holder.actor_urn or "all users", name="actor_name"),
    "status, GROUP=group_urn, POLICY=policy_urn, GRANTS=privilege",
)


@policy.command("who-can")
@_right
@with_list(urns=True)
def who_can(client: "api.Client", right: Right) -> None:
    """List who holds PRIVILEGE_OR_SCOPE, suspended or not, and by which policy. Exit with 2 if no policy names it.

    Example: watchword policy who-can reports:read
    """
    if unnamed := _unnamed(client, right):
        raise WrongUse(unnamed)
    found = client.privileges.holders(right_name(right), page_size=page_size())
    out.show_list(found, _HOLDER_COLUMNS, "No one.")


@policy.command()
@with_list()
def privileges(client: "api.Client") -> None:
    """List the privileges that a policy can grant and what each allows.

    Example: watchword policy privileges
    """
    out.show_list(client.privileges.list(), _PRIVILEGE_COLUMNS, "No privileges.")


@policy.command()
@_policy
@yes_flag
@with_client
def delete(client: "api.Client", urn: str) -> None:
    """Delete a policy. It grants nothing from the next request on.

    Example: watchword policy delete own-tokens --yes
    """
    found = _find(client, urn)
    confirm(f"Delete {found.urn} ({found.name})?")
    client.policies.delete(found.urn)
    out.show_result(f"Deleted {found.urn}", {"urn": found.urn, "deleted": True})


@policy.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--prune", is_flag=True, help="Also remove what the set has and FILE does not declare.")
@click.option("--dry-run", is_flag=True, help="Only show what would change; exit with 3 if the set differs from FILE.")
@yes_flag
@with_client
def apply(client: "api.Client", file: Path, prune: bool, dry_run: bool) -> None:
    """Create and update what FILE declares, in one transaction; - is standard input.

    FILE declares one set of policies, groups, service accounts, retention rules, webhooks and resources (`set: NAME`,
    by default the set default). Those of other sets, and those made with `policy create` or the API, stay. What the set
    has and FILE does not declare is removed only with --prune, after a question or with --yes. Accounts are never
    removed.

    Example: watchword policy apply policies.yaml --dry-run
    """
    if prune:
        need_confirmation()
    content = _read_declared(file).content
    apply_file = partial(client.policies.apply, **content)
    _warn_of_missing_groups(client, content)
    if dry_run:
        plan = apply_file(prune=prune, dry_run=True)
        _show_applied(plan, "{} to create, {} to update, {} to remove, {} unchanged.")
        if _changes(plan) or _undeclared(plan):
            out.warn(f"Exit code {DRIFT}: the set differs from the file.")
            raise click.exceptions.Exit(DRIFT)
        return
    if prune and not out.flag("yes"):
        plan = apply_file(prune=True, dry_run=True)
        removed = [name for kind, name, *_ in _changes(plan) if kind == "DELETE"]
        if removed:
            removed.sort(key=lambda name: not name.startswith(POLICY_PREFIX))
            confirm(f"Remove {', '.join(removed)}?")
    _show_applied(apply_file(prune=prune), "{} created, {} updated, {} removed, {} unchanged.")


def _read_declared(file: Path) -> "PolicyFile":
    """Read a policy file; - is standard input."""
    from watchword.declared.policy_file import MAX_BYTES, read_policy_file, read_policy_text

    if str(file) == "-":
        return read_policy_text(read_input(MAX_BYTES + 1), "standard input")
    return read_policy_file(file)


def _warn_of_missing_groups(client: "api.Client", content: "Json") -> None:
    """A misspelled group grants nothing, silently."""
    named = {group for policy in content.get("policies", ()) for group in policy["actors"].get("groups", ())}
    made = {GROUP_PREFIX + group["id"] for group in content.get("groups", ())}
    if not named - made:
        return
    try:
        known = {group.urn: group.name for group in client.groups.list()}
    except Unauthorized:  # what the caller may do is decided, and said, by the request that applies the file
        return
    for urn in sorted(named - made - known.keys()):
        hint = did_you_mean(urn, [*known, *made], 0.8)
        out.warn(f"There is no group {urn}: the policies that name it grant nothing by it until it has members.{hint}")


def _show_applied(applied: "api.AppliedPolicies", words: str) -> None:
    out.say_data(applied)
    changes = _changes(applied)
    for kind, name, before, after in changes:
        _show_change(kind, name, before, after)
        if is_account(name) and after is not None and after["set"] is None:
            out.say(
                "    The file does not declare it. It leaves the set and keeps its tokens: accounts are never removed."
            )
            out.say(f"    To delete it: watchword account delete {name.removeprefix(ACCOUNT_PREFIX)}")
    for name in _undeclared(applied):
        out.say(f"! {name}")
        takes = "takes it out of" if is_account(name) else "removes it from"
        out.say(f"    The file does not declare it. --prune {takes} the set {applied.set}.")
    kinds = [kind for kind, *_ in changes]
    out.say(words.format(*map(kinds.count, _SIGNS), applied.unchanged))


def _changes(applied: "api.AppliedPolicies") -> "list[tuple[str, str, Json | None, Json | None]]":
    """The kind of each change, the urn or name of what changes, and its fields before and after."""
    changes = [(one.change, one.urn, one.before, one.after) for one in applied.entities]
    changes += [(one.change, one.urn, _fields(one.before), _fields(one.after)) for one in applied.changes]
    for words, part, name in _PARTS:
        changes += [
            (one.change, words.format(getattr(one, name)), one.before, one.after) for one in getattr(applied, part)
        ]
    return changes


def _undeclared(applied: "api.AppliedPolicies") -> list[str]:
    """The urns or names of what the set has, and the file does not declare."""
    names = [*applied.undeclared_entities, *(policy.urn for policy in applied.undeclared)]
    return names + [words.format(name) for words, part, _ in _PARTS for name in getattr(applied, f"undeclared_{part}")]


def _show_change(kind: str, name: str, before: "Json | None", after: "Json | None") -> None:
    """Print the fields of what is new, or the changed fields of what exists. A field that is absent is null."""
    out.say(f"{_SIGNS.get(kind, '?')} {name}")
    fields = dict.fromkeys([*(after or {}), *(before or {})]) if after is not None else {}
    for field in fields:
        old, new = (before or {}).get(field), (after or {}).get(field)
        if before is None and new and field not in {"source", "set", "series"}:
            out.say(f"    {field}: {out.json_text(new)}")
        elif before is not None and old != new:
            out.say(f"    {field}: {out.json_text(old)} -> {out.json_text(new)}")


def _fields(policy: "api.PolicyInfo | None") -> dict[str, object] | None:
    """The fields that a file can declare, and its source and set."""
    if policy is None:
        return None
    shown = out.json_value(policy)
    fields = {name: shown[name] for name in ("name", "description", "state", "privileges", "scopes", "source", "set")}
    return fields | {f"actors.{name}": shown["actors"][name] for name in ("users", "groups", "allUsers")}


@policy.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--set", "set_name", metavar="NAME", help="Only the policies of this set.")
@with_client_only
def export(client: "api.Client", file: Path | None, set_name: str | None) -> None:
    """Write policies, groups, service accounts, retention rules, webhooks and resources as a file for `policy apply`,
    to FILE or standard output.

    Without --set, exports the set default and what no file declares, as the set default.

    Example: watchword policy export policies.yaml
    """
    from watchword.declared.policy_file import yaml_text

    editable = [policy for policy in client.policies.list() if policy.editable]
    groups = list(client.groups.list())
    accounts = _readable(client.accounts.list, "service accounts", "Manage Service Accounts")
    rules = _readable(client.retention.list, "retention rules", "Truncate time series index")
    webhooks = _readable(client.webhooks.list, "webhooks", "Manage Webhooks and View Audit Log")
    resources = client.resources.list()
    found_sets = {one.set for found in (editable, groups, accounts, rules, webhooks, resources) for one in found}
    sets = {name for name in found_sets if name is not None}
    if set_name is not None and set_name not in sets:
        raise OperatorError(f"There is no policy set {set_name!r}. Sets here: {', '.join(sorted(sets)) or 'none'}.")
    wanted = {set_name} if set_name else {DEFAULT_SET, None}
    content = {
        "set": set_name or DEFAULT_SET,
        "policies": sorted((_exported_policy(one) for one in editable if one.set in wanted), key=lambda one: one["id"]),
        "groups": [_exported_group(client, one) for one in groups if one.set in wanted],
        "accounts": [
            _present(id=one.urn.removeprefix(ACCOUNT_PREFIX), name=one.display_name, description=one.description)
            for one in accounts
            if one.set in wanted
        ],
        "retention": [declared_fields(one) for one in rules if one.set in wanted],
        "webhooks": [_exported_webhook(one) for one in webhooks if one.set in wanted],
        "resources": [{"name": one.name, "id": one.id} for one in resources if one.set in wanted],
    }
    text = yaml_text({name: found for name, found in content.items() if found or name == "policies"})
    if set_name is None and (others := ", ".join(sorted(sets - wanted))):
        out.warn(f"Left out policy sets: {others}. Export each with --set NAME.")
    if file is None:
        click.echo(text, nl=False)
    else:
        write_text(file, text)


def _readable(read: Callable[[], Iterable[T]], what: str, privileges: str) -> list[T]:
    """What the caller may read."""
    try:
        return list(read())
    except Unauthorized:
        out.warn(f"Left out {what}: to read them needs {privileges}.")
        return []


def _present(**fields: Any) -> dict[str, Any]:
    """The fields that are neither null, false nor an empty list."""
    return {name: value for name, value in fields.items() if value or value == ""}


def _exported_webhook(webhook: "api.WebhookInfo") -> dict[str, Any]:
    shown = out.json_value(webhook)
    enabled = webhook.state != WebhookState.DISABLED.value or webhook.stop_reason is not None
    fields = _present(**{name: shown[name] for name in DECLARED if name != "enabled"})
    return fields if enabled else fields | {"enabled": False}


def declared_fields(rule: "api.RetentionRuleInfo") -> dict[str, Any]:
    """Return the fields as a policy file declares them."""
    shown = out.json_value(rule) | {"mode": rule.mode.lower(), "hold": rule.hold_reason}
    return {name: shown[name] for name in RULE_FIELDS if shown[name] is not None}


def _exported_group(client: "api.Client", group: "api.GroupInfo") -> dict[str, Any]:
    """Without members if they are too many to declare."""
    fields = _present(id=group.urn.removeprefix(GROUP_PREFIX), name=group.name, description=group.description)
    if group.member_count > MAX_ENTRIES:
        return fields
    return fields | {"members": sorted({member.urn for member in client.groups.members(group.urn)})}


def _exported_policy(policy: "api.PolicyInfo") -> dict[str, Any]:
    if not set(policy.privileges) <= Privilege.__members__.keys() or policy.state not in PolicyState.__members__:
        message = f"{policy.urn} has values that this version does not know. Use the version of the server."
        raise OperatorError(message)
    actors = policy.actors
    return _present(
        id=policy.urn.removeprefix(POLICY_PREFIX),
        name=policy.name,
        description=policy.description,
        state=policy.state,
        privileges=[name for name in Privilege.__members__ if name in policy.privileges],
        scopes=sorted(policy.scopes),
    ) | {"actors": _present(users=sorted(actors.users), groups=sorted(actors.groups), allUsers=actors.all_users)}
