"""The command line: nouns, then verbs."""

import click

from watchword import __version__
from watchword.cli.later import LaterGroup

_COMMANDS = {
    "serve": "Run the service until it is told to stop.",
    "login": "Sign in at a server: its token is kept for the commands to come.",
    "logout": "Forget the token that `watchword login` kept.",
    "profile": "The servers that one has signed in at.",
    "health": "Ask the service on this machine whether it is well; exit code 1 if not.",
    "whoami": "Who the server takes the caller for, and what that actor may do.",
    "token": "Make tokens, look at them, replace them, end them.",
    "account": "Service accounts: actors for programs.",
    "policy": "Who may do what.",
    "group": "Groups of actors, for policies to name.",
    "actor": "List, suspend, resume and offboard actors.",
    "event": "What happened: every change, every denial.",
    "index": "The indices of time series: what they weigh, how old rows go, how rows get in.",
    "task": "Long work in the search index.",
    "db": "Look after the store.",
    "keys": "The keys that sign tokens, and the master key that seals them.",
    "doctor": "Look at settings, store, keys, clock, address and permissions; exit code 1 if anything is BAD.",
    "completion": "Print what a shell needs to complete commands as they are typed.",
}


@click.group(
    cls=LaterGroup,
    later={name: (name, sentence) for name, sentence in _COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="watchword")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def cli(debug: bool) -> None:
    """Policy-governed access tokens over GraphQL, dead the moment they are revoked.

    \b
    Start with: watchword serve
    Then, to ask it: watchword login
    """
