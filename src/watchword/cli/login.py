"""`watchword login`, `logout`, `profile` and `whoami`: who is calling which server."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from watchword import client as api
from watchword.basics.errors import OperatorError
from watchword.basics.names import DEFAULT_URL
from watchword.basics.secret import Secret
from watchword.cli import output as out
from watchword.cli.options import format_flags, global_flag, limit_flags
from watchword.cli.remote import (
    can_ask,
    complete_profiles,
    load_client,
    open_client,
    profile_flag,
    read_token,
    stored_profiles,
    with_client,
)
from watchword.cli.run import Command, CommandGroup, WrongUse, read_input
from watchword.client.errors import BadRequest, NotFound, RequestRejected, Unauthenticated, Unavailable, Unreachable
from watchword.client.profiles import ChosenServer, Profile, Profiles, is_profile_name
from watchword.client.records import read_claims
from watchword.signin.device_rules import MAX_HOST

SLOWER_SECONDS = 5


@click.command(cls=Command)
@global_flag("url")
@profile_flag("Name of the profile. [default: the server's host, with a number if that is taken]")
@click.option("--device", is_flag=True, help="Print a code and an address instead of opening a browser.")
@click.option("--token", "by_token", is_flag=True, help="Prompt for a token instead.")
@format_flags
def login(url: str | None, profile: str | None, device: bool, by_token: bool) -> None:
    """At a terminal, a browser opens on the server's page, where you compare a code and approve. Without a display, or
    with --device, the code and the address are printed, for a browser on any machine. The server then creates a
    personal token for this terminal.

    If you have a token, --token prompts for it without echo, or redirect it to standard input; it never goes on the
    command line. The token is tried first, then stored in a file that only you can read, below ~/.config/watchword. The
    profile becomes the current one.

    Example: watchword login --url https://tokens.example.org
    Example: watchword login --profile work < token
    """
    if device and by_token:
        raise WrongUse("--device and --token are two ways to sign in. Give one.")
    settings, profiles = load_client(), stored_profiles()
    if profile is not None and not is_profile_name(profile):
        raise WrongUse("--profile must be 1 to 100 letters, digits and . _ : @ -, and begin with a letter or digit.")
    chosen = _chosen_profile(profiles, url or settings.url, profile)
    if device or (can_ask() and not by_token):
        token = _approved_token(chosen, browser=not device)
        with _revoked_unless_stored(chosen.url, token):
            shown = _store(profiles, chosen, token)
    else:
        if can_ask():
            token = Secret(click.prompt(f"Token for {chosen.url} (not shown)", hide_input=True, err=True).strip())
        else:
            token = read_token(read_input, "Standard input")
        shown = _store(profiles, chosen, token)
    out.show_one(*shown)
    if settings.token is not None:
        out.warn("WATCHWORD_TOKEN is set and takes precedence over the stored token. Unset it.")


def _store(profiles: Profiles, chosen: Profile, token: Secret[str]) -> tuple[dict[str, Any], dict[str, out.Cell]]:
    """Try the token, then store it. Returns what to show of it, for programs and for people."""
    claims = read_claims(token)
    expires_at = None if claims is None else claims.expires_at
    with open_client(ChosenServer(chosen.url), token) as client:
        urn = client.me().urn
        privileges = client.privileges.granted(urn)
        record: dict[str, Any] = {"profile": chosen.name, "url": chosen.url, "urn": urn, "privileges": privileges}
        pairs: dict[str, out.Cell] = dict(zip(("Profile", "Server", "URN", "Privileges"), record.values(), strict=True))
        with suppress(RequestRejected):  # the token's scopes, or its actor's privileges, may not allow it to see itself
            found = client.tokens.find(token)
            pairs |= {} if found.scopes is None else {"Limited to": found.scopes or "nothing"}
            record |= {"tokenId": found.id, "scopes": found.scopes}
            expires_at = found.expires_at_once_used or found.expires_at
    profiles.store(chosen, token)
    pairs |= {"Expires": out.TimeCell(expires_at, "never"), "Stored in": str(profiles.token_file(chosen))}
    return {**record, "expiresAt": expires_at and out.iso(expires_at)}, pairs


@contextmanager
def _revoked_unless_stored(url: str, token: Secret[str]) -> Iterator[None]:
    """Revoke a token that was created for this terminal, and that it cannot store."""
    try:
        yield
    except BaseException:
        try:
            with open_client(ChosenServer(url), None) as client:
                client.tokens.revoke_by_possession(token)
        except Exception:  # noqa: BLE001 - after any failure the token is still live
            out.warn("The token of this terminal was not stored, and could not be revoked. Revoke it in the console.")
        else:
            out.warn("The token of this terminal was not stored, and was revoked.")
        raise


def _approved_token(chosen: Profile, *, browser: bool) -> Secret[str]:
    """The token of this terminal, once it is approved in a browser."""
    with open_client(ChosenServer(chosen.url), None) as client:
        try:
            started = client.device_logins.start(host=_host_label())
        except (Unauthenticated, NotFound):
            raise OperatorError(
                f"{chosen.url} has no device authorization. Sign in with a token: watchword login --token"
            ) from None
        address = out.one_line(started.verification_uri_complete)
        has_opened = browser and _open_browser(address)
        minutes = out.plural(round(started.expires_in / 60), "minute")
        click.echo(f"Code:    {out.one_line(started.user_code)}\nAddress: {address}", err=True)
        where = "in the browser that opened" if has_opened else "in a browser at this address"
        click.echo(f"Compare the code {where} and approve, within {minutes}.", err=True)
        try:
            with out.progress("Waiting for approval; Ctrl-C to cancel", bar=False):
                return _poll(client, started)
        except KeyboardInterrupt:
            click.echo("\nCancelled. You are not signed in.", err=True)
            raise


def _poll(client: "api.Client", started: "api.DeviceLogin") -> Secret[str]:
    interval, ends = started.interval, time.monotonic() + started.expires_in
    while time.monotonic() < ends:
        time.sleep(interval)
        try:
            return client.device_logins.poll(started.device_code)
        except BadRequest as error:
            match error.reason:
                case "authorization_pending":
                    pass
                case "slow_down":
                    interval += SLOWER_SECONDS
                case "expired_token":
                    break
                case _:
                    raise OperatorError(f"{error.message} You are not signed in.") from None
        except (Unavailable, Unreachable):  # it may be restarting
            pass
    raise OperatorError("The code has expired. You are not signed in. Run the command again.")


def _open_browser(address: str) -> bool:
    """Whether a browser of this display was asked to open the page."""
    has_display = sys.platform == "darwin" or load_client().has_display
    if not has_display or not address.startswith(("http://", "https://")):
        return False
    import webbrowser

    return webbrowser.open(address)


def _host_label() -> str:
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}"[:MAX_HOST]


def _chosen_profile(profiles: Profiles, url: str | None, name: str | None) -> Profile:
    if url is None and name is not None and name in profiles.names:
        return profiles.get(name)
    address = (url or DEFAULT_URL).rstrip("/")
    return Profile(name or profiles.name_for(address), address)


@click.command(cls=Command)
@profile_flag("Profile to remove. [WATCHWORD_PROFILE; default: the current one]")
@click.option("--keep-token", is_flag=True, help="Do not revoke the token: other machines use it.")
@format_flags
def logout(profile: str | None, keep_token: bool) -> None:
    """Example: watchword logout"""
    profiles = stored_profiles()
    name = profile or load_client().profile or profiles.current
    if name is None:
        raise WrongUse("You are not signed in. See: watchword profile list")
    found = profiles.get(name)
    if not keep_token:
        try:
            with open_client(ChosenServer(found.url, found), None) as client:
                client.tokens.revoke_by_possession(profiles.token(found))
        except OperatorError as error:
            raise OperatorError(f"{error} To delete the token without revoking it, pass --keep-token.") from None
    profiles.remove(found)
    outcome = "Its token is still valid." if keep_token else "Its token was revoked."
    sentence = f"Signed out of {found.url} (profile {found.name}). {outcome}"
    out.show_result(sentence, {"profile": found.name, "url": found.url, "revoked": not keep_token})


@click.group(cls=CommandGroup)
def profile() -> None: ...


@dataclass(frozen=True, slots=True)
class _ProfileRow:
    name: str
    url: str
    current: bool
    expires_at: datetime | None
    problem: str | None


_COLUMNS = out.columns(
    "name",
    out.Column("CURRENT", lambda row: "yes" if row.current else None),
    out.Column("EXPIRES", lambda row: out.TimeCell(row.expires_at, "never") if row.problem is None else "unknown"),
    "SERVER=url",
)


@profile.command("list")
@limit_flags
@format_flags
def list_profiles() -> None:
    """List profiles and when their tokens expire.

    Example: watchword profile list
    """
    profiles = stored_profiles()
    current = load_client().profile or profiles.current
    rows = [_row(profiles, one, current=one.name == current) for one in profiles.all()]
    out.show_list(rows, _COLUMNS, "No profiles. Create one: watchword login")


def _row(profiles: Profiles, one: Profile, *, current: bool) -> _ProfileRow:
    try:
        claims = read_claims(profiles.token(one))
        problem = None if claims else "not a Watchword token"
    except OperatorError as error:
        claims, problem = None, str(error)
    return _ProfileRow(one.name, one.url, current, claims.expires_at if claims else None, problem)


@profile.command()
@click.argument("name", shell_complete=complete_profiles)
@format_flags
def use(name: str) -> None:
    """Make NAME the current profile.

    Example: watchword profile use tokens.example.org
    """
    profiles = stored_profiles()
    found = profiles.get(name)
    profiles.use(found.name)
    sentence = f"{found.name} is the current profile: {found.url}"
    out.show_result(sentence, {"profile": found.name, "url": found.url})


@click.command(cls=Command)
@with_client
def whoami(client: "api.Client") -> None:
    """Example: watchword whoami --as alice"""
    me = client.me()
    privileges = client.privileges.granted(me.urn)
    scopes = client.privileges.granted_scopes(me.urn)
    record = {"urn": me.urn, "username": me.username, "privileges": privileges, "scopes": scopes}
    pairs: dict[str, out.Cell] = {"URN": me.urn, "Privileges": privileges}
    pairs |= {"Scopes": scopes} if scopes else {}
    out.show_one(record, pairs)
