"""GraphQL resolvers of retention: plans and runs, and sizes by day."""

from collections.abc import Mapping, Sequence
from typing import Any

from watchword.basics.errors import invalid
from watchword.basics.times import DAY
from watchword.http.graphql.context import Info, page_of
from watchword.http.graphql.shapes import Json, Shape
from watchword.index.graphql import PLAN, operation_json
from watchword.index.indices import EVERY_SERIES, Aspect, check_series, parse_aspect
from watchword.index.service import SIZES, TRUNCATE
from watchword.retention.graphql import HOLD, RULE, rule_json
from watchword.retention.rules import RetentionRule
from watchword.retention.run_rules import KEEP_DAYS, MAX_PLANS, SeriesPlan, ShownRun
from watchword.retention.run_service import RetentionRuns

DEFAULT_DAYS = 30
_SIZE = Shape("series rows dayMillis=day sizeInBytes=size_bytes", dayMillis=lambda day: day * DAY)
_RUN = Shape(
    "number series due_at requested_by requestedByName@requested_by approved_by approvedByName@approved_by approved_at"
    " error createdAt=made_at rule plan",
    rule=RetentionRule.written,
    plan=PLAN,
)
_SERIES_PLAN = Shape(
    "rows error series=aspect sizeInBytes=size_bytes hold nextDueAt=next_due outcome=outcome.value plan spans",
    series=str,
    hold=HOLD,
    plan=PLAN,
    spans=lambda spans: [{"startMillis": start, "rows": rows, "rowsToRemove": going} for start, rows, going in spans()],
)


async def retention_plan(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(RetentionRuns)
    page = page_of({"count": MAX_PLANS} | {name: one for name, one in (input or {}).items() if one is not None})
    if page["count"] > MAX_PLANS:
        raise invalid("count", f"count must be a whole number from 0 to {MAX_PLANS}.")
    async with info.context.searching:
        total, plans = await service.plans(grant, _series(input), **page)
    actors = [*_SERIES_PLAN.actors(*plans)]
    for plan in plans:
        actors += [] if plan.rule is None else RULE.actors(plan.rule)
        actors += [] if plan.waiting is None else _RUN.actors(plan.waiting)
    names = await info.context.names(actors)
    shown = [_series_plan_json(info, plan, names) for plan in plans]
    return page | {"total": total, "plans": shown, "pausedForMillis": service.paused_for}


async def retention_runs(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(RetentionRuns)
    page = page_of(input or {})
    async with info.context.searching:
        found = await service.runs(grant, _series(input), **page)
    return page | {"total": found.total, "runs": await _runs_json(info, found.rows)}


async def series_sizes(_: Any, info: Info, input: Json | None = None) -> list[Json]:
    service, grant = await info.context.authorized(RetentionRuns, SIZES, TRUNCATE)
    days = (input or {}).get("days")
    days = DEFAULT_DAYS if days is None else days
    if not 1 <= days <= KEEP_DAYS:
        raise invalid("days", f"days must be a whole number from 1 to {KEEP_DAYS}.")
    async with info.context.searching:
        found = await service.sizes(grant, _series(input), days)
    return [_SIZE(one) for one in found]


async def run_retention(_: Any, info: Info, series: str) -> Json:
    service, grant = await info.context.authorized(RetentionRuns)
    aspect = _aspect(series)
    async with info.context.searching:
        run = await service.run(grant, aspect)
    return (await _runs_json(info, [run]))[0]


async def approve_retention_run(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(RetentionRuns)
    async with info.context.searching:
        run = await service.approve(grant, input["number"], input["rows"])
    return (await _runs_json(info, [run]))[0]


def _series(input: Json | None) -> str | None:
    series = (input or {}).get("series")
    return None if series is None else str(_aspect(series))


def _aspect(series: str) -> Aspect:
    if check_series(series) == EVERY_SERIES:
        raise invalid("series", "series must be entity.aspect, such as dataset.datasetUsageStatistics.")
    return parse_aspect(series)


async def _runs_json(info: Info, runs: Sequence[ShownRun]) -> list[Json]:
    names = await info.context.names(_RUN.actors(*(one.run for one in runs)))
    return [_run_json(info, run, names) for run in runs]


def _run_json(info: Info, shown: ShownRun, names: Mapping[str, str]) -> Json:
    run, operation = shown
    under_way = None if operation is None else operation_json(info, operation, names)
    return _RUN(run, names) | {"state": shown.state, "operation": under_way}


def _series_plan_json(info: Info, plan: SeriesPlan, names: Mapping[str, str]) -> Json:
    rule, waiting = plan.rule, plan.waiting
    return _SERIES_PLAN(plan, names) | {
        "rule": None if rule is None else rule_json(rule, plan.hold, names),
        "waiting": None if waiting is None else _run_json(info, ShownRun(waiting, None), names),
    }
