"""GraphQL resolvers of retention: rules and holds, plans and runs, and sizes by day."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from watchword.domain.engine import TaskId
from watchword.domain.errors import invalid
from watchword.domain.indices import Aspect, parse_aspect
from watchword.domain.lifetimes import DAY
from watchword.domain.retention import (
    EVERY_SERIES,
    FIELDS,
    KEEP_DAYS,
    MAX_PLANS,
    Hold,
    RuleChange,
    SeriesPlan,
    ShownRun,
    StoredRule,
    check_hold_reason,
    check_series,
    parse_rule,
)
from watchword.http.graphql.context import Info, Json, page_of, record_json
from watchword.http.graphql.operation_resolvers import operation_json, plan_json
from watchword.service.operations import SIZES, TRUNCATE


async def retention_rules(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    state = await service.state(grant)
    return await _rules_json(info, [(one, state.hold_of(one.rule.series)) for one in state.rules])


async def retention_rule(_: Any, info: Info, series: str) -> Json:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    return (await _rules_json(info, [await service.rule_of(grant, check_series(series))]))[0]


async def retention_holds(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    holds = (await service.state(grant)).holds
    names = await info.context.names(one.set_by for one in holds)
    return [hold_json(one, names) for one in holds]


async def set_retention_rule(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    return (await _rules_json(info, [await service.set_rule(grant, parse_rule(input))]))[0]


async def delete_retention_rule(_: Any, info: Info, series: str) -> bool:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    await service.delete_rule(grant, check_series(series))
    return True


async def hold_series(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    series, reason = check_series(input["series"]), check_hold_reason(input["reason"])
    hold, active = await service.hold(grant, series, reason)
    names = await info.context.names([hold.set_by, *(operation.requested_by for _, operation in active)])
    operations = [operation_json(info, task, operation, names) for task, operation in active]
    return {"hold": hold_json(hold, names), "activeOperations": operations}


async def release_series(_: Any, info: Info, series: str) -> bool:
    service, grant = await info.context.authorized(info.context.services.core.retention)
    await service.release(grant, check_series(series))
    return True


async def _rules_json(info: Info, rules: Sequence[tuple[StoredRule, Hold | None]]) -> list[Json]:
    urns = [stored.changed_by for stored, _ in rules] + [hold.set_by for _, hold in rules if hold is not None]
    names = await info.context.names(urns)
    return [rule_json(stored, hold, names) for stored, hold in rules]


def rule_json(stored: StoredRule, hold: Hold | None, names: Mapping[str, str]) -> Json:
    rule = stored.rule
    written = {**dict.fromkeys(FIELDS), **rule.written()}
    return written | record_json(
        stored,
        "changed_at changed_by",
        mode=rule.mode.value,
        set=stored.set_name,
        changedByName=names.get(stored.changed_by),
        holdReason=written["hold"],
        hold=None if hold is None else hold_json(hold, names),
    )


def hold_json(hold: Hold, names: Mapping[str, str]) -> Json:
    return record_json(hold, "series reason set_by set_at by_rule", setByName=names.get(hold.set_by))


def rule_change_json(change: RuleChange) -> Json:
    before = None if change.before is None else change.before.rule.written() | {"set": change.before.set_name}
    after = None if change.after is None else change.after.written() | {"set": change.set_name}
    return {"change": change.kind.value, "series": change.series, "before": before, "after": after}


DEFAULT_DAYS = 30


async def retention_plan(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(info.context.services.retention_runs)
    page = page_of({"count": MAX_PLANS} | {name: one for name, one in (input or {}).items() if one is not None})
    if page["count"] > MAX_PLANS:
        raise invalid("count", f"count must be a whole number from 0 to {MAX_PLANS}.")
    async with info.context.searching:
        total, plans = await service.plans(grant, _series(input), **page)
    urns = [plan.rule.changed_by for plan in plans if plan.rule is not None]
    urns += [plan.hold.set_by for plan in plans if plan.hold is not None]
    urns += _actors(ShownRun(plan.waiting, None) for plan in plans if plan.waiting is not None)
    names = await info.context.names(urns)
    shown = [_series_plan_json(info, plan, names) for plan in plans]
    return page | {"total": total, "plans": shown, "pausedForMillis": service.paused_for}


async def retention_runs(_: Any, info: Info, input: Json | None = None) -> Json:
    service, grant = await info.context.authorized(info.context.services.retention_runs)
    page = page_of(input or {})
    async with info.context.searching:
        found = await service.runs(grant, _series(input), **page)
    return page | {"total": found.total, "runs": await _runs_json(info, found.rows)}


async def series_sizes(_: Any, info: Info, input: Json | None = None) -> list[Json]:
    service, grant = await info.context.authorized(info.context.services.retention_runs, SIZES, TRUNCATE)
    days = (input or {}).get("days")
    days = DEFAULT_DAYS if days is None else days
    if not 1 <= days <= KEEP_DAYS:
        raise invalid("days", f"days must be a whole number from 1 to {KEEP_DAYS}.")
    async with info.context.searching:
        found = await service.sizes(grant, _series(input), days)
    return [record_json(one, "series rows", dayMillis=one.day * DAY, sizeInBytes=one.size_bytes) for one in found]


async def run_retention(_: Any, info: Info, series: str) -> Json:
    service, grant = await info.context.authorized(info.context.services.retention_runs)
    aspect = _aspect(series)
    async with info.context.searching:
        run = await service.run(grant, aspect)
    return (await _runs_json(info, [run]))[0]


async def approve_retention_run(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(info.context.services.retention_runs)
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


def _actors(runs: Iterable[ShownRun]) -> list[str]:
    return [urn for one in runs for urn in (one.run.requested_by, one.run.approved_by) if urn is not None]


async def _runs_json(info: Info, runs: Sequence[ShownRun]) -> list[Json]:
    names = await info.context.names(_actors(runs))
    node = await info.context.services.core.store.node_id()
    return [_run_json(info, run, names, node) for run in runs]


def _run_json(info: Info, shown: ShownRun, names: Mapping[str, str], node: str = "") -> Json:
    run, operation = shown
    return record_json(
        run,
        "number series due_at requested_by approved_by approved_at error",
        createdAt=run.made_at,
        state=shown.state,
        rule=run.rule.written(),
        plan=None if run.plan is None else plan_json(run.plan),
        operation=None if operation is None else operation_json(info, TaskId(node, operation.number), operation, names),
        requestedByName=names.get(run.requested_by),
        approvedByName=None if run.approved_by is None else names.get(run.approved_by),
    )


def _series_plan_json(info: Info, plan: SeriesPlan, names: Mapping[str, str]) -> Json:
    spans = [{"startMillis": start, "rows": rows, "rowsToRemove": going} for start, rows, going in plan.spans()]
    return record_json(
        plan,
        "rows error",
        series=str(plan.aspect),
        sizeInBytes=plan.size_bytes,
        rule=None if plan.rule is None else rule_json(plan.rule, plan.hold, names),
        hold=None if plan.hold is None else hold_json(plan.hold, names),
        nextDueAt=plan.next_due,
        outcome=None if plan.outcome is None else plan.outcome.value,
        plan=None if plan.plan is None else plan_json(plan.plan),
        spans=spans,
        waiting=None if plan.waiting is None else _run_json(info, ShownRun(plan.waiting, None), names),
    )
