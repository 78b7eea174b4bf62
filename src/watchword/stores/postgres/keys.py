"""Keys in PostgreSQL: the sealed salt, the sealed signing keys and the next one."""

from typing import Any

from watchword.domain.actors import WritePrecondition, system_precondition
from watchword.domain.errors import Stale
from watchword.domain.events import Action, Event
from watchword.domain.ports import SealedKey
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.warrants import KEYS, leave_events, prove

_ALL = "SELECT kid, public, sealed_private, created_at, retired_at, published_until FROM keys ORDER BY seq DESC"
_ADD = "INSERT INTO keys (kid, public, sealed_private, created_at) VALUES ($1, $2, $3, $4)"
_NEXT = "SELECT kid, public, sealed_private, created_at FROM next_key"
_KEEP_NEXT = "INSERT INTO next_key (one, kid, public, sealed_private, created_at) VALUES (1, $1, $2, $3, $4)"
_PROMOTE = f"INSERT INTO keys (kid, public, sealed_private, created_at) {_NEXT}"

# Every token signed so far ends by the latest end of all tokens, of those that await their first use the full one; one
# that never ends keeps its key for good.
_RETIRE = """
UPDATE keys SET retired_at = $1,
    published_until = CASE
        WHEN EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND expires_at IS NULL)
          OR EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL AND full_end IS NULL) THEN NULL
        ELSE greatest(
            $1,
            (SELECT expires_at FROM tokens WHERE revoked_at IS NULL ORDER BY expires_at DESC NULLS LAST LIMIT 1),
            (SELECT max(full_end) FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL))
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

    async def next_key(self) -> SealedKey | None:
        kept = await self._db.rows(_NEXT)
        return SealedKey(*kept[0]) if kept else None

    async def settle_keys(self, salt: bytes, key: SealedKey, following: SealedKey) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, system_precondition("start"), changes=[KEYS])
            if await c.fetchval("SELECT sealed_salt IS NOT NULL FROM state"):
                return
            await c.execute("UPDATE state SET sealed_salt = $1", salt)
            await c.execute(_ADD, *_values(key))
            await c.execute(_KEEP_NEXT, *_values(following))
            await leave_events(c, system_precondition("start"), [Event(Action.KEY_CREATED, key.kid)], now)

        await self._db.write(work)

    async def settle_next(self, following: SealedKey) -> None:
        async def work(c: Connection) -> None:
            await prove(c, system_precondition("start"), changes=[KEYS])
            if await c.fetchval("SELECT kid FROM next_key") is None:
                await c.execute(_KEEP_NEXT, *_values(following))

        await self._db.write(work)

    async def rotate_key(self, precondition: WritePrecondition, kid: str, following: SealedKey) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, precondition, changes=[KEYS])
            if await c.fetchval("SELECT kid FROM next_key") != kid:
                raise Stale
            await c.execute(_RETIRE, now)
            await c.execute(_PROMOTE)
            await c.execute("DELETE FROM next_key")
            await c.execute(_KEEP_NEXT, *_values(following))
            await leave_events(c, precondition, [Event(Action.KEY_ROTATED, kid)], now)

        await self._db.write(work)


def _values(key: SealedKey) -> tuple[Any, ...]:
    return (key.kid, key.public, key.sealed_private, key.created_at)
