"""`watchword actor`, `session` and `account`."""

from collections.abc import Sequence
from operator import attrgetter

import click

from watchword import client as api
from watchword.authority.callers import ActorStatus
from watchword.basics.names import ACCOUNT_PREFIX
from watchword.cli import output as out
from watchword.cli.options import all_actors_flag, yes_flag
from watchword.cli.remote import (
    ACTOR,
    actor_argument,
    by_display_name,
    completes,
    confirm,
    hides_others,
    need_confirmation,
    urn_argument,
    with_client,
    with_list,
)
from watchword.cli.run import CommandGroup, WrongUse

_SUSPENDED = ActorStatus.SUSPENDED.value
_UNUSED = "No tokens, groups or policies reference it."


@click.group(cls=CommandGroup)
def actor() -> None:
    """ACTOR is a URN, or NAME for urn:li:corpuser:NAME."""


_ACTOR_COLUMNS = out.columns(
    "urn, status, NAME=display_name*, CHANGED=changed_at, TOKENS=live_token_count, groups*, email*"
)


@actor.command("list")
@click.option("--search", metavar="TEXT", default="", help="Text in the URN, name or e-mail address.")
@click.option("--suspended", is_flag=True, help="Only suspended actors.")
@with_list()
def list_actors(client: "api.Client", search: str, suspended: bool) -> None:
    """List known actors: those with tokens, a status, a name or a group, or named by a policy.

    Example: watchword actor list --search "alice example"
    """
    found = client.actors.list(query=search, only_suspended=suspended)
    out.show_list(found, _ACTOR_COLUMNS, "No actors.")


@actor.command()
@actor_argument
@with_client
def show(client: "api.Client", urn: str) -> None:
    """Show an actor's name, status, tokens, privileges and scopes.

    Example: watchword actor show urn:li:corpuser:alice
    """
    found = client.actors.get(urn)
    privileges, scopes = client.privileges.granted(urn), client.privileges.granted_scopes(urn)
    pairs: dict[str, out.Cell] = {
        **out.attributes(found, "urn, Name=display_name, E-mail=email, status, Changed=changed_at, changed_by"),
        **out.attributes(found, "Live tokens=live_token_count"),
        **({"Suspended tokens": found.suspended_token_count} if found.status == _SUSPENDED else {}),
        **out.attributes(found, "Sessions=session_count, groups, Groups by sign-in=external_groups"),
        "Person": None if found.identity is None else f"{found.identity.subject} at {found.identity.issuer}",
        "Last sign-in": None if found.identity is None else out.TimeCell(found.identity.signed_in_at),
        "Privileges": privileges,
    }
    pairs |= {"Scopes": scopes} if scopes else {}
    out.show_one({**out.json_value(found), "privileges": privileges, "scopes": scopes}, pairs)


@actor.command()
@actor_argument
@click.option("--name", help="Display name; an empty one removes it.")
@click.option("--email", help="E-mail address; an empty one removes it.")
@with_client
def update(client: "api.Client", urn: str, name: str | None, email: str | None) -> None:
    """Change the display name and e-mail address of an actor. They are shown beside its URN and decide nothing.

    Example: watchword actor update urn:li:corpuser:alice --name "Alice Example" --email alice@example.com
    """
    if name is None and email is None:
        raise WrongUse("Pass --name, --email or both.")
    client.actors.update(urn, display_name=name, email=email)
    _show_outcome(client, urn, f"Updated {urn}")


def _show_outcome(client: "api.Client", urn: str, sentence: str) -> None:
    out.show_result(sentence, client.actors.get(urn) if out.is_data() else None)


@actor.command()
@actor_argument
@with_client
def suspend(client: "api.Client", urn: str) -> None:
    """Suspend an actor: reject its requests, tokens and sessions from now on.

    The actor need not be known: a URN that was never seen is suspended too, and the output says so.

    Example: watchword actor suspend urn:li:corpuser:mallory
    """
    found = client.actors.get(urn)
    client.actors.suspend(urn)
    already = found.status == _SUSPENDED
    sentence = f"{urn} was suspended already." if already else f"Suspended {urn}"
    _show_outcome(client, urn, sentence)
    if not found.known:
        out.say(f"    {_unknown(urn)}")
    else:
        tokens, sessions = found.live_token_count + found.suspended_token_count, found.session_count
        out.say(
            f"    Rejected from now on: {out.plural(tokens, 'live token')}, {out.plural(sessions, 'console session')}."
        )


@actor.command()
@actor_argument
@click.argument("subject", required=False)
@click.option("--issuer", help="Issuer of the identity provider. Default: that of the server's settings.")
@click.option("--clear", is_flag=True, help="Remove the link. The next sign-in makes a new one.")
@with_client
def link(client: "api.Client", urn: str, subject: str | None, issuer: str | None, clear: bool) -> None:
    """Link an actor to a person of the identity provider, by the person's claim `sub`.

    The first sign-in links an actor by itself. After that only the same person signs in as the actor, until it is
    linked to another. The sessions and groups of the sign-ins before end.

    Example: watchword actor link urn:li:corpuser:alice 9f3a1c52-77aa-4c0e --issuer https://id.example.org
    Example: watchword actor link urn:li:corpuser:alice --clear
    """
    if clear == (subject is not None):
        raise WrongUse("Give either SUBJECT or --clear.")
    client.actors.link(urn, subject, issuer=issuer)
    sentence = f"{urn} is not linked. The next sign-in links it." if clear else f"Linked {urn} to {subject}"
    _show_outcome(client, urn, sentence)


@actor.command()
@actor_argument
@click.option(
    "--revoke-tokens-for-others", is_flag=True, help="Also revoke live tokens that the actor created for others."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_flag
@with_client
def offboard(client: "api.Client", urn: str, revoke_tokens_for_others: bool, dry_run: bool) -> None:
    """Suspend an actor, revoke its tokens, end its sessions and remove it from its groups.

    The command shows what it will do, asks, and prints a receipt. Tokens that the actor created for others stay unless
    you pass --revoke-tokens-for-others. Service accounts that it created and policies that name it are listed and stay.
    After a failure, run it again to do the rest.

    Example: watchword actor offboard urn:li:corpuser:mallory --dry-run
    """
    need_confirmation()
    found = client.actors.offboard(urn)
    _show_plan(found, revoke_tokens_for_others=revoke_tokens_for_others)
    if dry_run:
        out.show_result("This was a dry run. Nothing was changed.", found)
        return
    confirm(f"Offboard {urn}?")
    done = client.actors.offboard(urn, dry_run=False, revoke_tokens_for_others=revoke_tokens_for_others)
    out.say_data(done)
    if done.receipt is not None:
        _show_receipt(done.urn, done.receipt)
        _show_declared(done)
        if not done.known:
            out.say(f"  {_unknown(urn)}")


def _show_plan(found: "api.OffboardingReport", *, revoke_tokens_for_others: bool) -> None:
    unknown = "" if found.known else f" {_UNUSED}"
    out.say(f"{out.with_name(found.urn, found.display_name)} is {found.status}.{unknown}")
    if (before := found.suspension) is not None:
        revoked = out.plural(before.tokens.count + before.tokens_for_others.count, "token")
        by = out.with_name(before.actor_urn, before.actor_name)
        out.say(f"  Suspended at {out.iso(before.at)} by {by}; {revoked} revoked since.")
    _show_part(out.plural(found.token_count, "live token"), "to revoke", [f"{t.id}  {t.name}" for t in found.tokens])
    _show_part(
        f"{out.plural(found.tokens_for_others_count, 'live token')} created for others",
        "to revoke" if revoke_tokens_for_others else "kept (--revoke-tokens-for-others revokes them)",
        [f"{t.id}  {t.name}  {out.with_name(t.actor_urn, t.actor_name)}" for t in found.tokens_for_others],
    )
    _show_part(out.plural(found.session_count, "console session"), "to end", [])
    _show_part(out.plural(len(found.groups), "group"), "to leave", found.groups)
    _show_declared(found)
    accounts = [f"{account.urn}  {account.display_name}" for account in found.service_accounts]
    _show_part(f"{out.plural(len(accounts), 'service account')} created by it", "kept", accounts)
    policies = [f"{policy.urn}  {policy.name}" for policy in found.policies]
    count = "1 policy names it" if len(policies) == 1 else f"{len(policies):,} policies name it"
    _show_part(count, "kept (see `watchword policy update --help`)", policies)


def _show_declared(found: "api.OffboardingReport") -> None:
    """What the files of policy sets may undo."""
    for membership in found.declared_groups:
        out.say(f"  {out.undone_by_file(membership.urn, membership.set, 'Remove the actor there too.')}")


def _show_part(what: str, fate: str, lines: "Sequence[str]") -> None:
    out.say(f"  {what}{'' if what.startswith('0 ') else f': {fate}'}")
    for line in lines:
        out.say(f"    {line}")


def _show_receipt(urn: str, receipt: "api.OffboardingResult") -> None:
    out.say(f"Offboarded {urn} at {out.iso(receipt.at)}.")
    out.say("  Suspended the actor.")
    out.say(f"  Revoked {out.plural(receipt.tokens.count, 'token')}. Receipt: {receipt.tokens.digest}")
    if (for_others := receipt.tokens_for_others) is not None:
        out.say(f"  Revoked {out.plural(for_others.count, 'token')} created for others. Receipt: {for_others.digest}")
    sessions, groups = out.plural(receipt.session_count, "console session"), out.plural(len(receipt.groups), "group")
    out.say(f"  Ended {sessions}, left {groups}.")


def _unknown(urn: str) -> str:
    return f"{_UNUSED} If you mistyped it, undo this: watchword actor resume {urn}"


@actor.command()
@actor_argument
@with_client
def resume(client: "api.Client", urn: str) -> None:
    """Resume a suspended actor. Its unexpired tokens work again.

    Example: watchword actor resume urn:li:corpuser:mallory
    """
    found = client.actors.get(urn)
    sentence = f"Resumed {urn}"
    if found.status == _SUSPENDED:
        client.actors.resume(urn)
    else:
        sentence = f"{urn} was not suspended.{'' if found.known else f' {_UNUSED}'}"
    _show_outcome(client, urn, sentence)


_SESSION_COLUMNS = out.columns(
    "id",
    out.Column("ACTOR", lambda session: out.with_name(session.actor_urn, session.actor_name), free=True),
    out.Column("SIGN-IN", lambda session: session.method.lower()),
    "CREATED=created_at, LAST USED=seen_at, ENDS=ends_at, FROM=peer",
)
_complete_sessions = completes(lambda client, _: client.sessions.list(), attrgetter("id", "peer"))


@click.group(cls=CommandGroup)
def session() -> None: ...


@session.command("list")
@click.option("--actor", help="Sessions of this user.", **ACTOR)
@all_actors_flag
@with_list()
def list_sessions(client: "api.Client", actor: str | None, all_actors: bool) -> None:
    """List your own console sessions, or those of --actor or --all-actors, the last used first.

    Example: watchword session list --actor urn:li:corpuser:alice
    Example: watchword session list --all-actors
    """
    found = client.sessions.list(actor, all=all_actors and actor is None)
    own = not all_actors and actor is None and hides_others(client, "MANAGE_POLICIES")
    out.show_list(found, _SESSION_COLUMNS, "No sessions.", own=own)


@session.command()
@click.argument("session_id", metavar="ID", shell_complete=_complete_sessions)
@yes_flag
@with_client
def end(client: "api.Client", session_id: str) -> None:
    """End a console session. Its browser must sign in again.

    Example: watchword session end 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU= --yes
    """
    confirm(f"End the session {session_id}?")
    client.sessions.end(session_id)
    out.show_result(f"Ended {session_id}", {"id": session_id, "ended": True})


_ACCOUNT_COLUMNS = out.columns(
    out.Column("URN", "urn", terse=("ACCOUNT", ACCOUNT_PREFIX)),
    "NAME=display_name*, status, CREATED=created_at, description*",
)
_complete = completes(lambda client, _: client.accounts.list(), by_display_name, ACCOUNT_PREFIX)
_account = urn_argument("ACCOUNT", ACCOUNT_PREFIX, _complete)


@click.group(cls=CommandGroup)
def account() -> None:
    """ACCOUNT is a URN or the id at its end."""


@account.command()
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--name", help="Display name. [default: ID]")
@click.option("--description", help="Description of the account.")
@with_client
def create(client: "api.Client", id_: str | None, name: str | None, description: str | None) -> None:
    """Create a service account and print its URN, which ends with ID, for `token create --actor`.

    Example: watchword account create airflow --name Airflow
    Example: ACCOUNT=$(watchword account create --name nightly-build)
    """
    if (name := id_ if name is None else name) is None:
        raise WrongUse("Pass ID, --name or both.")
    made = client.accounts.create(name, id=id_, description=description)
    out.show_result(made.urn, made)


@account.command("list")
@click.option("--search", metavar="TEXT", help="Text in the name or URN.")
@with_list()
def list_accounts(client: "api.Client", search: str | None) -> None:
    """List service accounts.

    Example: watchword account list --search nightly --json
    """
    found = client.accounts.list(query=search)
    out.show_list(found, _ACCOUNT_COLUMNS, "No service accounts.")


@account.command("show")
@_account
@with_client
def show_account(client: "api.Client", urn: str) -> None:
    """Show a service account and its number of live tokens.

    Example: watchword account show airflow
    """
    found = client.accounts.get(urn)
    live = _count_tokens(client, urn, "effectiveStatus")
    pairs = {
        **out.attributes(found, "urn, Name=display_name, description, status, Created=created_at"),
        "Created by": out.with_name(found.created_by, found.created_by_name),
        "Live tokens": live,
    }
    out.show_one({**out.json_value(found), "liveTokens": live}, pairs)


@account.command()
@_account
@yes_flag
@with_client
def delete(client: "api.Client", urn: str) -> None:
    """Delete a service account and revoke its tokens. Its URN is never used again.

    Example: watchword account delete airflow --yes
    """
    found = client.accounts.get(urn)
    # Those of a suspended account too.
    count = _count_tokens(client, urn, "status")
    tokens = out.plural(count, "token")
    name = f"{urn} ({found.display_name})"
    confirm(f"Delete {name} and revoke {tokens}? This cannot be undone.")
    client.accounts.delete(urn)
    out.show_result(f"Deleted {urn} with {tokens}", {"urn": urn, "deleted": True, "revokedTokens": count})


def _count_tokens(client: "api.Client", urn: str, status: str) -> int:
    """Tokens of the account that are ACTIVE by this field."""
    return client.tokens.page(api.TokenFilter("actorUrn", urn), api.TokenFilter(status, "ACTIVE"), page_size=0).total
