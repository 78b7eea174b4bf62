"""The command line: nouns, then verbs."""

import click

from watchword import __version__
from watchword.doors.cli.account import account
from watchword.doors.cli.actor import actor
from watchword.doors.cli.db import db
from watchword.doors.cli.doctor import doctor
from watchword.doors.cli.event import event
from watchword.doors.cli.group import group
from watchword.doors.cli.index import index
from watchword.doors.cli.keys import keys
from watchword.doors.cli.policy import policy
from watchword.doors.cli.serve import serve
from watchword.doors.cli.task import task
from watchword.doors.cli.token import token
from watchword.doors.cli.whoami import whoami


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="watchword")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def cli(debug: bool) -> None:
    """Policy-governed access tokens over GraphQL, dead the moment they are revoked.

    Start with: watchword serve
    """


for command in (serve, whoami, token, account, policy, group, actor, event, index, task, db, keys, doctor):
    cli.add_command(command)
