"""GraphQL resolvers of retention rules and holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from watchword.domain.actors import Grant
from watchword.domain.retention import FIELDS, Hold, RuleChange, StoredRule, check_hold_reason, check_series, parse_rule
from watchword.http.graphql.context import Info, Json, record_json
from watchword.http.graphql.operation_resolvers import operation_json
from watchword.service.retention import Retention


async def retention_rules(_: Any, info: Info) -> list[Json]:
    service, grant = await _authorized(info)
    state = await service.state(grant)
    return await _rules_json(info, [(one, state.hold_of(one.rule.series)) for one in state.rules])


async def retention_rule(_: Any, info: Info, series: str) -> Json:
    service, grant = await _authorized(info)
    return (await _rules_json(info, [await service.rule_of(grant, check_series(series))]))[0]


async def retention_holds(_: Any, info: Info) -> list[Json]:
    service, grant = await _authorized(info)
    holds = (await service.state(grant)).holds
    names = await info.context.names(one.set_by for one in holds)
    return [hold_json(one, names) for one in holds]


async def set_retention_rule(_: Any, info: Info, input: Json) -> Json:
    service, grant = await _authorized(info)
    return (await _rules_json(info, [await service.set_rule(grant, parse_rule(input))]))[0]


async def delete_retention_rule(_: Any, info: Info, series: str) -> bool:
    service, grant = await _authorized(info)
    await service.delete_rule(grant, check_series(series))
    return True


async def hold_series(_: Any, info: Info, input: Json) -> Json:
    service, grant = await _authorized(info)
    series, reason = check_series(input["series"]), check_hold_reason(input["reason"])
    hold, active = await service.hold(grant, series, reason)
    names = await info.context.names([hold.set_by, *(operation.asked_by for _, operation in active)])
    operations = [operation_json(info, task, operation, names) for task, operation in active]
    return {"hold": hold_json(hold, names), "activeOperations": operations}


async def release_series(_: Any, info: Info, series: str) -> bool:
    service, grant = await _authorized(info)
    await service.release(grant, check_series(series))
    return True


async def _authorized(info: Info) -> tuple[Retention, Grant]:
    retention = info.context.services.core.retention
    return retention, await retention.authorize(info.context.caller)


async def _rules_json(info: Info, found: Iterable[tuple[StoredRule, Hold | None]]) -> list[Json]:
    shown = list(found)
    urns = [stored.changed_by for stored, _ in shown] + [hold.set_by for _, hold in shown if hold is not None]
    names = await info.context.names(urns)
    return [rule_json(stored, hold, names) for stored, hold in shown]


def rule_json(stored: StoredRule, hold: Hold | None, names: Mapping[str, str]) -> Json:
    rule = stored.rule
    return {**dict.fromkeys(FIELDS), **rule.written()} | record_json(
        stored,
        "changed_at changed_by",
        mode=rule.mode.value,
        set=stored.set_name,
        changedByName=names.get(stored.changed_by),
        heldBy=None if hold is None else hold_json(hold, names),
    )


def hold_json(hold: Hold, names: Mapping[str, str]) -> Json:
    return record_json(hold, "series reason set_by set_at by_rule", setByName=names.get(hold.set_by))


def rule_change_json(change: RuleChange) -> Json:
    before = None if change.before is None else change.before.rule.written() | {"set": change.before.set_name}
    after = None if change.after is None else change.after.written() | {"set": change.set_name}
    return {"change": change.kind.value, "series": change.series, "before": before, "after": after}
