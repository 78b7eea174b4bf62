"""Groups of actors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    urn: str
    name: str
    description: str | None
    members: int | None = 0  # None: not counted, or not for the caller to see
    set_name: str | None = None  # the set that declares it; None: made by the API
    external: bool = False  # whether it is a group of the identity provider, known by its members alone
