"""Service accounts: create, look up, list and delete."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from watchword.domain.actors import AccountPage, Caller, Grant, ServiceAccount
from watchword.domain.errors import Fault, Reason, invalid
from watchword.domain.names import ACCOUNT_PREFIX, name_of
from watchword.domain.policies import Privilege
from watchword.domain.ports import AccountStore, Clock
from watchword.service.authority import Authority


@dataclass(frozen=True, slots=True)
class Accounts:
    """Only callers with Manage Service Accounts can learn that an account exists."""

    _store: AccountStore
    _authority: Authority
    _root_actor: str
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
        if urn == self._root_actor:
            raise invalid("id", "id must not be that of the root actor: its tokens hold every privilege.")
        account = ServiceAccount(urn, name or name_of(urn), description, self._clock(), grant.caller.actor)
        await self._authority.write(grant, lambda grant: self._store.add_account(grant.precondition, account))
        return account

    async def get(self, grant: Grant, urn: str) -> ServiceAccount:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        return await self._store.get_account(urn)

    async def list(self, grant: Grant, start: int, count: int, query: str) -> AccountPage:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        return await self._store.accounts(start, count, query)

    async def delete(self, grant: Grant, urn: str) -> None:
        grant.expect(Privilege.MANAGE_SERVICE_ACCOUNTS)
        if urn == self._root_actor:
            raise Fault(Reason.NOT_EDITABLE, "The root actor cannot be deleted; change WATCHWORD_ROOT_ACTOR instead.")
        revoked = await self._authority.write(grant, lambda grant: self._store.delete_account(grant.precondition, urn))
        self._count_revoked(revoked)
