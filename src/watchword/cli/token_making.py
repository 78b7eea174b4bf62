"""`watchword token create`, `derive` and `rotate`: a new token is printed, this once, or put into its file."""

import sys
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import STORE_FLAGS, Command, flags_of, open_existing
from watchword.cli.moments import Age
from watchword.cli.outcome import plain_errors
from watchword.cli.profiles import Profiles
from watchword.cli.remote import (
    CONNECTION,
    callers,
    choose,
    connected,
    connection_flags,
    plain_refusals,
    with_client,
)
from watchword.cli.show import Cell, When, named, on_terminal, say, show_one
from watchword.cli.streams import WrongUse, silence
from watchword.cli.text import as_json as json_text
from watchword.cli.text import one_line
from watchword.domain.accounts import is_account
from watchword.domain.actors import system_precondition
from watchword.domain.errors import OperatorError
from watchword.domain.lifetimes import Duration
from watchword.domain.texts import check_description, check_name
from watchword.domain.token_limits import check_limits
from watchword.domain.tokens import NewToken, TokenRecord, TokenStatus, TokenType
from watchword.domain.urns import check_actor, token_urn
from watchword.service.tokens import Lifetime
from watchword.settings import Settings, load, load_client

if TYPE_CHECKING:
    from watchword.client import RotatedFile, TokenInfo

LOCAL_FLAGS = (*STORE_FLAGS, "root_actor", "public_url", "host", "port", "allowed_durations", "allow_no_expiry")
_OPTIONS = (
    click.option("--description", default=None, help="More about it."),
    click.option("--duration", type=click.Choice([duration.name for duration in Duration]), help="How long it lives."),
    click.option("--duration-iso", default=None, metavar="SPAN", help="How long it lives, such as P3D or PT12H."),
    click.option(
        "--scope",
        "scopes",
        multiple=True,
        metavar="WORD",
        help="A privilege it may use, or a word for others to check; may be repeated. [default: all its actor may do]",
    ),
    click.option("--no-scopes", is_flag=True, help="It may do nothing here."),
    click.option(
        "--audience",
        multiple=True,
        metavar="WORD",
        help="For whom it is; may be repeated. [default: this service]",
    ),
    click.option(
        "--network",
        "networks",
        multiple=True,
        metavar="CIDR",
        help="From where it may be used; may be repeated. [default: anywhere]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the token and its record as JSON."),
)


def _making(command: Command) -> Command:
    """What can be said of a new token; what was is handed over as the client takes it."""

    @wraps(command)
    def run(
        *args: Any,
        description: str | None,
        duration: str | None,
        duration_iso: str | None,
        scopes: tuple[str, ...],
        no_scopes: bool,
        audience: tuple[str, ...],
        networks: tuple[str, ...],
        **flags: Any,
    ) -> Any:
        with plain_errors():
            if duration is not None and duration_iso is not None:
                raise WrongUse("Give --duration or --duration-iso, not both.")
            if scopes and no_scopes:
                raise WrongUse("Give --scope or --no-scopes, not both.")
            wanted = {
                "description": description,
                "duration": duration_iso or duration,
                "scopes": () if no_scopes else scopes or None,
                "audience": audience or None,
                "networks": networks or None,
            }
            return command(*args, wanted=wanted, **flags)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


@click.command()
@click.option("--name", default=None, help="What it is for.")
@click.option("--actor", default=None, metavar="URN", help="Whom it acts as. [default: the caller]")
@_making
@connection_flags
@click.option("--local", is_flag=True, help="Work on the store itself, on the server's machine; as the flags below.")
@flags_of(*LOCAL_FLAGS)
@click.pass_obj
def create(
    backstage: Backstage,
    /,
    name: str | None,
    actor: str | None,
    wanted: dict[str, Any],
    as_json: bool,
    local: bool,
    **flags: Any,
) -> None:
    """Make a token and print it, this once. In a pipe the token alone is printed. It lives for an hour unless a
    duration is given.

    With --local no server and no privilege is needed: whoever may read the data folder may do this. It makes the
    first token of a server without local mode.

    \b
    Example: TOKEN=$(watchword token create --name laptop --duration ONE_WEEK)
    Example: watchword token create --name shop --scope orders:read --network 10.0.0.0/8
    Example: watchword token create --local --actor urn:li:corpuser:admin --name first
    """
    wanted["duration"] = wanted["duration"] or Duration.ONE_HOUR.name
    remote = {flag: flags.pop(flag) for flag in CONNECTION}
    if local:
        _refuse(remote, "--url, --as, --token-file and --profile are for a server; --local works without one.")
        _create_locally(backstage, load(flags), name, actor, wanted, json=as_json)
        return
    _refuse(flags, "The flags of the store (--data-dir and so on) go with --local.")
    if name is None:
        raise WrongUse("--name must say what the token is for, such as --name laptop.")
    with connected(**remote) as client:
        created = client.create_token(actor or client.me().urn, name, **wanted)
        made = created.metadata
        _deliver(created.token.reveal(), made, lambda: client.revoke_token(made.id), json=as_json)


@click.command()
@click.option("--name", required=True, help="What it is for.")
@_making
@with_client
def derive(client: Any, name: str, wanted: dict[str, Any], as_json: bool) -> None:
    """Make a narrower and shorter token of the caller's own and print it, this once. It dies with the caller's.

    What is not given it has from the caller's token: its limits, and its end.

    \b
    Example: watchword token derive --name one-job --duration-iso PT15M --scope orders:read --token-file token
    """
    created = client.derive_token(name, **wanted)
    made = created.metadata
    _deliver(created.token.reveal(), made, lambda: client.revoke_token(made.id), json=as_json)


@click.command()
@click.argument("token_id", metavar="[ID]", required=False)
@click.option(
    "--file", default=None, metavar="FILE", help="Rotate the token in this file, and put the successor there."
)
@click.option(
    "--overlap", type=Age(), metavar="SPAN", help="How long it waits for its first use, such as 12h. [default: 1d]"
)
@click.option(
    "--grace", type=Age(), metavar="SPAN", help="How long the old one lives on after that, such as 1h. [default: 5m]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the successor and its record, or with --file its record.")
@connection_flags
def rotate(
    token_id: str | None, file: str | None, overlap: int | None, grace: int | None, as_json: bool, **flags: Any
) -> None:
    """Replace a token by a successor with the same name, actor and limits, without a gap.

    The successor of ID is printed, this once; in a pipe it alone. The old token goes on until the successor is first
    used, and for the grace after that. A successor that is not used before the overlap ends dies, and the old one goes
    on.

    With --file the token in the file asks for its own successor, unless another caller is named. The file is replaced
    in one step, and the successor used at once; whenever this is broken off, the file has a token that works.

    With neither ID nor --file the token that `watchword login` kept is renewed in the same way.

    \b
    Example: watchword token rotate kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA= --overlap 12h --grace 1h
    Example: watchword token rotate --file /etc/shop/token --url https://tokens.example.org
    Example: watchword token rotate --profile work
    """
    with plain_errors():
        if token_id is not None and file is not None:
            raise WrongUse("Give the ID of a token, or --file FILE that has one, not both.")
        spans: dict[str, Any] = {"overlap": _span(overlap), "grace": _span(grace)}
        if token_id is None:
            _rotate_file(file, spans, flags, json=as_json)
            return
        with connected(**flags) as client:
            created = client.rotate_token(token_id, **spans)
            _deliver(created.token.reveal(), created.metadata, None, json=as_json)


def _span(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _rotate_file(file: str | None, spans: dict[str, Any], flags: dict[str, Any], *, json: bool) -> None:
    """The one that was named, or that of the profile, which then asks for itself."""
    chosen = choose(**flags)
    if file is None and chosen.profile is None:
        raise WrongUse("Give the ID of a token, or --file FILE that has one, or sign in with `watchword login`.")
    own = file or str(Profiles(load_client().folder).own_token_file(chosen.profile))
    by_others = file is not None and callers(**{name: flags[name] for name in ("as_actor", "token_file", "profile")})
    with plain_refusals(by_name=flags["as_actor"] is not None, profile=None if file else chosen.profile):
        from watchword.client import rotate_file

        try:
            if by_others:
                with connected(**flags) as client:
                    rotated = rotate_file(own, chosen.url, asked_by=client, **spans)
            else:
                rotated = rotate_file(own, chosen.url, **spans)
        except ValueError as error:
            raise WrongUse(f"{'--file' if file else own}: {error}") from None
    _show_rotated(rotated, json=json)
    if rotated.problem is not None:
        raise OperatorError(
            f"The file has the successor, but it could not be used yet ({rotated.problem.rstrip('.')}): until somebody "
            "uses it the old token lives on, and the successor ends with the overlap."
        )


def _show_rotated(rotated: "RotatedFile", *, json: bool) -> None:
    made = rotated.metadata
    pairs: dict[str, Cell] = {
        "File": rotated.path,
        "Name": made.name,
        "Acts as": made.actor_urn,
        "Id": made.id,
        "Replaces": made.replaces,
        "Expires": When(made.expires_at_once_used or made.expires_at, "never"),
    }
    show_one(pairs, {"file": rotated.path, **named(made)}, json=json)


def _create_locally(
    backstage: Backstage,
    settings: Settings,
    name: str | None,
    actor: str | None,
    wanted: dict[str, Any],
    *,
    json: bool,
) -> None:
    import asyncio

    whose = check_actor(actor or settings.root_actor, "--actor")
    new = NewToken(
        type=TokenType.SERVICE_ACCOUNT if is_account(whose) else TokenType.PERSONAL,
        actor_urn=whose,
        name=check_name("first" if name is None else name, "--name"),
        description=check_description(wanted["description"], "--description"),
        limits=check_limits(wanted["scopes"], wanted["audience"], wanted["networks"]),
    )
    secret, made = asyncio.run(_create(backstage, settings, new, wanted["duration"]))
    _deliver(secret, made, lambda: asyncio.run(_withdraw(backstage, settings, made.id)), json=json)


def _refuse(flags: dict[str, str | None], sentence: str) -> None:
    if any(value is not None for value in flags.values()):
        raise WrongUse(sentence)


async def _create(backstage: Backstage, settings: Settings, new: NewToken, lives: str) -> "tuple[str, TokenInfo]":
    async with open_existing(backstage, settings) as service:
        duration = Duration.__members__.get(lives)
        iso = lives if duration is None else None
        made = await service.tokens.create_unchecked(system_precondition("command line"), new, Lifetime(duration, iso))
    return made.token.reveal(), _as_listed(made.record)


async def _withdraw(backstage: Backstage, settings: Settings, token_id: str) -> None:
    async with open_existing(backstage, settings) as service:
        await service.tokens.withdraw(system_precondition("command line"), token_id)


def _as_listed(record: TokenRecord) -> "TokenInfo":
    from watchword.client import TokenInfo

    return TokenInfo(
        id=record.id,
        urn=token_urn(record.id),
        name=record.name,
        description=record.description,
        actor_urn=record.actor_urn,
        owner_urn=record.owner_urn,
        token_type=record.type.value,
        status=TokenStatus.ACTIVE.value,
        created_at=record.created_at,
        expires_at=record.expires_at,
        last_used_at=None,
        revoked_at=None,
        scopes=record.limits.scopes,
        audience=record.limits.audience,
        allowed_networks=record.limits.networks,
    )


def _deliver(secret: str, made: "TokenInfo", revoke: Callable[[], None] | None, *, json: bool) -> None:
    """Print a new token; one that could not be is of no use to anybody but a thief, and is ended at once. A successor
    (`revoke` is None) ends by itself: to revoke it would end the old one too.
    """
    try:
        _show_created(secret, made, json=json)
        sys.stdout.flush()
    except BaseException as error:
        silence()
        if revoke is None:
            if not isinstance(error, OSError):
                raise
            raise OperatorError(
                f"The successor could not be printed ({error.strerror}). The old token goes on, and whoever rotates it "
                "again where standard output can be written ends this successor, which nobody has."
            ) from error
        try:
            revoke()
        except Exception:  # noqa: BLE001 - whatever it is, the token lives
            raise OperatorError(
                "The new token could not be printed and could not be revoked either. "
                f"Revoke it: watchword token revoke {made.id}"
            ) from error
        if not isinstance(error, OSError):
            raise
        raise OperatorError(
            f"The new token could not be printed ({error.strerror}), so that it was revoked. "
            "Make another where standard output can be written."
        ) from error


def _show_created(secret: str, made: "TokenInfo", *, json: bool) -> None:
    if json:
        say(json_text({"accessToken": secret, **named(made)}))
    elif not on_terminal():
        say(one_line(secret))
    else:
        when = When(made.expires_at_once_used or made.expires_at, "never")
        show_one({"Name": made.name, "Acts as": made.actor_urn, "Id": made.id, "Expires": when}, made, json=False)
        say(f"\nThe token, shown this once:\n\n{one_line(secret)}\n")
        say("Keep it where only its user can read it. To use it here: export WATCHWORD_TOKEN=<the token>")
        if made.awaits_first_use:
            say(f"The old one goes on until this is used; unused, this ends {When(made.expires_at).human}.")
        say(f"To end it: watchword token revoke {one_line(made.id)}")
