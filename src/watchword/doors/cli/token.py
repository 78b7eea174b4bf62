"""`watchword token`."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from watchword.domain.actors import system_warrant
from watchword.domain.errors import Fault, OperatorError
from watchword.domain.filters import SortField
from watchword.domain.lifetimes import Duration
from watchword.domain.tokens import (
    NewToken,
    TokenRecord,
    TokenStatus,
    TokenType,
    check_description,
    check_name,
    check_token_id,
)
from watchword.domain.urns import check_actor, token_urn
from watchword.doors.cli.backstage import Backstage
from watchword.doors.cli.common import STORE_FLAGS, flags_of, json_flag, open_existing, plain_errors
from watchword.doors.cli.remote import CONNECTION, Moment, connected, connection_flags, told, with_client
from watchword.doors.cli.show import Column, When, first, named, on_terminal, say, show_list, show_one
from watchword.doors.cli.streams import WrongUse, read_input, silence
from watchword.doors.cli.text import as_json, one_line
from watchword.settings import Settings, load

if TYPE_CHECKING:
    from watchword.client import Client, Token

LOCAL_FLAGS = (*STORE_FLAGS, "root_actor", "public_url", "host", "port", "allowed_durations", "allow_no_expiry")
COLUMNS: "list[Column[Token]]" = [
    Column("ID", lambda token: token.id, whole=True),
    Column("NAME", lambda token: token.name, free=True),
    Column("STATUS", lambda token: token.status),
    Column("EXPIRES", lambda token: When(token.expires_at, "never")),
    Column("USED", lambda token: When(token.last_used_at)),
    Column("ACTOR", lambda token: token.actor_urn, whole=True),
]


@click.group()
def token() -> None:
    """Make tokens, look at them, end them."""


@token.command()
@click.option("--name", default=None, help="What it is for.")
@click.option("--actor", default=None, metavar="URN", help="Whom it acts as. [default: the caller]")
@click.option("--description", default=None, help="More about it.")
@click.option(
    "--duration",
    type=click.Choice([duration.name for duration in Duration]),
    default=None,
    help="How long it lives. [default: ONE_HOUR]",
)
@click.option("--duration-iso", default=None, metavar="SPAN", help="How long it lives, such as P3D or PT12H.")
@click.option("--json", "as_json_", is_flag=True, help="Print the token and its record as JSON.")
@connection_flags
@click.option("--local", is_flag=True, help="Work on the store itself, on the server's machine; as the flags below.")
@flags_of(*LOCAL_FLAGS)
@click.pass_obj
def create(
    backstage: Backstage,
    /,
    name: str | None,
    actor: str | None,
    description: str | None,
    duration: str | None,
    duration_iso: str | None,
    as_json_: bool,
    local: bool,
    **flags: str | None,
) -> None:
    """Make a token and print it, this once. In a pipe the token alone is printed.

    With --local no server and no privilege is needed: whoever may read the data folder may do this. It makes the
    first token of a server without local mode.

    \b
    Example: TOKEN=$(watchword token create --name laptop --duration ONE_WEEK)
    Example: watchword token create --local --actor urn:li:corpuser:admin --name first
    """
    with plain_errors():
        if duration is not None and duration_iso is not None:
            raise WrongUse("Give --duration or --duration-iso, not both.")
        lives = duration_iso or duration or Duration.ONE_HOUR.name
        remote = {flag: flags.pop(flag) for flag in CONNECTION}
        if local:
            _refuse(remote, "--url, --as and --token-file are for a server; --local works without one.")
            settings = load(flags)
            new = NewToken(
                type=TokenType.PERSONAL,
                actor_urn=check_actor(actor or settings.root_actor, "--actor"),
                name=check_name("first" if name is None else name, "--name"),
                description=check_description(description, "--description"),
            )
            import asyncio

            secret, made = asyncio.run(_create(backstage, settings, new, lives))
            _deliver(secret, made, lambda: asyncio.run(_withdraw(backstage, settings, made.id)), json=as_json_)
            return
        _refuse(flags, "The flags of the store (--data-dir and so on) go with --local.")
        if name is None:
            raise WrongUse("--name must say what the token is for, such as --name laptop.")
        with connected(**remote) as client:
            whose = actor or client.me().urn
            created = client.create_token(whose, name, duration=lives, description=description)
            secret, made = created.token.reveal(), created.metadata
            _deliver(secret, made, lambda: client.revoke_token(made.id), json=as_json_)


def _refuse(flags: dict[str, str | None], sentence: str) -> None:
    if any(value is not None for value in flags.values()):
        raise WrongUse(sentence)


async def _create(backstage: Backstage, settings: Settings, new: NewToken, lives: str) -> "tuple[str, Token]":
    async with open_existing(backstage, settings) as service:
        duration = Duration.__members__.get(lives)
        iso = lives if duration is None else None
        made = await service.tokens.mint(system_warrant("command line"), new, duration, iso)
    return made.token.reveal(), _as_listed(made.record)


async def _withdraw(backstage: Backstage, settings: Settings, token_id: str) -> None:
    async with open_existing(backstage, settings) as service:
        await service.tokens.withdraw(system_warrant("command line"), token_id)


def _as_listed(record: TokenRecord) -> "Token":
    from watchword.client import Token

    return Token(
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
    )


def _deliver(secret: str, made: "Token", revoke: Callable[[], None], *, json: bool) -> None:
    """Print a new token; one that could not be is of no use to anybody but a thief, and is ended at once."""
    try:
        _show_created(secret, made, json=json)
        sys.stdout.flush()
    except BaseException as error:
        silence()
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


def _show_created(secret: str, made: "Token", *, json: bool) -> None:
    if json:
        say(as_json({"accessToken": secret, **named(made)}))
    elif not on_terminal():
        say(secret)
    else:
        when = When(made.expires_at, "never")
        show_one({"Name": made.name, "Acts as": made.actor_urn, "Id": made.id, "Expires": when}, made, json=False)
        say(f"\nThe token, shown this once:\n\n{secret}\n")
        say("Keep it where only its user can read it. To use it here: export WATCHWORD_TOKEN=<the token>")
        say(f"To end it: watchword token revoke {made.id}")


@token.command("list")
@click.option("--all", "everyone", is_flag=True, help="Everyone's, not just the caller's own.")
@click.option("--actor", default=None, metavar="URN", help="Those that act as this user.")
@click.option("--owner", default=None, metavar="URN", help="Those that this user made.")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.name for status in TokenStatus]),
    help="ACTIVE, EXPIRED or REVOKED; may be repeated. [default: all but REVOKED]",
)
@click.option("--name-contains", default=None, metavar="TEXT", help="Those with this in their name.")
@click.option("--expires-before", type=Moment(ago=False), metavar="MOMENT", help="A date, time, or span from now.")
@click.option("--expires-after", type=Moment(ago=False), metavar="MOMENT", help="A date, time, or span from now.")
@click.option("--created-before", type=Moment(ago=True), metavar="MOMENT", help="A date, time, or span back.")
@click.option("--created-after", type=Moment(ago=True), metavar="MOMENT", help="A date, time, or span back.")
@click.option("--used-before", type=Moment(ago=True), metavar="MOMENT", help="Last used before this.")
@click.option("--sort", type=click.Choice([field.value.word for field in SortField]), help="What to order by.")
@click.option("--descending", is_flag=True, help="The greatest first.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many.")
@json_flag
@with_client
def list_tokens(
    client: "Client",
    everyone: bool,
    actor: str | None,
    owner: str | None,
    status: tuple[str, ...],
    name_contains: str | None,
    expires_before: int | None,
    expires_after: int | None,
    created_before: int | None,
    created_after: int | None,
    used_before: int | None,
    sort: str | None,
    descending: bool,
    limit: int | None,
    as_json: bool,
) -> None:
    """The caller's own tokens, or those of --actor, --owner or --all.

    \b
    Example: watchword token list --status ACTIVE --expires-before P7D
    Example: watchword token list --all --json --as urn:li:corpuser:admin
    """
    from watchword.client import Where

    own = not (everyone or actor or owner)
    if own:
        actor = client.me().urn
    asked: list[tuple[str, Any, str]] = [
        ("actorUrn", actor, "EQUAL"),
        ("ownerUrn", owner, "EQUAL"),
        ("status", list(status) or None, "IN"),
        ("name", name_contains, "CONTAIN"),
        ("expiresAt", expires_before, "LESS_THAN"),
        ("expiresAt", expires_after, "GREATER_THAN_OR_EQUAL_TO"),
        ("createdAt", created_before, "LESS_THAN"),
        ("createdAt", created_after, "GREATER_THAN_OR_EQUAL_TO"),
        ("lastUsedAt", used_before, "LESS_THAN"),
    ]
    where: list[Where] = [
        Where(field, value if isinstance(value, list) else str(value), condition=condition)
        for field, value, condition in asked
        if value is not None
    ]
    size = min(1_000, (limit or 1_000) + 1)
    found = client.tokens(*where, sort=sort or "expiresAt", descending=descending or sort is None, page_size=size)
    columns = COLUMNS[:-1] if own and on_terminal() else COLUMNS  # whose they are goes without saying
    show_list(first(found, limit), columns, json=as_json, empty="No tokens.")


@token.command()
@click.argument("token_id", metavar="ID")
@json_flag
@with_client
def show(client: "Client", token_id: str, as_json: bool) -> None:
    """One token's record, by its id or urn; revoked ones too.

    \b
    Example: watchword token show kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    """
    found = client.get_token(token_id)
    pairs = {
        "Name": found.name,
        "Description": found.description,
        "Status": found.status,
        "Acts as": found.actor_urn,
        "Made by": found.owner_urn,
        "Type": found.token_type,
        "Created": When(found.created_at),
        "Expires": When(found.expires_at, "never"),
        "Last used": When(found.last_used_at),
        "Revoked": When(found.revoked_at),
        "Id": found.id,
        "Urn": found.urn,
    }
    show_one(pairs, found, json=as_json)


@token.command()
@click.argument("token_ids", metavar="ID...", nargs=-1, required=True)
@with_client
def revoke(client: "Client", token_ids: tuple[str, ...]) -> None:
    """End tokens, by id or urn. Each that is said to be revoked is dead on every instance.

    A - stands for ids read from standard input, one a line or as `token list --json` prints them.

    \b
    Example: watchword token revoke kOXOJk0rGGlzyLpZKWvq0zVKZ1QOZBZ6cNBhOXFfMsA=
    Example: watchword token list --name-contains nightly --json | watchword token revoke -
    """
    from watchword.client import BadRequest, Conflict, NotFound

    failed = False
    for number, token_id in enumerate(_ids(token_ids), 1):
        if not _is_id(token_id):
            failed = True
            sys.stderr.write(f"watchword: Number {number} of those given is no id. Find it by: watchword token list\n")
            continue
        try:
            client.revoke_token(token_id)
        except (BadRequest, Conflict, NotFound) as error:
            failed = True
            sys.stderr.write(f"watchword: {one_line(f'{token_id}: {told(error, by_name=False)}')}\n")
        else:
            say(f"Revoked {token_id}")
            sys.stdout.flush()
    if failed:
        raise SystemExit(1)


def _is_id(word: str) -> bool:
    """Anything else may be a secret, such as the token itself, and is neither sent nor repeated."""
    try:
        check_token_id(word, "ID")
    except Fault:
        return False
    return True


def _ids(given: Iterable[str]) -> Iterator[str]:
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
            raise WrongUse("Standard input must hold ids, or what `watchword token list --json` prints.")
        yield from found
