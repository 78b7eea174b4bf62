"""What a master key has sealed in a store."""

from typing import Any, NamedTuple

import apsw


class Sealed(NamedTuple):
    """What of a store a master key has sealed; no salt where nothing is yet."""

    salt: bytes | None
    private_keys: list[tuple[str, bytes]]
    """By kid, the next one among them."""


def sealed_of(connection: apsw.Connection) -> Sealed:
    salt = connection.execute("SELECT sealed_salt FROM state").get
    keys: list[Any] = connection.execute("SELECT kid, sealed_private FROM keys").fetchall()
    # A file of an older version has no such table.
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'next_key'").get:
        keys += connection.execute("SELECT kid, sealed_private FROM next_key").fetchall()
    return Sealed(salt, keys)
