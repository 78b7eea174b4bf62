"""Service accounts."""

import sys

from watchword.domain.actors import (
    AccountPage,
    ActorStatus,
    ServiceAccount,
    WritePrecondition,
    account_exists,
    no_account,
)
from watchword.domain.events import Action, Event
from watchword.stores import rows
from watchword.stores.sql.policies import put_status
from watchword.stores.sql.token_lifecycle import MEMBER, dying_with, revoke
from watchword.stores.sql.transaction import (
    TOKENS,
    SqlPart,
    Transaction,
    actor_lock,
    check_precondition,
    long_transaction,
    snapshot,
    transaction,
    write_events,
)

_COLUMNS = """urn, name, description, created_at, created_by,
    EXISTS (SELECT 1 FROM actors WHERE actors.urn = service_accounts.urn AND status = 'SUSPENDED'), set_name"""
GET = f"SELECT {_COLUMNS} FROM service_accounts WHERE urn = $1 AND deleted_at IS NULL"
_ADD = "INSERT INTO service_accounts (urn, name, description, created_at, created_by) VALUES ($1, $2, $3, $4, $5)"
_CREATED_BY = f"""
SELECT {_COLUMNS} FROM service_accounts WHERE created_by = $1 AND deleted_at IS NULL ORDER BY urn LIMIT $2"""
_TOKENS_OF = f"SELECT {MEMBER} FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL"


class SqlAccounts(SqlPart):
    @transaction
    async def add_account(self, tx: Transaction, precondition: WritePrecondition, account: ServiceAccount) -> None:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(account.urn)])
        row = await tx.fetchrow("SELECT deleted_at FROM service_accounts WHERE urn = $1", account.urn)
        if row is not None:
            raise account_exists(deleted=row[0] is not None)
        values = (account.urn, account.name, account.description, account.created_at, account.created_by)
        await tx.execute(_ADD, *values)
        event = Event(Action.ACCOUNT_CREATED, account.urn, {"name": account.name})
        await write_events(tx, precondition, [event], now)

    async def get_account(self, urn: str) -> ServiceAccount:
        return _account(await self._db.row(GET, urn))

    @snapshot
    async def accounts(self, tx: Transaction, start: int, count: int, query: str = "") -> AccountPage:
        d = tx.dialect
        by_name = f"{d.position(d.folded('name'), d.folded('$1::text'))} > 0"
        by_urn = f"{d.position('urn', '$1::text')} > 0"
        matching = f"deleted_at IS NULL AND ($1::text = '' OR {by_name} OR {by_urn})"
        total = await tx.fetchval(f"SELECT count(*) FROM service_accounts WHERE {matching}", query)
        found = await tx.fetch(
            f"SELECT {_COLUMNS} FROM service_accounts WHERE {matching} ORDER BY name, urn LIMIT $2 OFFSET $3",
            query,
            count,
            start,
        )
        return AccountPage(total, tuple(_account(row) for row in found))

    @snapshot
    async def accounts_of(self, tx: Transaction, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        return tuple(_account(row) for row in await tx.fetch(_CREATED_BY, creator, most))

    @long_transaction
    async def delete_account(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> int:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(urn), TOKENS])
        account = _account(await tx.fetchrow(GET, urn))
        await tx.execute("UPDATE service_accounts SET deleted_at = $2 WHERE urn = $1", urn, now)
        await put_status(tx, precondition, urn, ActorStatus.SUSPENDED, now)
        tokens = await tx.fetch(_TOKENS_OF, urn)
        ids = await dying_with(tx, tokens, now, cascade=False, expired=True, most=sys.maxsize)
        revoked = await revoke(tx, precondition, list(ids), now, lock_rows=False)
        event = Event(Action.ACCOUNT_DELETED, urn, {"name": account.name, "tokens": revoked})
        await write_events(tx, precondition, [event], now)
        return revoked


def _account(row: rows.Row | None) -> ServiceAccount:
    if row is None:
        raise no_account()
    urn, name, description, created_at, created_by, suspended, set_name = row
    return ServiceAccount(urn, name, description, created_at, created_by, bool(suspended), set_name)
