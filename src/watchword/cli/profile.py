"""`watchword profile`."""

from dataclasses import dataclass

import click

from watchword.cli.common import json_flag
from watchword.cli.outcome import plain_errors
from watchword.cli.profiles import Profile, Profiles
from watchword.cli.remote import complete_profiles
from watchword.cli.show import Column, When, say, show_list
from watchword.domain.errors import OperatorError
from watchword.settings import load_client


@dataclass(frozen=True, slots=True)
class Shown:
    name: str
    url: str
    current: bool
    expires_at: int | None
    problem: str | None


COLUMNS: list[Column[Shown]] = [
    Column("NAME", lambda shown: shown.name),
    Column("CURRENT", lambda shown: "yes" if shown.current else None),
    Column("EXPIRES", lambda shown: When(shown.expires_at, "never") if shown.problem is None else "unknown"),
    Column("SERVER", lambda shown: shown.url),
]


@click.group()
def profile() -> None:
    """The servers that one has signed in at. `watchword login` adds one, `watchword logout` removes it."""


@profile.command("list")
@json_flag
def list_profiles(as_json: bool) -> None:
    """All of them, and until when the token of each lives.

    \b
    Example: watchword profile list
    """
    with plain_errors():
        profiles = Profiles(load_client().folder)
        current = load_client().profile or profiles.current
        rows = [_shown(profiles, one, current=one.name == current) for one in profiles.all()]
        show_list(rows, COLUMNS, json=as_json, empty="No profiles. Make one: watchword login")


@profile.command()
@click.argument("name", shell_complete=complete_profiles)
def use(name: str) -> None:
    """Make NAME the one that is meant where none is named.

    \b
    Example: watchword profile use tokens.example.org
    """
    with plain_errors():
        profiles = Profiles(load_client().folder)
        meant = profiles.get(name)
        profiles.use(meant.name)
        say(f"{meant.name} is the current profile: {meant.url}")


def _shown(profiles: Profiles, one: Profile, *, current: bool) -> Shown:
    from watchword.client.claims import life_of

    try:
        life = life_of(profiles.token(one))
    except OperatorError as error:
        return Shown(one.name, one.url, current, None, str(error))
    ends = None if life is None or life.ends is None else life.ends * 1000
    return Shown(one.name, one.url, current, ends, None if life is not None else "its form is not known")
