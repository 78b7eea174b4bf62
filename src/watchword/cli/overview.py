"""`watchword overview`."""

from typing import TYPE_CHECKING

import click

from watchword.cli.options import json_flag
from watchword.cli.output import Cell, show_one, sparkline
from watchword.cli.remote import with_client
from watchword.cli.run import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchword.client import Client, DayCount


@click.command(cls=Command)
@click.option("--all", "everyone", is_flag=True, help="Tokens of every user, not only your own.")
@json_flag
@with_client
def overview(client: "Client", everyone: bool, as_json: bool) -> None:
    """Show how many tokens there are, when they expire and how they are used.

    Example: watchword overview
    Example: watchword overview --all --json
    """
    found = client.overview(everyone=everyone)
    pairs: dict[str, Cell] = {
        "Live": found.live,
        "Expiring in 7 days": found.expiring_7_days,
        "Unused for 90 days": found.unused_90_days,
        "Unlimited": found.unlimited,
        "Suspended": found.suspended,
        "Uses, 30 days": _chart(found.uses_by_day),
        "Expiries, 12 weeks": _chart(found.expiries_by_day, width=7),
    }
    if found.denials_by_day is not None and found.failed_sign_ins_by_day is not None:
        pairs["Denials, 30 days"] = _chart(found.denials_by_day)
        pairs["Failed sign-ins"] = _chart(found.failed_sign_ins_by_day)
    pairs["Most created by"] = [f"{owner.actor_name or owner.actor_urn} {owner.count:,}" for owner in found.owners]
    show_one(pairs, found, json=as_json)


def _chart(days: "Sequence[DayCount]", width: int = 1) -> str:
    """A bar for each so many days, and their sum."""
    counts = [one.count for one in days]
    return f"{sparkline([sum(counts[at : at + width]) for at in range(0, len(counts), width)])} {sum(counts):,}"
