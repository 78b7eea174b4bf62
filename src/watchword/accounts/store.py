"""Service accounts."""

import sys

from watchword.access.actor_store import put_status
from watchword.access.group_store import found_by_name
from watchword.access.policy_store import find_policies
from watchword.accounts.rules import AccountGain, AccountPage, ServiceAccount, account_exists, gains
from watchword.authority.callers import ActorStatus
from watchword.authority.store import check_precondition, groups_by_actor
from watchword.basics.names import no_account
from watchword.database import rows
from watchword.database.transaction import (
    TOKENS,
    SqlPart,
    Transaction,
    actor_lock,
    long_transaction,
    page,
    snapshot,
    transaction,
)
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events
from watchword.tokens.revoke_store import MEMBER, revoke, revoked_together

MAX_ACCOUNTS = 1_000


async def account_gains(tx: Transaction) -> tuple[AccountGain, ...]:
    """What managers of service accounts gain by them, in the first MAX_ACCOUNTS that a policy names."""
    policies = await find_policies(tx)
    named = sorted({user for policy in policies for user in policy.users})
    any_of = tx.dialect.any_of("$1")
    # Accounts that a policy names, alone or by a group.
    found = await tx.fetch(
        f"""SELECT urn FROM service_accounts WHERE deleted_at IS NULL AND (
            urn {any_of} OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = urn)) ORDER BY urn LIMIT $2""",
        named,
        MAX_ACCOUNTS,
    )
    accounts = [urn for (urn,) in found]
    return tuple(gains(policies, await groups_by_actor(tx, [*named, *accounts]), accounts))


_ACCOUNT_COLUMNS = """urn, name, description, created_at, created_by,
    EXISTS (SELECT 1 FROM actors WHERE actors.urn = service_accounts.urn AND status = 'SUSPENDED'), set_name"""
GET_ACCOUNT = f"SELECT {_ACCOUNT_COLUMNS} FROM service_accounts WHERE urn = $1 AND deleted_at IS NULL"
_ADD_ACCOUNT = rows.insert("service_accounts", "urn, name, description, created_at, created_by")
_CREATED_ACCOUNTS = f"""
SELECT {_ACCOUNT_COLUMNS} FROM service_accounts WHERE created_by = $1 AND deleted_at IS NULL ORDER BY urn LIMIT $2"""
_ACCOUNT_TOKENS = f"SELECT {MEMBER} FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL"


class AccountStore(SqlPart):
    @transaction
    async def add_account(self, tx: Transaction, precondition: WritePrecondition, account: ServiceAccount) -> None:
        """ALREADY_EXISTS if an account has or had this urn."""
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(account.urn)])
        row = await tx.fetchrow("SELECT deleted_at FROM service_accounts WHERE urn = $1", account.urn)
        if row is not None:
            raise account_exists(deleted=row[0] is not None)
        values = (account.urn, account.name, account.description, account.created_at, account.created_by)
        await tx.execute(_ADD_ACCOUNT, *values)
        event = Event(Action.ACCOUNT_CREATED, account.urn, {"name": account.name})
        await write_events(tx, precondition, [event], now)

    async def get_account(self, urn: str) -> ServiceAccount:
        """ACCOUNT_NOT_FOUND if it does not exist or was deleted."""
        return _account(await self._db.row(GET_ACCOUNT, urn))

    @snapshot
    async def accounts(self, tx: Transaction, start: int, count: int, query: str = "") -> AccountPage:
        """Accounts whose name or urn contains the query, by name, then urn."""
        source = f"service_accounts WHERE deleted_at IS NULL AND {found_by_name(tx.dialect)}"
        total, found = await page(tx, _ACCOUNT_COLUMNS, source, "name, urn", start, count, [query])
        return AccountPage(total, tuple(_account(row) for row in found))

    @snapshot
    async def accounts_of(self, tx: Transaction, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        """Accounts that this actor created and that were not deleted, by urn."""
        return tuple(_account(row) for row in await tx.fetch(_CREATED_ACCOUNTS, creator, most))

    @long_transaction
    async def delete_account(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> int:
        """Revokes its tokens in the same transaction; returns how many. Its urn cannot be used again."""
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(urn), TOKENS])
        account = _account(await tx.fetchrow(GET_ACCOUNT, urn))
        await tx.execute("UPDATE service_accounts SET deleted_at = $2 WHERE urn = $1", urn, now)
        await put_status(tx, precondition, urn, ActorStatus.SUSPENDED, now)
        tokens = await tx.fetch(_ACCOUNT_TOKENS, urn)
        ids = await revoked_together(tx, tokens, now, cascade=False, expired=True, most=sys.maxsize)
        revoked = await revoke(tx, precondition, list(ids), now, lock_rows=False)
        event = Event(Action.ACCOUNT_DELETED, urn, {"name": account.name, "tokens": revoked})
        await write_events(tx, precondition, [event], now)
        return revoked


def _account(row: rows.Row | None) -> ServiceAccount:
    if row is None:
        raise no_account()
    urn, name, description, created_at, created_by, suspended, set_name = row
    return ServiceAccount(urn, name, description, created_at, created_by, bool(suspended), set_name)
