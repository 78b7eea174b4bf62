"""`watchword token`: create, derive, update, rotate and show tokens."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword import client as api
from watchword.basics.errors import OperatorError
from watchword.basics.times import SPAN_FORMS, Duration, parse_span
from watchword.cli import output as out
from watchword.cli.local import run_locally
from watchword.cli.options import (
    STORE_FLAGS,
    CommandFunction,
    add_options,
    all_actors_flag,
    duration,
    format_flags,
    lifetime,
    load_settings,
    repeatable,
    setting_flags,
)
from watchword.cli.remote import (
    ACTOR,
    ServerFlags,
    plain_refusals,
    read_token,
    stored_profiles,
    with_client,
    with_connection,
)
from watchword.cli.run import CommandGroup, WrongUse, discard_output, read_input
from watchword.cli.token_list import complete_tokens, find_token, list_tokens, revoke, token_argument
from watchword.client.errors import BadRequest
from watchword.client.profiles import ChosenServer
from watchword.client.records import from_millis
from watchword.settings import Settings
from watchword.tokens.rules import TokenStatus, check_token_id

if TYPE_CHECKING:
    from watchword.tokens.rules import TokenRecord

STDIN = "-"
LOCAL_FLAGS = (*STORE_FLAGS, "root_actor", "public_url", "host", "port", "allowed_durations", "allow_no_expiry")
_SCAN = "Find tokens in files, folders or standard input (-) and report which are live."


@click.group(cls=CommandGroup, lazy={"scan": ("scan", _SCAN)})
def token() -> None:
    """ID_OR_NAME is an id, a URN, or the name of one live token that acts as you or that you created."""


token.add_command(list_tokens)


@token.command()
@token_argument
@with_client
def show(client: "api.Client", token_id: str) -> None:
    """Show one token, by its id a revoked one too; - reads the id or the token itself from standard input.

    Example: watchword token show ci
    Example: watchword token show kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    Example: watchword token show - < token
    """
    if token_id == STDIN:
        given = read_token(read_input, "Standard input").reveal()
        found = client.tokens.find(given) if out.is_token(given) else client.tokens.get(check_token_id(given, "ID"))
    else:
        found = client.tokens.get(find_token(client, token_id))
    pairs = {
        **out.attributes(found, "name, description, Status=effective_status"),
        "Acts as": out.with_name(found.actor_urn, found.actor_name),
        "Created by": out.with_name(found.owner_urn, found.owner_name),
        "Type": found.token_type,
        "Scopes": _limit(found.scopes, "everything its actor may do"),
        "Audience": _limit(found.audience, "this service"),
        "Networks": _limit(found.allowed_networks, "any"),
        "Created": found.created_at,
        "Expires": out.TimeCell(found.expires_at, "never"),
        **out.attributes(found, "Last used=last_used_at, Uses=use_count"),
        f"{len(found.uses_by_day)} days": out.sparkline([one.count for one in found.uses_by_day]),
        **out.attributes(found, "Last from=last_network, Seen from=networks, Revoked=revoked_at"),
        **_relations(found),
        **out.attributes(found, "id, urn"),
    }
    out.show_one(found, pairs)


def _limit(words: tuple[str, ...] | None, unlimited: str) -> out.Cell:
    return unlimited if words is None else words or "nothing"


def _relations(found: "api.TokenInfo") -> dict[str, out.Cell]:
    """The tokens that it depends on or replaces; most tokens have none."""
    pairs = out.attributes(found, "Derived from=parent_id, created_with, replaces, replaced_by")
    if found.awaits_first_use:
        pairs["First use"] = "pending; unused, it expires with the overlap"
        pairs["Then expires"] = out.TimeCell(found.expires_at_once_used, "never")
    pairs["Replaced"] = found.replaced_at
    return {title: value for title, value in pairs.items() if value is not None}


# New tokens: printed once, or stored in a file.

_new_token_flags = add_options(
    click.option("--description", help="Description of the token."),
    click.option("--duration", type=lifetime, help=f"Lifetime, such as {SPAN_FORMS}."),
    repeatable("--scope", "scopes", "WORD", "Privilege, or scope of another service. [default: all its actor may do]"),
    click.option("--no-scopes", is_flag=True, help="Give it no scopes: it may do nothing here."),
    repeatable("--audience", "audience", "WORD", "Service it is for. [default: this service]"),
    repeatable("--network", "allowed_networks", "CIDR", "Where it may be used from. [default: any]"),
)


def _with_name(command: CommandFunction) -> CommandFunction:
    """Give the command `name`, which stands as an argument or in --name."""

    @wraps(command)
    def run(*args: Any, word: str | None, name: str | None, **flags: Any) -> Any:
        if None not in (word, name):
            raise WrongUse("Pass NAME or --name, not both.")
        return command(*args, name=name if word is None else word, **flags)

    flag = click.option("--name", help="The same as NAME.")
    return add_options(click.argument("word", metavar="[NAME]", required=False), flag)(run)


def _with_new_token(command: CommandFunction) -> CommandFunction:
    """Give the command `wanted`, the arguments for the client."""

    @wraps(command)
    def run(*args: Any, no_scopes: bool, **flags: Any) -> Any:
        wanted: dict[str, Any] = {name: flags.pop(name) for name in ("name", "actor", "description") if name in flags}
        wanted |= {name: flags.pop(name) or None for name in ("duration", "scopes", "audience", "allowed_networks")}
        if wanted["name"] is None and not flags.get("local"):
            raise WrongUse("--name must say what the token is for, such as --name laptop.")
        if no_scopes:
            if wanted["scopes"]:
                raise WrongUse("Pass --scope or --no-scopes, not both.")
            wanted["scopes"] = ()
        return command(*args, wanted=wanted, **flags)

    return _new_token_flags(run)


@token.command()
@_with_name
@click.option("--actor", help="User it acts as. [default: the caller]", **ACTOR)
@_with_new_token
@format_flags
@with_connection
@click.option("--local", is_flag=True, help="Work on the store itself, on the server's machine; takes the flags below.")
@setting_flags(*LOCAL_FLAGS)
def create(wanted: dict[str, Any], local: bool, connection: ServerFlags, **flags: Any) -> None:
    """Create a token and print it once; in a pipe, only the token. It expires after an hour unless you pass --duration.

    NAME says what the token is for.

    --local needs no server and no privilege, only write access to the store.

    Example: TOKEN=$(watchword token create laptop --duration 7d)
    Example: watchword token create shop --scope orders:read --network 10.0.0.0/8
    Example: watchword token create --local --actor urn:li:corpuser:admin --name first
    """
    asked = wanted["duration"]
    wanted["duration"] = asked or Duration.ONE_HOUR.name
    if local:
        if connection != ServerFlags():
            raise WrongUse("--url, --as, --token-file and --profile are for a server; --local works without one.")
        _create_locally(load_settings(flags), wanted)
        return
    if any(value is not None for value in flags.values()):
        raise WrongUse("The store's flags (--data-dir and so on) need --local.")
    with connection.open() as client:
        created = client.tokens.create(wanted.pop("actor") or client.me().urn, **wanted)
        _deliver(created, lambda: client.tokens.revoke(created.metadata.id))
        made, span = created.metadata, parse_span(asked or "")
        most = timedelta.max if span is None else timedelta(milliseconds=span)
        if asked and made.expires_at and made.expires_at - made.created_at < most:
            out.warn(f"The token expires with the one that created it, before --duration: {out.iso(made.expires_at)}")


@token.command()
@_with_name
@_with_new_token
@with_client
def derive(client: "api.Client", wanted: dict[str, Any]) -> None:
    """Derive a token with fewer rights or a shorter lifetime from your own and print it once.

    It is revoked and expires with your token. Limits and expiry that you do not give are those of your token.

    Example: watchword token derive one-job --duration 15m --scope orders:read --token-file token
    """
    created = client.tokens.derive(**wanted)
    _deliver(created, lambda: client.tokens.revoke(created.metadata.id))


@token.command()
@token_argument
@_with_name
@click.option("--description", help="New description; an empty one is removed.")
@with_client
def update(client: "api.Client", token_id: str, name: str | None, description: str | None) -> None:
    """Change the name or description of a token. Limits and expiry cannot be changed: rotate it or create another.

    Example: watchword token update nightly reports --description "Writes the weekly reports"
    """
    if name is None and description is None:
        raise WrongUse("Pass NAME, --description or both.")
    found = client.tokens.update(find_token(client, token_id), name=name, description=description)
    out.show_one(found, out.attributes(found, "name, description, id"))


@token.command()
@click.argument("token_id", metavar="[ID_OR_NAME]", required=False, shell_complete=complete_tokens)
@click.option("--file", metavar="FILE", help="Rotate the token in this file and store the successor there.")
@click.option("--overlap", type=duration, help="How long the successor waits for its first use. [default: 1d]")
@click.option("--grace", type=duration, help="How long the old token stays valid after that. [default: 5m]")
@format_flags
@with_connection
def rotate(token_id: str | None, file: str | None, connection: ServerFlags, **spans: int | None) -> None:
    """Replace a token with a successor of the same name, actor and limits, without a gap.

    The successor is printed once. The old token stays valid until the successor is first used, and for the grace
    period after that. A successor that is not used before the overlap ends expires, and the old token stays valid.

    With --file, the token in the file requests its own successor, unless you name another caller. The file is replaced
    in one step. With neither of them, the token that `watchword login` stored is rotated in the same way.

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
        _rotate_file(connection, file, wanted)
        return
    with connection.open() as client:
        _deliver(client.tokens.rotate(find_token(client, token_id), **wanted), None)


def _rotate_file(connection: ServerFlags, file: str | None, spans: dict[str, Any]) -> None:
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
        caller = opened.enter_context(connection.open()) if file and connection.named_caller else None
        try:
            rotated = api.rotate_file(path, target.url, asked_by=caller, **spans)
        except ValueError as error:
            raise WrongUse(f"{'--file' if file else path}: {error}") from None
    made = rotated.metadata
    pairs = {"File": rotated.path, **out.attributes(made, "name, Acts as=actor_urn, id, replaces")}
    out.show_one({"file": rotated.path, **out.json_value(made)}, pairs | {"Expires": _expiry(made)})
    if rotated.problem is not None:
        raise OperatorError(
            f"The file holds the successor, but using it failed ({rotated.problem.rstrip('.')}). Until it is used, the "
            "old token stays valid; unused, the successor expires with the overlap."
        )


def _create_locally(settings: Settings, wanted: dict[str, Any]) -> None:
    from watchword.authority.limits import check_limits
    from watchword.basics.names import check_actor, check_description, check_name, is_account
    from watchword.journal.preconditions import system_precondition
    from watchword.tokens import rules as tokens
    from watchword.tokens.issue_service import Lifetime

    urn = check_actor(wanted["actor"] or settings.root_actor, "--actor")
    new = tokens.TokenRequest(
        type=tokens.TokenType.SERVICE_ACCOUNT if is_account(urn) else tokens.TokenType.PERSONAL,
        actor_urn=urn,
        name=check_name("first" if wanted["name"] is None else wanted["name"], "--name"),
        description=check_description(wanted["description"], "--description"),
        limits=check_limits(wanted["scopes"], wanted["audience"], wanted["allowed_networks"]),
    )
    duration = Duration.__members__.get(wanted["duration"])
    lifetime = Lifetime(duration, wanted["duration"] if duration is None else None)
    by = system_precondition("command line")
    made = run_locally(settings, lambda service: service.issuer.create_unchecked(by, new, lifetime))

    def revoke() -> None:
        run_locally(settings, lambda service: service.issuer.withdraw(by, made.record.id))

    _deliver(api.NewToken(made.token, _client_record(made.record)), revoke)


def _client_record(record: "TokenRecord") -> "api.TokenInfo":
    from watchword.basics.names import token_urn

    same = ("id", "name", "description", "actor_urn", "owner_urn", "last_used_at", "revoked_at")
    names = ("actor_name", "owner_name", "last_network", "parent_id", "created_with", "replaces", "replaced_by")
    absent: dict[str, Any] = dict.fromkeys((*names, "replaced_at", "expires_at_once_used"))
    return api.TokenInfo(
        **{name: getattr(record, name) for name in same},
        **absent,
        urn=token_urn(record.id),
        token_type=record.type.value,
        status=TokenStatus.ACTIVE.value,
        effective_status=TokenStatus.ACTIVE.value,
        use_count=0,
        awaits_first_use=False,
        created_at=from_millis(record.created_at),
        expires_at=None if record.expires_at is None else from_millis(record.expires_at),
        scopes=record.limits.scopes,
        audience=record.limits.audience,
        allowed_networks=record.limits.networks,
    )


def _deliver(new: "api.NewToken", revoke: Callable[[], None] | None) -> None:
    """Print a new token, or revoke it where that fails. A successor (`revoke` is None) expires unused; revoking it
    would revoke the old token too.
    """
    try:
        _print_created(new.token.reveal(), new.metadata)
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


def _expiry(made: "api.TokenInfo") -> out.TimeCell:
    return out.TimeCell(made.expires_at_once_used or made.expires_at, "never")


def _print_created(secret: str, made: "api.TokenInfo") -> None:
    out.say_data({"accessToken": secret, **out.json_value(made)})
    if not out.on_terminal():
        out.say(secret)
    else:
        out.show_pairs(out.attributes(made, "name, Acts as=actor_urn, id") | {"Expires": _expiry(made)})
        for line in ("", "The token, shown only once:", "", secret, ""):
            out.say(line)
        out.say("Store it where only its user can read it. To use it here: export WATCHWORD_TOKEN=<the token>")
        if made.awaits_first_use:
            unused = out.TimeCell(made.expires_at).relative
            out.say(f"The old token stays valid until its first use; unused, it expires {unused}.")
        out.say(f"To revoke it: watchword token revoke {made.id}")


token.add_command(revoke)


@token.command()
@all_actors_flag
@with_client
def overview(client: "api.Client", all_actors: bool) -> None:
    """Show how many tokens there are, when they expire and how they are used.

    With --all-actors, also how many came from DataHub. When none of these is live any more, DataHub's salt can be
    removed.

    Example: watchword token overview
    Example: watchword token overview --all-actors --json
    """
    found = client.tokens.overview(all=all_actors)
    pairs: dict[str, out.Cell] = {
        **out.attributes(found, "live, Expiring in 7 days=expiring_7_days, Unused for 90 days=unused_90_days"),
        **out.attributes(found, "Never expire=never_expiring, suspended"),
        "Uses, 30 days": _chart(found.uses_by_day),
        "Expiries, 12 weeks": _chart(found.expiries_by_day, width=7),
    }
    if found.denials_by_day is not None and found.failed_sign_ins_by_day is not None:
        pairs["Denials, 30 days"] = _chart(found.denials_by_day)
        pairs["Failed sign-ins"] = _chart(found.failed_sign_ins_by_day)
    pairs["Most created by"] = [f"{owner.actor_name or owner.actor_urn} {owner.count:,}" for owner in found.owners]
    imported = _imported(client) if all_actors else None
    if imported is not None and imported.tokens:
        pairs |= out.attributes(imported, "From DataHub=tokens, Live of these=live, Used in 30 days=used_in_30_days")
        pairs |= out.attributes(imported, "Without expiry=never_expiring, Last expires=last_expires_at")
        pairs |= out.attributes(imported, "Last import=last_changed_at")
        pairs["DataHub's salt"] = "set" if imported.has_salt else "not set: every imported token is rejected"
    out.show_one({**out.json_value(found), "imported": out.json_value(imported)} if all_actors else found, pairs)


def _imported(client: "api.Client") -> "api.ImportStatusInfo | None":
    try:
        return client.tokens.import_status()
    except BadRequest:  # a server without imports
        return None


def _chart(days: "Sequence[api.DayCountInfo]", width: int = 1) -> str:
    """Show a bar for each group of days, and their sum."""
    counts = [one.count for one in days]
    return f"{out.sparkline([sum(counts[at : at + width]) for at in range(0, len(counts), width)])} {sum(counts):,}"
