"""`watchword login`: a token is read where nobody sees it, tried, and only then kept."""

import sys
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.common import json_flag
from watchword.cli.outcome import plain_errors
from watchword.cli.profiles import Profile, Profiles, check_profile_name
from watchword.cli.remote import (
    can_be_asked,
    complete_profiles,
    opened,
    plain_refusals,
    token_in,
    url_flag,
)
from watchword.cli.show import Cell, When, iso, show_one
from watchword.cli.streams import read_input
from watchword.domain.secret import Secret
from watchword.settings import DEFAULT_URL, load_client

if TYPE_CHECKING:
    from watchword.client import Client, TokenInfo


@click.command()
@url_flag
@click.option(
    "--profile",
    default=None,
    metavar="NAME",
    help="What to call it here. [default: the server's host, with a number if that is taken]",
    shell_complete=complete_profiles,
)
@json_flag
def login(url: str | None, profile: str | None, as_json: bool) -> None:
    """Sign in at a server: its token is kept for the commands to come.

    The token is asked for without being shown, or read from standard input; it never goes on the command line. It is
    kept in a file that its owner alone can read, below ~/.config/watchword. The profile becomes the current one.

    \b
    Example: watchword login --url https://tokens.example.org
    Example: watchword login --profile work < token
    """
    with plain_errors():
        here = load_client()
        profiles = Profiles(here.folder)
        chosen = _meant(profiles, url or here.url, None if profile is None else check_profile_name(profile))
        token = _typed(chosen.url) if can_be_asked() else token_in(read_input, "Standard input")
        with plain_refusals(), opened(chosen.url, token) as client:
            me = client.me()
            privileges = client.granted_privileges(me.urn)
            found = _record(client, token)
        profiles.keep(chosen, token)
        pairs: dict[str, Cell] = {"Profile": chosen.name, "Server": chosen.url, "Urn": me.urn, "Privileges": privileges}
        record: dict[str, Any] = {"profile": chosen.name, "url": chosen.url, "urn": me.urn, "privileges": privileges}
        if found is not None:
            pairs |= {} if found.scopes is None else {"Limited to": found.scopes or "nothing"}
            record |= {"tokenId": found.id, "scopes": found.scopes}
        ends = _end(token, found)
        pairs["Expires"] = When(ends, "never")
        record["expiresAt"] = iso(ends)
        show_one({**pairs, "Kept in": str(profiles.token_file(chosen))}, record, json=as_json)
        sys.stdout.flush()
        if here.token is not None:
            sys.stderr.write("watchword: WATCHWORD_TOKEN is set, and goes before what was kept. Unset it.\n")


def _meant(profiles: Profiles, url: str | None, name: str | None) -> Profile:
    if url is None and name is not None and name in profiles.names:
        return profiles.get(name)
    where = (url or DEFAULT_URL).rstrip("/")
    return Profile(name or profiles.name_for(where), where)


def _typed(url: str) -> Secret[str]:
    typed = click.prompt(f"Token for {url} (it is not shown)", hide_input=True, err=True)
    return Secret(typed.strip())


def _record(client: "Client", token: Secret[str]) -> "TokenInfo | None":
    from watchword.client import Refused

    try:
        return client.find_token(token)
    except Refused:  # its limits, or what its actor may do, can keep it from looking at itself
        return None


def _end(token: Secret[str], found: "TokenInfo | None") -> int | None:
    """As the server has it, or as the token says of itself."""
    from watchword.client.claims import life_of

    if found is not None:
        return found.expires_at_once_used or found.expires_at
    life = life_of(token)
    return None if life is None or life.ends is None else life.ends * 1000
