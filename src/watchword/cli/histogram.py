"""`watchword index histogram`: bars of rows over time, where a plan tells numbers."""

from typing import TYPE_CHECKING

import click

from watchword.cli.common import json_flag
from watchword.cli.remote import with_client
from watchword.cli.show import Column, When, show_list

if TYPE_CHECKING:
    from watchword.client import Client, TimeSpan

LONGEST = 40


@click.command()
@click.argument("entity")
@click.argument("aspect")
@click.option("--spans", type=click.IntRange(1, 200), default=20, show_default=True, help="How many bars at most.")
@json_flag
@with_client
def histogram(client: "Client", entity: str, aspect: str, spans: int, as_json: bool) -> None:
    """How the rows of a time series lie in time: what a truncation would cut.

    \b
    Example: watchword index histogram dataset operation --spans 12
    """
    found = client.timeseries_histogram(entity, aspect, spans=spans)
    most = max((span.rows for span in found.spans), default=0)
    columns: list[Column[TimeSpan]] = [
        Column("FROM", lambda span: When(span.start_millis)),
        Column("ROWS", lambda span: span.rows),
        Column("SHARE", lambda span: "#" * round(span.rows * LONGEST / most) if most else ""),
    ]
    show_list(found.spans, columns, json=as_json, empty=f"No row of {entity}.{aspect} has a time.")
