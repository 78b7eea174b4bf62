"""`watchword logout`."""

import click

from watchword.cli.outcome import plain_errors
from watchword.cli.profiles import Profiles
from watchword.cli.remote import complete_profiles, opened, plain_refusals
from watchword.cli.show import say
from watchword.cli.streams import WrongUse
from watchword.settings import load_client


@click.command()
@click.option(
    "--profile",
    default=None,
    metavar="NAME",
    help="Which one. [WATCHWORD_PROFILE; default: the current one]",
    shell_complete=complete_profiles,
)
@click.option("--revoke", is_flag=True, help="Also end the token itself, on every machine that has it.")
def logout(profile: str | None, revoke: bool) -> None:
    """Forget the token that `watchword login` kept. The token itself lives on, unless --revoke ends it.

    \b
    Example: watchword logout --revoke
    """
    with plain_errors():
        here = load_client()
        profiles = Profiles(here.folder)
        name = profile or here.profile or profiles.current
        if name is None:
            raise WrongUse("Nobody is signed in. See: watchword profile list")
        meant = profiles.get(name)
        if revoke:
            with plain_refusals(profile=meant), opened(meant.url, None) as client:
                client.surrender_token(profiles.token(meant))
        profiles.remove(meant)
        ended = "Its token was revoked." if revoke else "Its token lives on: to end it too there is --revoke."
        say(f"Signed out of {meant.url} (profile {meant.name}). {ended}")
