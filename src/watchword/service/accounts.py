"""Service accounts: made, listed and deleted with Manage Service Accounts; nobody else learns that one exists."""

from collections.abc import Callable

from watchword.domain.accounts import ACCOUNT_PREFIX, AccountPage, ServiceAccount
from watchword.domain.actors import Caller, Grant
from watchword.domain.errors import Fault, Reason
from watchword.domain.policies import Privilege
from watchword.domain.ports import AccountStore, Clock
from watchword.service.authority import Authority

ACCOUNTS = Privilege.MANAGE_SERVICE_ACCOUNTS
Named = Callable[[], tuple[str, str | None]]


class Accounts:
    def __init__(
        self,
        store: AccountStore,
        authority: Authority,
        root_actor: str,
        new_id: Callable[[], str],
        clock: Clock,
        revoked: Callable[[int], None],
    ) -> None:
        self._store = store
        self._authority = authority
        self._root_actor = root_actor
        self._new_id = new_id
        self._clock = clock
        self._revoked = revoked

    async def create(self, caller: Caller, named: Named) -> ServiceAccount:
        async def write(grant: Grant) -> ServiceAccount:
            grant.require(ACCOUNTS)
            name, description = named()
            urn = ACCOUNT_PREFIX + self._new_id()
            account = ServiceAccount(urn, name, description, self._clock(), grant.caller.actor)
            await self._store.add_account(grant.precondition, account)
            return account

        return await self._authority.authorize_and_write(caller, write)

    async def get(self, caller: Caller, wanted: Callable[[], str]) -> ServiceAccount:
        (await self._authority.grant(caller)).require(ACCOUNTS)
        return await self._store.get_account(wanted())

    async def list(self, caller: Caller, wanted: Callable[[], tuple[int, int, str]]) -> tuple[int, int, AccountPage]:
        (await self._authority.grant(caller)).require(ACCOUNTS)
        start, count, query = wanted()
        return start, count, await self._store.accounts(start, count, query)

    async def delete(self, caller: Caller, wanted: Callable[[], str]) -> int:
        """How many tokens died with it."""

        async def write(grant: Grant) -> int:
            grant.require(ACCOUNTS)
            urn = wanted()
            if urn == self._root_actor:
                raise Fault(
                    Reason.NOT_EDITABLE, "The root actor cannot be deleted; change WATCHWORD_ROOT_ACTOR instead."
                )
            return await self._store.delete_account(grant.precondition, urn)

        ended = await self._authority.authorize_and_write(caller, write)
        self._revoked(ended)
        return ended
