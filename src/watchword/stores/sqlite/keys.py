"""Keys in SQLite: the sealed salt, the sealed signing keys and the next one."""

from typing import Any, NamedTuple

import apsw

from watchword.domain.actors import WritePrecondition, system_precondition
from watchword.domain.errors import Stale
from watchword.domain.events import Action, Event
from watchword.domain.ports import Clock, SealedKey
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.warrants import leave_event, prove

_ALL = "SELECT kid, public, sealed_private, created_at, retired_at, published_until FROM keys ORDER BY seq DESC"
_ADD = "INSERT INTO keys (kid, public, sealed_private, created_at) VALUES (?, ?, ?, ?)"
_NEXT = "SELECT kid, public, sealed_private, created_at FROM next_key"
_KEEP_NEXT = "INSERT INTO next_key (one, kid, public, sealed_private, created_at) VALUES (1, ?, ?, ?, ?)"
_PROMOTE = f"INSERT INTO keys (kid, public, sealed_private, created_at) {_NEXT}"

# Every token signed so far ends by the latest end of all tokens, or the full one of a successor that awaits its first
# use; one that never ends keeps its key for good.
_RETIRE = """
UPDATE keys SET retired_at = :now,
    published_until = CASE
        WHEN EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND expires_at IS NULL) THEN NULL
        WHEN EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL AND full_end IS NULL) THEN NULL
        ELSE max(:now,
            ifnull((SELECT expires_at FROM tokens WHERE revoked_at IS NULL ORDER BY expires_at DESC LIMIT 1), 0),
            ifnull((SELECT max(full_end) FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL), 0))
    END
WHERE retired_at IS NULL
"""


class SqliteKeys:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def sealed_salt(self) -> bytes | None:
        salt: bytes | None = await self._db.read(lambda c: c.execute("SELECT sealed_salt FROM state").get)
        return salt

    async def keys(self) -> tuple[SealedKey, ...]:
        return await self._db.read(lambda c: tuple(SealedKey(*row) for row in c.execute(_ALL)))

    async def next_key(self) -> SealedKey | None:
        kept: list[Any] = await self._db.read(lambda c: c.execute(_NEXT).fetchall())
        return SealedKey(*kept[0]) if kept else None

    async def settle_keys(self, salt: bytes, key: SealedKey, following: SealedKey) -> None:
        def work(c: apsw.Connection) -> None:
            if c.execute("SELECT sealed_salt IS NOT NULL FROM state").get:
                return
            c.execute("UPDATE state SET sealed_salt = ?", (salt,))
            c.execute(_ADD, _values(key))
            c.execute(_KEEP_NEXT, _values(following))
            leave_event(c, system_precondition("start"), Event(Action.KEY_CREATED, key.kid), self.clock())

        await self._db.write(work)

    async def settle_next(self, following: SealedKey) -> None:
        def work(c: apsw.Connection) -> None:
            if c.execute("SELECT kid FROM next_key").get is None:
                c.execute(_KEEP_NEXT, _values(following))

        await self._db.write(work)

    async def rotate_key(self, precondition: WritePrecondition, kid: str, following: SealedKey) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            if c.execute("SELECT kid FROM next_key").get != kid:
                raise Stale
            c.execute(_RETIRE, {"now": now})
            c.execute(_PROMOTE)
            c.execute("DELETE FROM next_key")
            c.execute(_KEEP_NEXT, _values(following))
            leave_event(c, precondition, Event(Action.KEY_ROTATED, kid), now)

        await self._db.write(work)


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


def _values(key: SealedKey) -> tuple[Any, ...]:
    return (key.kid, key.public, key.sealed_private, key.created_at)
