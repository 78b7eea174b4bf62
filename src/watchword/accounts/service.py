"""Service accounts: create, look up, list and delete."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from watchword.accounts.rules import AccountPage, ServiceAccount
from watchword.accounts.store import AccountStore
from watchword.authority.callers import Caller, Grant
from watchword.authority.privileges import Privilege
from watchword.authority.service import Authority
from watchword.basics.names import ACCOUNT_PREFIX, name_of
from watchword.basics.times import Clock


@dataclass(frozen=True, slots=True)
class Accounts:
    """Only callers with Manage Service Accounts can learn that an account exists."""

    _store: AccountStore
    _authority: Authority
    _new_id: Callable[[], str]
    _clock: Clock
    _count_revoked: Callable[[int], None]

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, Privilege.MANAGE_SERVICE_ACCOUNTS)

    async def create(
        self, grant: Grant, short_id: str | None, name: str | None, description: str | None
    ) -> ServiceAccount:
        """Without a name it is called as its urn ends."""
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        urn = ACCOUNT_PREFIX + (short_id or self._new_id())
        account = ServiceAccount(urn, name or name_of(urn), description, self._clock(), grant.caller.actor)
        await self._authority.change(grant, self._store.add_account, account)
        return account

    async def get(self, grant: Grant, urn: str) -> ServiceAccount:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        return await self._store.get_account(urn)

    async def list(self, grant: Grant, start: int, count: int, query: str) -> AccountPage:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        return await self._store.accounts(start, count, query)

    async def delete(self, grant: Grant, urn: str) -> None:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        revoked = await self._authority.change(grant, self._store.delete_account, urn)
        self._count_revoked(revoked)
