"""Service accounts in SQLite."""

from typing import Any

import apsw

from watchword.domain.accounts import AccountPage, ServiceAccount, no_account
from watchword.domain.actors import ActorStatus, WritePrecondition
from watchword.domain.events import Action, Event
from watchword.domain.ports import Clock
from watchword.stores.sqlite.connections import folded
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.lives import end
from watchword.stores.sqlite.warrants import leave_event, prove

_COLUMNS = """urn, name, description, created_at, created_by,
    EXISTS (SELECT 1 FROM actors WHERE actors.urn = service_accounts.urn AND status = 'SUSPENDED')"""
_GET = f"SELECT {_COLUMNS} FROM service_accounts WHERE urn = ? AND deleted_at IS NULL"  # noqa: S608 - literal pieces
_MEANT = f"deleted_at IS NULL AND (:query = '' OR instr({folded('name')}, :folded) OR instr(urn, :query))"
_LIST = f"SELECT {_COLUMNS} FROM service_accounts WHERE {_MEANT} ORDER BY name, urn LIMIT :count OFFSET :start"  # noqa: S608
_OF = f"SELECT {_COLUMNS} FROM service_accounts WHERE created_by = ? AND deleted_at IS NULL ORDER BY urn LIMIT ?"  # noqa: S608
_COUNT = f"SELECT count(*) FROM service_accounts WHERE {_MEANT}"  # noqa: S608


class SqliteAccounts:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def add_account(self, precondition: WritePrecondition, account: ServiceAccount) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            prove(c, precondition, now)
            c.execute(
                "INSERT INTO service_accounts (urn, name, description, created_at, created_by) VALUES (?, ?, ?, ?, ?)",
                (account.urn, account.name, account.description, account.created_at, account.created_by),
            )
            leave_event(c, precondition, Event(Action.ACCOUNT_CREATED, account.urn, {"name": account.name}), now)

        await self._db.write(work)

    async def get_account(self, urn: str) -> ServiceAccount:
        row = await self._db.row(_GET, urn)
        if row is None:
            raise no_account()
        return _account(row)

    async def accounts(self, start: int, count: int, query: str = "") -> AccountPage:
        def work(c: apsw.Connection) -> AccountPage:
            meant = {"query": query, "folded": query.lower()}
            found = c.execute(_LIST, {**meant, "start": start, "count": count}).fetchall()
            return AccountPage(c.execute(_COUNT, meant).get, tuple(_account(row) for row in found))

        return await self._db.scan(work)

    async def accounts_of(self, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        return await self._db.scan(lambda c: tuple(_account(row) for row in c.execute(_OF, (creator, most))))

    async def delete_account(self, precondition: WritePrecondition, urn: str) -> int:
        def work(c: apsw.Connection) -> int:
            now = self.clock()
            prove(c, precondition, now)
            if c.execute(_GET, (urn,)).fetchone() is None:
                raise no_account()
            c.execute("UPDATE service_accounts SET deleted_at = ? WHERE urn = ?", (now, urn))
            c.execute(
                "INSERT OR REPLACE INTO actors (urn, status, changed_at, changed_by) VALUES (?, ?, ?, ?)",
                (urn, ActorStatus.SUSPENDED.value, now, precondition.actor),
            )
            ended = end(c, precondition, "actor_urn = :of AND revoked_at IS NULL", {"of": urn}, now, most=-1)
            leave_event(c, precondition, Event(Action.ACCOUNT_DELETED, urn, {"tokens": ended}), now)
            return ended

        return await self._db.write(work)


def _account(row: tuple[Any, ...]) -> ServiceAccount:
    urn, name, description, created_at, created_by, suspended = row
    return ServiceAccount(urn, name, description, created_at, created_by, bool(suspended))
