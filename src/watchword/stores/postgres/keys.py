"""Keys in PostgreSQL: the sealed salt and the sealed signing keys."""

from typing import Any

from watchword.domain.actors import Warrant, system_warrant
from watchword.domain.events import Action, Event
from watchword.domain.ports import SealedKey
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.warrants import KEYS, leave_events, prove

_ALL = "SELECT kid, public, sealed_private, created_at, retired_at, published_until FROM keys ORDER BY seq DESC"
_ADD = "INSERT INTO keys (kid, public, sealed_private, created_at) VALUES ($1, $2, $3, $4)"

# Every token signed so far ends by the latest end of all tokens; one that never ends keeps its key for good.
_RETIRE = """
UPDATE keys SET retired_at = $1,
    published_until = CASE
        WHEN EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND expires_at IS NULL) THEN NULL
        ELSE greatest($1, coalesce(
            (SELECT expires_at FROM tokens WHERE revoked_at IS NULL ORDER BY expires_at DESC NULLS LAST LIMIT 1), 0))
    END
WHERE retired_at IS NULL
"""


class PostgresKeys:
    _db: Database

    async def sealed_salt(self) -> bytes | None:
        (salt,) = await self._db.row("SELECT sealed_salt FROM state")
        return None if salt is None else bytes(salt)

    async def keys(self) -> tuple[SealedKey, ...]:
        return tuple(SealedKey(*row) for row in await self._db.rows(_ALL))

    async def settle_keys(self, salt: bytes, key: SealedKey) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, system_warrant("start"), changes=[KEYS])
            if await c.fetchval("SELECT sealed_salt IS NOT NULL FROM state"):
                return
            await c.execute("UPDATE state SET sealed_salt = $1", salt)
            await c.execute(_ADD, *_values(key))
            await leave_events(c, system_warrant("start"), [Event(Action.KEY_CREATED, key.kid)], now)

        await self._db.write(work)

    async def rotate_key(self, warrant: Warrant, key: SealedKey) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, warrant, changes=[KEYS])
            await c.execute(_RETIRE, now)
            await c.execute(_ADD, *_values(key))
            await leave_events(c, warrant, [Event(Action.KEY_ROTATED, key.kid)], now)

        await self._db.write(work)


def _values(key: SealedKey) -> tuple[Any, ...]:
    return (key.kid, key.public, key.sealed_private, key.created_at)
