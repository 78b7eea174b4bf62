"""`watchword token`: create, derive, edit, rotate, list, show and revoke tokens; `scan` has a module of its own. And
`watchword overview`, which counts them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.local import Wiring, run_locally
from watchword.cli.options import (
    STORE_FLAGS,
    ActorParam,
    CommandFunction,
    DurationParam,
    LifetimeParam,
    TimeParam,
    add_options,
    json_flag,
    limit_flag,
    page_size,
    repeatable,
    setting_flags,
    urns_flag,
    yes_flag,
)
from watchword.cli.output import (
    Cell,
    Column,
    TimeCell,
    is_token,
    iso,
    json_value,
    on_terminal,
    plural,
    say,
    say_json,
    show_list,
    show_one,
    sparkline,
    warn,
    with_name,
)
from watchword.cli.remote import (
    ServerFlags,
    confirm,
    explain,
    need_confirmation,
    plain_refusals,
    read_token,
    stored_profiles,
    with_client,
    with_connection,
)
from watchword.cli.run import Command, CommandGroup, WrongUse, discard_output, read_input
from watchword.client.errors import BadRequest, Conflict, NotFound, Unauthorized
from watchword.client.profiles import ChosenServer
from watchword.client.records import from_millis
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.filters import SortField
from watchword.domain.lifetimes import SPAN_FORMS, Duration
from watchword.domain.secret import Secret
from watchword.domain.tokens import SUSPENDED, TokenStatus, check_token_id
from watchword.settings import Settings, load

MAX_SHOWN_FAMILY = 200

if TYPE_CHECKING:
    from watchword.client import ActorTokenCount, Client, DayCountInfo, NewToken, TokenFilter, TokenInfo
    from watchword.domain.tokens import TokenRecord

STDIN = "-"
LOCAL_FLAGS = (*STORE_FLAGS, "root_actor", "public_url", "host", "port", "allowed_durations", "allow_no_expiry")
_SCAN = "Find tokens in files, folders or standard input (-) and report which are live."
_COLUMNS: "list[Column[TokenInfo]]" = [
    Column("ID", lambda token: token.id),
    Column("NAME", lambda token: token.name, free=True),
    Column("STATUS", lambda token: token.effective_status),
    Column("EXPIRES", lambda token: TimeCell(token.expires_at, "never")),
    Column("USED", lambda token: TimeCell(token.last_used_at)),
    Column("ACTOR", lambda token: token.actor_urn, name=lambda token: token.actor_name),
]
_ACTOR_COLUMNS: "list[Column[ActorTokenCount]]" = [
    Column("TOKENS", lambda share: share.count),
    Column("ACTOR", lambda share: with_name(share.actor_urn, share.actor_name)),
]


@click.group(cls=CommandGroup, lazy={"scan": ("scan", _SCAN)})
def token() -> None:
    """Create, inspect, rotate and revoke tokens."""


# Which tokens `token list` and `token revoke` mean.


class _Filter:
    """A flag that selects tokens, and the filter of the API that it stands for."""

    def __init__(self, flag: str, field: str, condition: str, text: str, **how: Any) -> None:
        self.name = flag.removeprefix("--").replace("-", "_")
        self.field = field
        self.condition = condition
        self.option = click.option(flag, help=text, **how)


_ACTOR = ActorParam()
_AHEAD, _BACK = TimeParam(ago=False), TimeParam(ago=True)
_FROM_NOW, _AGO = "A date, a time, or a duration from now.", "A date, a time, or a duration back."
_STATUS = click.Choice([*(status.name for status in TokenStatus), SUSPENDED], case_sensitive=False)
_FILTERS = (
    _Filter("--actor", "actorUrn", "EQUAL", "Tokens that act as this user.", type=_ACTOR),
    _Filter("--owner", "ownerUrn", "EQUAL", "Tokens that this user created.", type=_ACTOR),
    _Filter("--status", "effectiveStatus", "IN", "Repeatable. [default: all but REVOKED]", type=_STATUS, multiple=True),
    _Filter(
        "--search", "text", "CONTAIN", "Text in name, description, id, actor or owner, in any case.", metavar="TEXT"
    ),
    _Filter("--scope", "scope", "EQUAL", "Tokens that name this scope."),
    _Filter("--network", "lastNetwork", "EQUAL", "Tokens last used from this network.", metavar="CIDR"),
    _Filter("--name-contains", "name", "CONTAIN", "Tokens with this text in their name."),
    _Filter("--expires-before", "expiresAt", "LESS_THAN", _FROM_NOW, type=_AHEAD),
    _Filter("--expires-after", "expiresAt", "GREATER_THAN_OR_EQUAL_TO", _FROM_NOW, type=_AHEAD),
    _Filter("--created-before", "createdAt", "LESS_THAN", _AGO, type=_BACK),
    _Filter("--created-after", "createdAt", "GREATER_THAN_OR_EQUAL_TO", _AGO, type=_BACK),
    _Filter("--used-before", "lastUsedAt", "LESS_THAN", "Last used before this.", type=_BACK),
    _Filter(
        "--unused-for", "lastActivityAt", "LESS_THAN", "Neither created nor used for this long.", type=DurationParam()
    ),
)
_SORT = click.Choice([field.value.word for field in SortField], case_sensitive=False)


@dataclass(frozen=True, slots=True)
class TokenFlags:
    all_actors: bool
    flags: Mapping[str, Any]

    @property
    def is_given(self) -> bool:
        return self.all_actors or any(value not in (None, ()) for value in self.flags.values())

    @property
    def is_own(self) -> bool:
        """No flag names other users, so only the caller's own tokens are selected."""
        return not (self.all_actors or self.flags["actor"] or self.flags["owner"])

    def where(self, client: "Client") -> "list[TokenFilter]":
        from watchword.client import TokenFilter

        values = dict(self.flags)
        if self.is_own:
            values["actor"] = client.me().urn
        if values["unused_for"] is not None:
            values["unused_for"] = f"PT{values['unused_for'] // 1000}S"
        return [
            TokenFilter(one.field, value, condition=one.condition)
            for one in _FILTERS
            if (value := values[one.name]) not in (None, ())
        ]


def _with_selection(command: CommandFunction) -> CommandFunction:
    @wraps(command)
    def run(*args: Any, all_actors: bool, **flags: Any) -> Any:
        given = {one.name: flags.pop(one.name) for one in _FILTERS}
        return command(*args, selection=TokenFlags(all_actors, given), **flags)

    all_actors = click.option("--all", "all_actors", is_flag=True, help="Tokens of every user, not only your own.")
    return add_options(all_actors, *(one.option for one in _FILTERS))(run)


@token.command("list")
@_with_selection
@click.option("--sort", type=_SORT, help="Field to sort by. [default: expiresAt, latest first]")
@click.option("--descending", is_flag=True, help="Sort in descending order.")
@urns_flag
@limit_flag()
@with_client
def list_tokens(
    client: "Client", selection: TokenFlags, sort: str | None, descending: bool, limit: int, as_json: bool, urns: bool
) -> None:
    """List your own tokens, or those of --actor, --owner or --all.

    Example: watchword token list --status active --expires-before 7d
    Example: watchword token list --all --unused-for 90d --json --as admin
    """
    found = client.tokens(
        *selection.where(client),
        sort=sort or "expiresAt",
        descending=descending or sort is None,
        page_size=page_size(limit),
    )
    columns = _COLUMNS[:-1] if selection.is_own and on_terminal() else _COLUMNS  # the actor is the caller
    show_list(found, columns, json=as_json, limit=limit, empty="No tokens.", urns=urns)


# One token, by its id or by itself.


@token.command()
@click.argument("token_id", metavar="ID")
@with_client
def show(client: "Client", token_id: str, as_json: bool) -> None:
    """Show one token by its id or URN, revoked ones included; - reads the id or the token itself from standard input.

    Example: watchword token show kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    Example: watchword token show - < token
    """
    if token_id == STDIN:
        given = read_token(read_input, "Standard input")
        found = client.find_token(given) if is_token(given.reveal()) else client.get_token(_checked_id(given.reveal()))
    else:
        found = client.get_token(token_id)
    pairs = {
        "Name": found.name,
        "Description": found.description,
        "Status": found.effective_status,
        "Acts as": with_name(found.actor_urn, found.actor_name),
        "Created by": with_name(found.owner_urn, found.owner_name),
        "Type": found.token_type,
        "Scopes": _limit(found.scopes, "everything its actor may do"),
        "Audience": _limit(found.audience, "this service"),
        "Networks": _limit(found.allowed_networks, "any"),
        "Created": TimeCell(found.created_at),
        "Expires": TimeCell(found.expires_at, "never"),
        "Last used": TimeCell(found.last_used_at),
        "Uses": found.use_count,
        f"{len(found.uses_by_day)} days": sparkline([one.count for one in found.uses_by_day]),
        "Last from": found.last_network,
        "Seen from": found.networks,
        "Revoked": TimeCell(found.revoked_at),
        **_relations(found),
        "Id": found.id,
        "URN": found.urn,
    }
    show_one(pairs, found, json=as_json)


def _limit(words: tuple[str, ...] | None, unlimited: str) -> Cell:
    return unlimited if words is None else words or "nothing"


def _relations(found: "TokenInfo") -> dict[str, Cell]:
    """The tokens that it depends on or replaces; most tokens have none."""
    pairs: dict[str, Cell] = {
        "Derived from": found.parent_id,
        "Created with": found.created_with,
        "Replaces": found.replaces,
        "Replaced by": found.replaced_by,
    }
    if found.awaits_first_use:
        pairs["First use"] = "pending; unused, it expires with the overlap"
        pairs["Then expires"] = TimeCell(found.expires_at_once_used, "never")
    if found.replaced_at is not None:
        pairs["Replaced"] = TimeCell(found.replaced_at)
    return {title: value for title, value in pairs.items() if value is not None}


# New tokens: printed once, or stored in a file.

_new_token_flags = add_options(
    click.option("--description", help="Description of the token."),
    click.option("--duration", type=LifetimeParam(), help=f"Lifetime, such as {SPAN_FORMS}."),
    repeatable("--scope", "scopes", "WORD", "Privilege, or scope of another service. [default: all its actor may do]"),
    click.option("--no-scopes", is_flag=True, help="Give it no scopes: it may do nothing here."),
    repeatable("--audience", "audience", "WORD", "Service it is for. [default: this service]"),
    repeatable("--network", "networks", "CIDR", "Where it may be used from. [default: any]"),
)


def _with_new_token(command: CommandFunction) -> CommandFunction:
    """Give the command `wanted`, the arguments for the client."""

    @wraps(command)
    def run(*args: Any, no_scopes: bool, **flags: Any) -> Any:
        wanted: dict[str, Any] = {name: flags.pop(name) for name in ("name", "actor", "description") if name in flags}
        wanted |= {name: flags.pop(name) or None for name in ("duration", "scopes", "audience", "networks")}
        if no_scopes:
            if wanted["scopes"]:
                raise WrongUse("Pass --scope or --no-scopes, not both.")
            wanted["scopes"] = ()
        return command(*args, wanted=wanted, **flags)

    return _new_token_flags(run)


@token.command()
@click.option("--name", help="Name that says what the token is for.")
@click.option("--actor", type=ActorParam(), help="User it acts as. [default: the caller]")
@_with_new_token
@json_flag
@with_connection
@click.option("--local", is_flag=True, help="Work on the store itself, on the server's machine; takes the flags below.")
@setting_flags(*LOCAL_FLAGS)
@click.pass_obj
def create(
    wiring: Wiring, /, wanted: dict[str, Any], as_json: bool, local: bool, connection: ServerFlags, **flags: Any
) -> None:
    """Create a token and print it once; in a pipe, only the token. It expires after an hour unless you pass --duration.

    --local needs no server and no privilege, only read access to the data folder.

    Example: TOKEN=$(watchword token create --name laptop --duration 7d)
    Example: watchword token create --name shop --scope orders:read --network 10.0.0.0/8
    Example: watchword token create --local --actor urn:li:corpuser:admin --name first
    """
    wanted["duration"] = wanted["duration"] or Duration.ONE_HOUR.name
    if local:
        if connection != ServerFlags():
            raise WrongUse("--url, --as, --token-file and --profile are for a server; --local works without one.")
        _create_locally(wiring, load(flags), wanted, json=as_json)
        return
    if any(value is not None for value in flags.values()):
        raise WrongUse("The store's flags (--data-dir and so on) need --local.")
    if wanted["name"] is None:
        raise WrongUse("--name must say what the token is for, such as --name laptop.")
    with connection.open() as client:
        created = client.create_token(**{**wanted, "actor": wanted["actor"] or client.me().urn})
        _deliver(created, lambda: client.revoke_token(created.metadata.id), json=as_json)


@token.command()
@click.option("--name", required=True, help="Name that says what the token is for.")
@_with_new_token
@with_client
def derive(client: "Client", wanted: dict[str, Any], as_json: bool) -> None:
    """Derive a token with fewer rights or a shorter lifetime from your own and print it once.

    It is revoked and expires with your token. Limits and expiry that you do not give are those of your token.

    Example: watchword token derive --name one-job --duration 15m --scope orders:read --token-file token
    """
    created = client.derive_token(**wanted)
    _deliver(created, lambda: client.revoke_token(created.metadata.id), json=as_json)


@token.command()
@click.argument("token_id", metavar="ID")
@click.option("--name", help="New name.")
@click.option("--description", help="New description; an empty one is removed.")
@with_client
def edit(client: "Client", token_id: str, name: str | None, description: str | None, as_json: bool) -> None:
    """Change the name or description of a token. Limits and expiry cannot be changed: rotate it or create another.

    Example: watchword token edit kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA= --name reports
    """
    if name is None and description is None:
        raise WrongUse("Pass --name, --description or both.")
    found = client.update_token(token_id, name=name, description=description)
    show_one({"Name": found.name, "Description": found.description, "Id": found.id}, found, json=as_json)


@token.command()
@click.argument("token_id", metavar="[ID]", required=False)
@click.option("--file", metavar="FILE", help="Rotate the token in this file and store the successor there.")
@click.option("--overlap", type=DurationParam(), help="How long the successor waits for its first use. [default: 1d]")
@click.option("--grace", type=DurationParam(), help="How long the old token stays valid after that. [default: 5m]")
@json_flag
@with_connection
def rotate(token_id: str | None, file: str | None, as_json: bool, connection: ServerFlags, **spans: int | None) -> None:
    """Replace a token with a successor of the same name, actor and limits, without a gap.

    The successor of ID is printed once. The old token stays valid until the successor is first used, and for the grace
    period after that. A successor that is not used before the overlap ends expires, and the old token stays valid.

    With --file, the token in the file requests its own successor, unless you name another caller. The file is replaced
    in one step. With neither ID nor --file, the token that `watchword login` stored is rotated in the same way.

    Example: watchword token rotate kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA= --overlap 12h --grace 1h
    Example: watchword token rotate --file /etc/shop/token --url https://tokens.example.org
    Example: watchword token rotate --profile work
    """
    if token_id is not None and file is not None:
        raise WrongUse("Pass the ID of a token or --file FILE, not both.")
    wanted: dict[str, Any] = {
        name: None if span is None else timedelta(milliseconds=span) for name, span in spans.items()
    }
    if token_id is None:
        _rotate_file(connection, file, wanted, json=as_json)
        return
    with connection.open() as client:
        _deliver(client.rotate_token(token_id, **wanted), None, json=as_json)


def _rotate_file(connection: ServerFlags, file: str | None, spans: dict[str, Any], *, json: bool) -> None:
    """Rotate the token in the named file, or the profile's token. It requests its own successor, unless the flags name
    another caller.
    """
    target, path = connection.target, file
    if path is not None:
        target = ChosenServer(target.url)
    else:
        if target.profile is None:
            raise WrongUse("Pass the ID of a token or --file FILE, or sign in with `watchword login`.")
        profiles = stored_profiles()
        profiles.token(target.profile)  # fails where the file cannot be used
        path = str(profiles.token_file(target.profile))
    with ExitStack() as opened:
        opened.enter_context(plain_refusals(target, by_name=connection.as_actor is not None))
        from watchword.client import rotate_file

        caller = opened.enter_context(connection.open()) if file and connection.named_caller else None
        try:
            rotated = rotate_file(path, target.url, asked_by=caller, **spans)
        except ValueError as error:
            raise WrongUse(f"{'--file' if file else path}: {error}") from None
    made = rotated.metadata
    pairs: dict[str, Cell] = {
        "File": rotated.path,
        "Name": made.name,
        "Acts as": made.actor_urn,
        "Id": made.id,
        "Replaces": made.replaces,
        "Expires": TimeCell(made.expires_at_once_used or made.expires_at, "never"),
    }
    show_one(pairs, {"file": rotated.path, **json_value(made)}, json=json)
    if rotated.problem is not None:
        raise OperatorError(
            f"The file holds the successor, but using it failed ({rotated.problem.rstrip('.')}). Until it is used, the "
            "old token stays valid; unused, the successor expires with the overlap."
        )


def _create_locally(wiring: Wiring, settings: Settings, wanted: dict[str, Any], *, json: bool) -> None:
    from watchword.client import NewToken
    from watchword.domain import tokens
    from watchword.domain.actors import system_precondition
    from watchword.domain.names import check_actor, check_description, check_name, is_account
    from watchword.domain.token_limits import check_limits
    from watchword.service.tokens import Lifetime

    urn = check_actor(wanted["actor"] or settings.root_actor, "--actor")
    new = tokens.TokenRequest(
        type=tokens.TokenType.SERVICE_ACCOUNT if is_account(urn) else tokens.TokenType.PERSONAL,
        actor_urn=urn,
        name=check_name("first" if wanted["name"] is None else wanted["name"], "--name"),
        description=check_description(wanted["description"], "--description"),
        limits=check_limits(wanted["scopes"], wanted["audience"], wanted["networks"]),
    )
    duration = Duration.__members__.get(wanted["duration"])
    lifetime = Lifetime(duration, wanted["duration"] if duration is None else None)
    by = system_precondition("command line")
    made = run_locally(wiring, settings, lambda service: service.tokens.create_unchecked(by, new, lifetime))

    def revoke() -> None:
        run_locally(wiring, settings, lambda service: service.tokens.withdraw(by, made.record.id))

    _deliver(NewToken(made.token, _client_record(made.record)), revoke, json=json)


def _client_record(record: "TokenRecord") -> "TokenInfo":
    from watchword.client import TokenInfo
    from watchword.domain.names import token_urn

    same = ("id", "name", "description", "actor_urn", "owner_urn", "last_used_at", "revoked_at")
    return TokenInfo(
        **{name: getattr(record, name) for name in same},
        urn=token_urn(record.id),
        token_type=record.type.value,
        status=TokenStatus.ACTIVE.value,
        created_at=from_millis(record.created_at),
        expires_at=None if record.expires_at is None else from_millis(record.expires_at),
        scopes=record.limits.scopes,
        audience=record.limits.audience,
        allowed_networks=record.limits.networks,
    )


def _deliver(new: "NewToken", revoke: Callable[[], None] | None, *, json: bool) -> None:
    """Print a new token, or revoke it where that fails. A successor (`revoke` is None) expires unused; revoking it
    would revoke the old token too.
    """
    try:
        _print_created(new.token.reveal(), new.metadata, json=json)
        sys.stdout.flush()
    except BaseException as error:
        discard_output()
        outcome = "The old one stays valid. Rotate it again, which revokes the lost successor,"
        if revoke is not None:
            outcome = "It was revoked. Create another"
            try:
                revoke()
            except Exception:  # noqa: BLE001 - after any failure the token is still live
                raise OperatorError(
                    "The new token could not be printed and not revoked. "
                    f"Revoke it: watchword token revoke {new.metadata.id}"
                ) from error
        if not isinstance(error, OSError):
            raise
        problem = f"The new token could not be printed ({error.strerror})."
        raise OperatorError(f"{problem} {outcome} with a writable standard output.") from error


def _print_created(secret: str, made: "TokenInfo", *, json: bool) -> None:
    if json:
        say_json({"accessToken": secret, **json_value(made)})
    elif not on_terminal():
        say(secret)
    else:
        when = TimeCell(made.expires_at_once_used or made.expires_at, "never")
        show_one({"Name": made.name, "Acts as": made.actor_urn, "Id": made.id, "Expires": when}, made, json=False)
        for line in ("", "The token, shown only once:", "", secret, ""):
            say(line)
        say("Store it where only its user can read it. To use it here: export WATCHWORD_TOKEN=<the token>")
        if made.awaits_first_use:
            unused = TimeCell(made.expires_at).relative
            say(f"The old token stays valid until its first use; unused, it expires {unused}.")
        say(f"To revoke it: watchword token revoke {made.id}")


# Revocation.


@token.command()
@click.argument("token_ids", metavar="[ID]...", nargs=-1)
@_with_selection
@click.option("--cascade", is_flag=True, help="Also revoke tokens that were created with one of them.")
@click.option("--dry-run", is_flag=True, help="Only show what would be revoked: a tree by ids, numbers by flags.")
@yes_flag
@with_client
def revoke(
    client: "Client",
    token_ids: tuple[str, ...],
    selection: TokenFlags,
    cascade: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Revoke tokens and everything derived from them. From then on every instance rejects them.

    By ID or URN, each token is revoked and reported separately, without a question; with --dry-run, those that would be
    revoked with it are shown as a tree. A - reads from standard input: ids, one a line or as `token list --json` prints
    them, or a token itself.

    By flags, which work as for `token list`, all matching tokens are revoked together or none is: the command shows how
    many tokens of which users match, asks, and prints a receipt.

    Example: watchword token revoke kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    Example: watchword token revoke kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA= --cascade --dry-run
    Example: watchword token revoke - < leaked-token
    Example: watchword token revoke --actor urn:li:corpuser:mallory
    Example: watchword token revoke --all --unused-for 90d --yes
    """
    if selection.is_given:
        if token_ids:
            raise WrongUse("Pass ids, or flags that select tokens, not both.")
        _revoke_selected(client, selection, cascade=cascade, dry_run=dry_run, yes=yes, as_json=as_json)
    elif not token_ids:
        raise WrongUse("Which tokens? Pass their ids, or flags such as --actor urn:li:corpuser:alice.")
    elif dry_run:
        _preview_each(client, list(_read_ids(token_ids)), cascade=cascade, as_json=as_json)
    else:
        _revoke_each(client, token_ids, cascade=cascade, as_json=as_json)


def _revoke_selected(
    client: "Client", selection: TokenFlags, *, cascade: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    need_confirmation(yes=yes, dry_run=dry_run)
    where = selection.where(client)
    plan = client.plan_revocation(*where, all_actors=selection.all_actors, cascade=cascade)
    if dry_run and as_json:
        say_json(plan)
        return
    if not as_json:
        if plan.count:
            show_list(plan.actors, _ACTOR_COLUMNS, json=False, empty="")
        say(f"{plural(plan.count, 'token')} to revoke.")
    if dry_run:
        say("This was a dry run. Nothing was revoked.")
        return
    if not plan.count and not as_json:
        return
    confirm(f"Revoke {plural(plan.count, 'token')}? This cannot be undone.", yes=yes)
    confirmed = None if yes else plan.count  # a user confirmed this number; a script saw none
    receipt = client.revoke_tokens(*where, all_actors=selection.all_actors, cascade=cascade, at_most=confirmed)
    if as_json:
        say_json(receipt)
    else:
        revoked = plural(receipt.count, "token")
        say(f"Revoked {revoked} at {iso(receipt.revoked_at)}. Receipt: {receipt.digest}")


def _preview_each(client: "Client", words: list[str], *, cascade: bool, as_json: bool) -> None:
    """Show what would be revoked with each token, indented below it. The count is the server's."""
    ids = [client.find_token(Secret(word)).id if is_token(word) else client.get_token(word).id for word in words]
    plan = client.plan_revocation(ids=ids, cascade=cascade)
    tree = list(_family(client, ids, cascade=cascade))
    if as_json:
        say_json({**json_value(plan), "tokens": [{**json_value(one), "depth": depth} for depth, one in tree]})
        return
    for depth, one in tree:
        say(f"{'  ' * depth}{one.id}  {one.status}  {one.name}  {one.actor_urn}")
    if len(tree) == MAX_SHOWN_FAMILY:
        say("…")
    say(f"{plural(plan.count, 'token')} to revoke.")
    say("This was a dry run. Nothing was revoked.")


def _family(client: "Client", ids: list[str], *, cascade: bool) -> "Iterator[tuple[int, TokenInfo]]":
    """The tokens, each followed by those derived from it (with `cascade` also those created with it), with its depth.
    Dead ones are passed through by a cascade, which revokes what lives below them.
    """
    from watchword.client import TokenFilter

    seen: set[str] = set()
    waiting: list[tuple[int, TokenInfo]] = [(0, client.get_token(token_id)) for token_id in reversed(ids)]
    while waiting and len(seen) < MAX_SHOWN_FAMILY:
        depth, one = waiting.pop()
        if one.id in seen:
            continue
        seen.add(one.id)
        yield depth, one
        fields = ("parentId", "createdWith") if cascade else ("parentId",)
        below = {found.id: found for field in fields for found in client.tokens(TokenFilter(field, one.id))}
        for partner in filter(None, (one.replaces, one.replaced_by)):
            with suppress(NotFound):  # purged
                below[partner] = client.get_token(partner)
        waiting += [(depth + 1, found) for found in reversed(below.values()) if cascade or found.status == "ACTIVE"]


def _revoke_each(client: "Client", token_ids: Iterable[str], *, cascade: bool, as_json: bool) -> None:
    failed = False
    revoked: list[str] = []
    try:
        for number, word in enumerate(_read_ids(token_ids), 1):
            token_id = _revoke_one(client, number, word, cascade=cascade)
            if token_id is None:
                failed = True
                continue
            revoked.append(token_id)
            if not as_json:
                say(f"Revoked {token_id}")
                sys.stdout.flush()
    finally:
        if as_json:
            say_json([{"id": token_id, "revoked": True} for token_id in revoked])
    if failed:
        raise SystemExit(1)


def _revoke_one(client: "Client", number: int, word: str, *, cascade: bool) -> str | None:
    """Return its id; None: it was not revoked, and a warning says why."""
    # Anything but an id may be a secret, so that it is not repeated.
    shown = f"Token {number} of those given" if is_token(word) else word
    try:
        token_id = client.find_token(Secret(word)).id if is_token(word) else _checked_id(word)
        client.revoke_token(token_id, cascade=cascade)
    except Fault:
        warn(f"Number {number} of those given is not an id. Find ids with: watchword token list")
        return None
    except (BadRequest, Conflict, NotFound, Unauthorized) as error:
        if isinstance(error, Unauthorized) and not is_token(word):
            raise
        by_possession = " To revoke it as its holder: watchword token scan - --revoke --yes" if is_token(word) else ""
        warn(f"{shown}: {explain(error)}{by_possession}")
        return None
    return token_id


def _checked_id(word: str) -> str:
    check_token_id(word, "ID")
    return word


def _read_ids(given: Iterable[str]) -> Iterator[str]:
    """The ids, and for - the ids or tokens in standard input."""
    for word in given:
        if word != "-":
            yield word
            continue
        text = read_input().decode("utf-8", "replace")
        if not text.lstrip().startswith("["):
            yield from text.split()
            continue
        try:
            found = [one["id"] for one in json.loads(text)]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = [None]
        if not all(isinstance(token_id, str) for token_id in found):
            raise WrongUse("Standard input must hold ids, a token, or the output of `watchword token list --json`.")
        yield from found


@click.command(cls=Command)
@click.option("--all", "all_actors", is_flag=True, help="Tokens of every user, not only your own.")
@with_client
def overview(client: "Client", all_actors: bool, as_json: bool) -> None:
    """Show how many tokens there are, when they expire and how they are used.

    Example: watchword overview
    Example: watchword overview --all --json
    """
    found = client.get_overview(all_actors=all_actors)
    pairs: dict[str, Cell] = {
        "Live": found.live,
        "Expiring in 7 days": found.expiring_7_days,
        "Unused for 90 days": found.unused_90_days,
        "Never expire": found.never_expiring,
        "Suspended": found.suspended,
        "Uses, 30 days": _chart(found.uses_by_day),
        "Expiries, 12 weeks": _chart(found.expiries_by_day, width=7),
    }
    if found.denials_by_day is not None and found.failed_sign_ins_by_day is not None:
        pairs["Denials, 30 days"] = _chart(found.denials_by_day)
        pairs["Failed sign-ins"] = _chart(found.failed_sign_ins_by_day)
    pairs["Most created by"] = [f"{owner.actor_name or owner.actor_urn} {owner.count:,}" for owner in found.owners]
    show_one(pairs, found, json=as_json)


def _chart(days: "Sequence[DayCountInfo]", width: int = 1) -> str:
    """Show a bar for each group of days, and their sum."""
    counts = [one.count for one in days]
    return f"{sparkline([sum(counts[at : at + width]) for at in range(0, len(counts), width)])} {sum(counts):,}"
