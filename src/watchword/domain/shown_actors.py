"""What a caller may see of an actor, next to its urn."""

from typing import NamedTuple


class ShownActor(NamedTuple):
    """None: the actor has none, or the caller may not see it."""

    name: str | None = None
    email: str | None = None
    suspended: bool | None = None


NOTHING_STORED = ShownActor(suspended=False)
"""An actor of whom nothing is stored."""
