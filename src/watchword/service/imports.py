"""What imports from DataHub brought. The import itself is a command: see datahub_import.py."""

from collections.abc import Awaitable
from dataclasses import dataclass

from watchword.domain.actors import Caller, Grant
from watchword.domain.datahub import ImportStatus
from watchword.domain.policies import Privilege
from watchword.domain.ports import ImportStore
from watchword.service.authority import Authority


@dataclass(frozen=True, slots=True)
class Imports:
    _store: ImportStore
    _authority: Authority
    has_salt: bool
    """DataHub's. Without it every imported token is rejected."""

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, Privilege.MANAGE_ACCESS_TOKENS)

    async def status(self, grant: Grant) -> ImportStatus:
        grant.expect(Privilege.MANAGE_ACCESS_TOKENS)
        return await self._store.import_status()
