"""`watchword serve`."""

import os

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import with_settings
from watchword.cli.streams import need_no_output
from watchword.settings import TABLE, Settings


@click.command()
@with_settings(*(setting.name for setting in TABLE))
@click.pass_obj
def serve(backstage: Backstage, settings: Settings) -> None:
    """Run the service until it is told to stop.

    \b
    Example: watchword serve --port 8080 --data-dir ./watchword-data
    """
    need_no_output()
    backstage.serve(settings)
    # All is closed and all is said. To take the interpreter apart as well would take twice as long as stopping did.
    os._exit(0)
