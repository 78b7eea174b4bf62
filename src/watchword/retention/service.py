"""Retention rules and holds: look up, set and remove."""

from collections.abc import Awaitable
from dataclasses import dataclass

from watchword.authority.callers import Caller, Grant
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.index.holds import Hold
from watchword.index.rules import Operation
from watchword.index.service import TRUNCATE
from watchword.retention.rules import RetentionRule, RetentionState, StoredRule
from watchword.retention.store import RetentionStore


@dataclass(frozen=True, slots=True)
class Retention:
    """Only callers with Truncate time series index can learn which rules and holds there are."""

    _store: RetentionStore
    _authority: Authority

    def authorize(self, caller: Caller) -> Awaitable[Grant]:
        return self._authority.authorize(caller, TRUNCATE)

    async def state(self, grant: Grant) -> RetentionState:
        grant.expect(TRUNCATE)
        return await self._store.retention()

    async def rule_of(self, grant: Grant, series: str) -> tuple[StoredRule, Hold | None]:
        """The rule of a series, or else that of every series, and the hold in effect."""
        state = await self.state(grant)
        found = state.rule_of(series)
        if found is None:
            raise Fault(Reason.RULE_NOT_FOUND, f"There is no retention rule for {series}, and none for every series.")
        return found, state.hold_of(series)

    async def set_rule(self, grant: Grant, rule: RetentionRule) -> tuple[StoredRule, Hold | None]:
        """The rule as it is stored, and the hold in effect."""
        grant.expect(TRUNCATE)
        stored = await self._authority.write(
            grant, lambda grant: self._store.put_rule(grant.precondition, rule, grant.require)
        )
        return stored, (await self._store.retention()).hold_of(rule.series)

    async def delete_rule(self, grant: Grant, series: str) -> None:
        grant.expect(TRUNCATE)
        await self._authority.write(
            grant, lambda grant: self._store.delete_rule(grant.precondition, series, grant.require)
        )

    async def hold(self, grant: Grant, series: str, reason: str) -> tuple[Hold, tuple[Operation, ...]]:
        """Set a hold. Return it and the operations on the series that are still active, which are cancelled."""
        grant.expect(TRUNCATE)
        return await self._authority.change(grant, self._store.set_hold, series, reason)

    async def release(self, grant: Grant, series: str) -> None:
        """A hold that someone else set needs Release Retention Holds too."""
        grant.expect(TRUNCATE)
        await self._authority.write(
            grant, lambda grant: self._store.release_hold(grant.precondition, series, grant.require)
        )
