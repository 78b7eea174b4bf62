"""Apply declared sets."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from watchword.access.policy_service import MANAGE, VIEW
from watchword.authority.callers import Caller, Grant
from watchword.authority.service import Authority
from watchword.declared.rules import PARTS, DeclaredSet, SetPlan
from watchword.declared.store import DeclaredSetStore
from watchword.notices.webhook_rules import WEBHOOK_PART


@dataclass(frozen=True, slots=True)
class DeclaredSets:
    _store: DeclaredSetStore
    _authority: Authority
    _webhook_secret: Callable[[str], bytes]

    def authorize(self, caller: Caller, *, dry_run: bool) -> Awaitable[Grant]:
        return self._authority.authorize(caller, VIEW if dry_run else MANAGE)

    async def apply(self, grant: Grant, declared: DeclaredSet, *, prune: bool) -> SetPlan:
        """Make what a set has equal to what is declared. Each part may need more privileges."""
        grant.expect(MANAGE)
        also = tuple(privilege for part in PARTS for privilege in part.needed(declared[part]))
        grant, declared = grant.requiring(MANAGE, also=also), with_secrets(declared, self._webhook_secret)
        return await self._authority.write(
            grant, lambda grant: self._store.apply_set(grant.precondition, declared, prune=prune, require=grant.require)
        )

    async def preview(self, grant: Grant, declared: DeclaredSet, *, prune: bool) -> SetPlan:
        """The changes that `apply` would make."""
        grant.expect(VIEW)
        plan = await self._store.plan_set(declared, prune=prune)
        return SetPlan(
            {
                part: found
                if all(map(grant.may, part.privileges))
                else found._replace(changes=tuple(map(part.redacted, found.changes)))
                for part, found in plan.parts.items()
            }
        )


def with_secrets(declared: DeclaredSet, new_secret: Callable[[str], bytes]) -> DeclaredSet:
    """Each declared webhook with a secret, for those that are new."""
    webhooks = tuple(replace(one, sealed_secret=new_secret(one.id)) for one in declared[WEBHOOK_PART])
    return replace(declared, parts={**declared.parts, WEBHOOK_PART: webhooks})
