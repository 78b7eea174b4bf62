"""Device authorization: terminals that wait for a token."""

from typing import Any

from watchword.authority.limits import Limits, unpacked
from watchword.authority.store import check_precondition, relied_on
from watchword.basics.errors import Reason, too_often
from watchword.database import rows
from watchword.database.transaction import (
    KEYS,
    TOKENS,
    SqlPart,
    Transaction,
    actor_lock,
    delete_oldest,
    family_lock,
    transaction,
)
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events
from watchword.signin.device_rules import KEPT, Device, DeviceLimits, DeviceStatus, no_device, no_grant
from watchword.signin.session_rules import session_over
from watchword.tokens.create_store import NewToken, add, check_new
from watchword.tokens.rules import Issue, TokenRecord

DEVICES = "devices"
"""The name of a lock: their number."""
_COLUMNS = (
    "id, user_code, client, host, scopes, peer, origin, site, network, created_at, ends_at, poll_interval, polled_at,"
    " status, actor_urn, session_id"
)
_GET = f"SELECT {_COLUMNS} FROM devices WHERE id = $1"
_ADD = f"{rows.insert('devices', _COLUMNS)} ON CONFLICT (user_code) DO NOTHING"
_PENDING = f"SELECT {_COLUMNS} FROM devices WHERE user_code = $1 AND status = 'PENDING'"
_OPEN = "FROM devices WHERE ends_at > $1 AND status"
# A decision may come first, so the status is checked again.
_DROP = f"""
DELETE FROM devices WHERE status = 'PENDING' AND id = (
    SELECT id {_OPEN} = 'PENDING' AND network = (
        SELECT network {_OPEN} = 'PENDING' GROUP BY network ORDER BY count(*) DESC, min(ends_at) LIMIT 1)
    ORDER BY ends_at LIMIT 1)"""
# The limit is none: only the offset counts.
_SURPLUS = """
DELETE FROM devices WHERE id IN (
    SELECT id FROM devices WHERE status <> 'PENDING' AND actor_urn = $1 AND id <> $3
    ORDER BY created_at DESC, id LIMIT 1000000000 OFFSET $2)"""


class DeviceStore(SqlPart):
    @transaction
    async def add_device(self, tx: Transaction, device: Device, limits: DeviceLimits) -> bool:
        """Add a terminal that waits. TOO_MANY_CODES if too many of its origin, site or network wait; beyond the number
        in all, the oldest of the network with the most is dropped. False, and nothing added, if the user code is in
        use.
        """
        await tx.lock(exclusive=[DEVICES])
        now = await tx.now()
        for whose, most, column, value in (
            ("This address has", limits.of_origin, "origin", device.origin),
            ("This network has", limits.of_site, "site", device.site),
            ("This network has", limits.of_network, "network", device.network),
        ):
            sql = f"SELECT count(*), min(ends_at) {_OPEN} = 'PENDING' AND network = $2 AND {column} = $3"
            row = await tx.fetchrow(sql, now, device.network, value)
            assert row is not None
            number, first_end = row
            if number >= most:
                message = f"{whose} {number:,} open device codes, the maximum."
                raise too_often(Reason.TOO_MANY_CODES, first_end - now, message)
        if await tx.fetchval(f"SELECT count(*) {_OPEN} = 'PENDING'", now) >= limits.pending:
            await tx.execute(_DROP, now)
        return await tx.execute(_ADD, *_values(device).values()) == 1

    async def get_device(self, device_id: str) -> Device | None:
        """By the digest of its device code, whatever its state."""
        return _device(await self._db.row(_GET, device_id))

    async def find_device(self, user_code: str) -> Device:
        """The pending terminal with this digest of a user code; DEVICE_NOT_FOUND if there is none, or it has expired or
        was decided.
        """
        found = _device(await self._db.row(f"{_PENDING} AND ends_at > (SELECT now_ms())", user_code))
        if found is None:
            raise no_device()
        return found

    @transaction
    async def poll_device(self, tx: Transaction, device_id: str) -> tuple[Device, int] | None:
        """Note a poll; returns the terminal as it was before, and the time."""
        await tx.lock(exclusive=[_device_lock(device_id)])
        found, now = _device(await tx.fetchrow(_GET, device_id)), await tx.now()
        if found is None:
            return None
        after = found.polled(now)
        if after != found:
            sql = "UPDATE devices SET poll_interval = $2, polled_at = $3 WHERE id = $1"
            await tx.execute(sql, device_id, after.interval, after.polled_at)
        return found, now

    @transaction
    async def decide_device(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        device: Device,
        status: DeviceStatus,
        session_id: str,
        limits: DeviceLimits,
    ) -> None:
        """Approve or deny a pending terminal in this session; DEVICE_NOT_FOUND as above. Of those that the actor
        decided, the oldest beyond the limit are dropped.
        """
        now = await check_precondition(tx, precondition, exclusive=[_device_lock(device.id)])
        found = _device(await tx.fetchrow(f"{_PENDING} AND ends_at > $2", device.user_code, now))
        if found is None:
            raise no_device()
        decided = found._replace(status=status, actor=precondition.actor, session_id=session_id)
        sql = "UPDATE devices SET status = $2, actor_urn = $3, session_id = $4 WHERE id = $1"
        if not await tx.execute(sql, decided.id, status.value, decided.actor, session_id):
            raise no_device()  # dropped meanwhile
        await tx.execute(_SURPLUS, precondition.actor, limits.decided - 1, device.id)
        await write_events(tx, precondition, [decided.decided()], now)

    @transaction
    async def redeem_device(
        self, tx: Transaction, device_id: str, precondition: WritePrecondition, record: TokenRecord, issue: Issue
    ) -> None:
        """Add the token of an approved terminal, and delete the terminal: INVALID_GRANT if it was; SESSION_OVER if the
        session in which it was approved has ended. Otherwise as `add_token`.
        """
        new = NewToken(precondition, record, issue)
        relied = [TOKENS, KEYS, actor_lock(record.actor_urn), *relied_on(precondition)]
        changed = [_device_lock(device_id), family_lock(record.family)]
        await tx.lock(shared=relied, exclusive=changed, bearers=[precondition.bearer_id])
        now = await check_new(tx, new, room=True)
        sql = """DELETE FROM devices WHERE id = $1 AND status = 'APPROVED' AND actor_urn = $2 AND ends_at > $3
            RETURNING session_id"""
        session_id = await tx.fetchval(sql, device_id, record.actor_urn, now)
        if session_id is None:
            raise no_grant()
        # Whatever ends the session, a suspension too, deletes its row, and waits for this transaction.
        session = f"SELECT 1 FROM sessions WHERE id = $1 AND ends_at > $2 {tx.dialect.for_update}"
        if await tx.fetchval(session, session_id, now) is None:
            raise session_over()
        await tx.take_slot()
        await add(tx, [new], now)

    @transaction
    async def purge_devices(self, tx: Transaction, most: int) -> int:
        """Delete at most `most` terminals whose codes expired some time ago; returns how many."""
        return await delete_oldest(tx, "devices", "id", "ends_at", await tx.now() - KEPT + 1, most)


def _device_lock(device_id: str) -> str:
    return f"device:{device_id}"


def _values(device: Device) -> dict[str, Any]:
    return device._asdict() | {"scopes": Limits(device.scopes).packed(), "status": device.status.value}


def _device(row: rows.Row | None) -> Device | None:
    if row is None:
        return None
    device = Device._make(row)
    text: Any = device.scopes
    return device._replace(scopes=unpacked(text).scopes, status=DeviceStatus(device.status))
