"""`watchword actor`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import can_be_asked, confirm, with_client, yes_flag
from watchword.cli.show import Cell, Column, When, iso, named, say, show_list, show_one
from watchword.cli.streams import WrongUse
from watchword.cli.text import as_json as json_text
from watchword.cli.text import one_line
from watchword.domain.actors import ActorStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchword.client import ActorSummary, Client, OffboardingReport, OffboardingResult


_SUSPENDED = ActorStatus.SUSPENDED.value


@click.group()
def actor() -> None:
    """List, suspend, resume and offboard actors."""


COLUMNS: "list[Column[ActorSummary]]" = [
    Column("URN", lambda actor: actor.urn),
    Column("STATUS", lambda actor: actor.status),
    Column("CHANGED", lambda actor: When(actor.changed_at)),
    Column("TOKENS", lambda actor: actor.token_count),
    Column("GROUPS", lambda actor: actor.groups, free=True),
]


@actor.command("list")
@click.option("--prefix", default="", metavar="TEXT", help="Those whose urn, or name as a user, begins so.")
@click.option("--suspended", is_flag=True, help="Only those that are suspended.")
@json_flag
@with_client
def list_actors(client: "Client", prefix: str, suspended: bool, as_json: bool) -> None:
    """The actors that are known: with tokens, a status or a group, or named by a policy.

    \b
    Example: watchword actor list --prefix al
    """
    found = client.actors(prefix=prefix, only_suspended=suspended)
    show_list(found, COLUMNS, json=as_json, empty="No actors.")


@actor.command()
@click.argument("urn")
@json_flag
@with_client
def show(client: "Client", urn: str, as_json: bool) -> None:
    """How an actor stands, and what it may do.

    \b
    Example: watchword actor show urn:li:corpuser:alice
    """
    found, privileges = client.actor(urn), client.granted_privileges(urn)
    pairs: dict[str, Cell] = {
        "Urn": found.urn,
        "Status": found.status,
        "Changed": When(found.changed_at),
        "Changed by": found.changed_by,
        "Live tokens": found.live_token_count,
        "Sessions": found.session_count,
        "Privileges": privileges,
    }
    show_one(pairs, {**named(found), "privileges": privileges}, json=as_json)


@actor.command()
@click.argument("urn")
@with_client
def suspend(client: "Client", urn: str) -> None:
    """Refuse everything an actor does, and every token and session of it, from now on.

    An actor need not be known: a urn that was never seen is suspended as well, and the output says so.

    \b
    Example: watchword actor suspend urn:li:corpuser:mallory
    """
    found = client.actor(urn)
    client.suspend(urn)
    already = found.status == _SUSPENDED
    say(f"{one_line(urn)} was suspended already." if already else f"Suspended {one_line(urn)}")
    if not found.known:
        say(f"    {_unknown(urn, suspended=already)}")
    else:
        tokens, sessions = found.live_token_count, found.session_count
        say(f"    Refused from now on: {_counted(tokens, 'live token')}, {_counted(sessions, 'console session')}.")


@actor.command()
@click.argument("urn")
@click.option("--revoke-minted", is_flag=True, help="Also revoke live tokens that the actor made for others.")
@click.option("--dry-run", is_flag=True, help="Only show what there is.")
@yes_flag
@json_flag
@with_client
def offboard(client: "Client", urn: str, revoke_minted: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Suspend an actor, revoke its tokens, end its sessions and take it out of its groups.

    It shows what there is, asks, and prints a receipt. Tokens that the actor made for others stay, unless
    --revoke-minted is given. Service accounts that it made and policies that name it are listed and stay. After a
    failure, run it again: it does what is left.

    \b
    Example: watchword actor offboard urn:li:corpuser:mallory --dry-run
    """
    if not dry_run and not yes and not can_be_asked():
        raise WrongUse("Not a terminal. Pass --yes to offboard the actor, or --dry-run to preview.")
    found = client.offboard(urn)
    if not as_json:
        _show_plan(found, revoke_minted=revoke_minted)
    elif dry_run:
        say(json_text(named(found)))
    if dry_run:
        if not as_json:
            say("This was a dry run. Nothing was changed.")
        return
    confirm(f"Offboard {one_line(urn)}?", yes=yes)
    done = client.offboard(urn, dry_run=False, revoke_minted=revoke_minted)
    if as_json:
        say(json_text(named(done)))
    elif done.receipt is not None:
        _show_receipt(done.urn, done.receipt)
        if not done.known:
            say(f"  {_unknown(urn, suspended=found.status == _SUSPENDED)}")


def _show_plan(found: "OffboardingReport", *, revoke_minted: bool) -> None:
    besides = " else" if found.status == _SUSPENDED else ""
    say(f"{one_line(found.urn)} is {found.status}{'' if found.known else f'; nothing{besides} is known of it'}.")
    _show_part(_counted(found.token_count, "live token"), "to revoke", [f"{t.id}  {t.name}" for t in found.tokens])
    _show_part(
        f"{_counted(found.minted_token_count, 'live token')} made for others",
        "to revoke" if revoke_minted else "kept (--revoke-minted revokes them)",
        [f"{t.id}  {t.name}  {t.actor_urn}" for t in found.minted_tokens],
    )
    _show_part(_counted(found.session_count, "console session"), "to end", [])
    _show_part(_counted(len(found.groups), "group"), "to leave", found.groups)
    accounts = [f"{account.urn}  {account.display_name}" for account in found.service_accounts]
    _show_part(f"{_counted(len(accounts), 'service account')} made by it", "kept", accounts)
    policies = [f"{policy.urn}  {policy.name}" for policy in found.policies]
    count = "1 policy names it" if len(policies) == 1 else f"{len(policies):,} policies name it"
    _show_part(count, "kept (see `watchword policy update --help`)", policies)


def _show_part(what: str, fate: str, lines: "Sequence[str]") -> None:
    say(f"  {what}{'' if what.startswith('0 ') else f': {fate}'}")
    for line in lines:
        say(f"    {one_line(line)}")


def _show_receipt(urn: str, receipt: "OffboardingResult") -> None:
    say(f"Offboarded {one_line(urn)} at {iso(receipt.at)}.")
    say("  Suspended the actor.")
    say(f"  Revoked {_counted(receipt.tokens.count, 'token')}. Receipt: {receipt.tokens.digest}")
    if (minted := receipt.minted_tokens) is not None:
        say(f"  Revoked {_counted(minted.count, 'token')} made for others. Receipt: {minted.digest}")
    say(f"  Ended {_counted(receipt.session_count, 'console session')}, left {_counted(len(receipt.groups), 'group')}.")


def _unknown(urn: str, *, suspended: bool) -> str:
    nothing = "Nothing else" if suspended else "Nothing"
    return f"{nothing} is known of it. If you mistyped it, undo this: watchword actor resume {one_line(urn)}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@actor.command()
@click.argument("urn")
@with_client
def resume(client: "Client", urn: str) -> None:
    """Let a suspended actor act again, and its tokens work as far as they live.

    \b
    Example: watchword actor resume urn:li:corpuser:mallory
    """
    found = client.actor(urn)
    if found.status != _SUSPENDED:
        say(f"{one_line(urn)} was not suspended.{'' if found.known else ' Nothing is known of it.'}")
        return
    client.resume(urn)
    say(f"Resumed {one_line(urn)}")
