"""Signing keys: the sealed salt, the sealed keys, and the next key."""

from typing import Any

from watchword.authority.store import check_precondition
from watchword.basics.errors import Stale
from watchword.database import rows
from watchword.database.transaction import KEYS, SqlPart, Transaction, transaction
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import write_events
from watchword.tokens.keys import SealedKey

_KEY = "kid, public, sealed_private, created_at"
_ALL = f"SELECT {_KEY}, retired_at, published_until FROM keys ORDER BY seq DESC"
_ADD = rows.insert("keys", _KEY)
_NEXT = f"SELECT {_KEY} FROM next_key"
_PUT_NEXT = rows.put("next_key", f"one, {_KEY}", "one")
_PROMOTE = f"INSERT INTO keys ({_KEY}) {_NEXT}"
# Tokens of DataHub were not signed here.
_SIGNED = "revoked_at IS NULL AND NOT EXISTS (SELECT 1 FROM imported_tokens AS i WHERE i.id = tokens.id)"
# Every token signed so far expires by the latest expiry of all tokens, or by the full one of a successor that was never
# used. A token that never expires keeps its key published for good.
_NEVER_ENDING = f"""
SELECT EXISTS (SELECT 1 FROM tokens WHERE {_SIGNED} AND expires_at IS NULL)
    OR EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL AND full_end IS NULL)"""
_LAST_END = f"SELECT expires_at FROM tokens WHERE {_SIGNED} ORDER BY expires_at DESC NULLS LAST LIMIT 1"
_LAST_FULL_END = "SELECT max(full_end) FROM tokens WHERE revoked_at IS NULL AND grace IS NOT NULL"


class KeyStore(SqlPart):
    async def sealed_salt(self) -> bytes | None:
        row = await self._db.row("SELECT sealed_salt FROM state")
        return None if row is None else row[0]

    async def keys(self) -> tuple[SealedKey, ...]:
        """Newest first."""
        return tuple(SealedKey(*row) for row in await self._db.fetch(_ALL))

    async def next_key(self) -> SealedKey | None:
        """The key that signs after the next rotation; None if there is none yet."""
        row = await self._db.row(_NEXT)
        return None if row is None else SealedKey(*row)

    @transaction
    async def settle_keys(self, tx: Transaction, salt: bytes, key: SealedKey, following: SealedKey) -> None:
        """Store the first salt, the first key and the next key, unless another process was first."""
        now = await check_precondition(tx, system_precondition("start"), exclusive=[KEYS])
        if await tx.fetchval("SELECT sealed_salt IS NOT NULL FROM state"):
            return
        await tx.execute("UPDATE state SET sealed_salt = $1", salt)
        await tx.execute(_ADD, *_values(key))
        await tx.execute(_PUT_NEXT, 1, *_values(following))
        await write_events(tx, system_precondition("start"), [Event(Action.KEY_CREATED, key.kid)], now)

    @transaction
    async def settle_next(self, tx: Transaction, following: SealedKey) -> None:
        """Store the next key, unless there is one."""
        await check_precondition(tx, system_precondition("start"), exclusive=[KEYS])
        if await tx.fetchval("SELECT kid FROM next_key") is None:
            await tx.execute(_PUT_NEXT, 1, *_values(following))

    @transaction
    async def replace_next(
        self, tx: Transaction, precondition: WritePrecondition, kid: str, following: SealedKey
    ) -> None:
        """Store another next key in place of the one with this id. `Stale` unless that is still the next key."""
        now = await check_precondition(tx, precondition, exclusive=[KEYS])
        if await tx.fetchval("SELECT kid FROM next_key") != kid:
            raise Stale
        await tx.execute(_PUT_NEXT, 1, *_values(following))
        prepared = Event(Action.KEY_PREPARED, following.kid, {"kind": following.kind.value})
        await write_events(tx, precondition, [prepared], now)

    @transaction
    async def rotate_key(
        self, tx: Transaction, precondition: WritePrecondition, kid: str, following: SealedKey
    ) -> None:
        """Sign with the next key from now on, and store another as the next; the old key stays published until its last
        token has expired. `Stale` unless the next key has this id: of two concurrent rotations one succeeds.
        """
        now = await check_precondition(tx, precondition, exclusive=[KEYS])
        if await tx.fetchval("SELECT kid FROM next_key") != kid:
            raise Stale
        await tx.execute(
            "UPDATE keys SET retired_at = $1, published_until = $2 WHERE retired_at IS NULL",
            now,
            await _published_until(tx, now),
        )
        await tx.execute(_PROMOTE)
        await tx.execute(_PUT_NEXT, 1, *_values(following))
        await write_events(tx, precondition, [Event(Action.KEY_ROTATED, kid)], now)


async def _published_until(tx: Transaction, now: int) -> int | None:
    if await tx.fetchval(_NEVER_ENDING):
        return None
    return max(now, await tx.fetchval(_LAST_END) or 0, await tx.fetchval(_LAST_FULL_END) or 0)


def _values(key: SealedKey) -> tuple[Any, ...]:
    return (key.kid, key.public, key.sealed_private, key.created_at)
