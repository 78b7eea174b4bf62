"""The command line: nouns, then verbs."""

import click

from watchword import __version__
from watchword.doors.cli.db import db
from watchword.doors.cli.doctor import doctor
from watchword.doors.cli.keys import keys
from watchword.doors.cli.serve import serve
from watchword.doors.cli.token import token


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="watchword")
def cli() -> None:
    """Policy-governed access tokens over GraphQL, dead the moment they are revoked.

    Start with: watchword serve
    """


for command in (serve, token, db, keys, doctor):
    cli.add_command(command)
