"""A retention scheduler whose clock a test sets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from watchword.authority.service import Authority
from watchword.index.engine import Engine
from watchword.index.indices import IndexNames
from watchword.index.service import Operations
from watchword.retention.jobs import RetentionScheduler, SeriesProblems
from watchword.retention.plan_service import RetentionPlanner
from watchword.retention.rules import RetentionRule, StoredRule, parse_rule
from watchword.retention.run_rules import SteadyClock
from watchword.stores.joined import Store
from watchword.tokens.usage_jobs import UsageRecorder

SERIES = "dataset.operation"
INDEX = "dataset_operationaspect_v1"


def rule(**fields: Any) -> RetentionRule:
    """As in a policy file: daily at one, enforced, all rows of a year or more."""
    return parse_rule({"series": SERIES, "keep": "P365D", "mode": "enforce"} | fields)


@dataclass
class ScheduledInstance:
    """A worker's scheduler. The time since the machine was started passes with the clock unless `jumped` says how far
    the clock is ahead of it.
    """

    store: Store
    engine: Engine
    clock: Callable[[], int]
    name: str = "one"
    home: str = ""
    jumped: int = 0
    names: IndexNames = field(default_factory=IndexNames)
    problems: list[str] = field(default_factory=list)
    on_start: Callable[[], None] = lambda: None
    """Called after a run has started."""
    scheduler: RetentionScheduler = field(init=False)

    def __post_init__(self) -> None:
        authority = Authority(self.store, str, UsageRecorder(self.store).record)
        operations = Operations(self.store, authority, self.engine, self.names, self.clock, lambda: None, self.home)
        steady = SteadyClock(self.clock, self.clock, lambda: self.clock() - self.jumped)
        self.planner = RetentionPlanner(self.engine, operations, self.names, self.home, steady)
        self.scheduler = RetentionScheduler(
            self.store,
            self.planner,
            self.name,
            self.on_start,
            SeriesProblems(lambda _, why: self.problems.append(why)),
        )

    async def tick(self) -> None:
        await self.scheduler.tick()

    async def stored_rule(self) -> StoredRule:
        found = (await self.store.retention()).rule_of(SERIES)
        assert found is not None
        return found
