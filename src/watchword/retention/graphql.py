"""GraphQL resolvers of retention: rules and holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.index.graphql import OPERATION, operation_json
from watchword.index.holds import Hold, check_hold_reason
from watchword.index.indices import check_series
from watchword.retention.rules import FIELDS, StoredRule, parse_rule
from watchword.retention.service import Retention

HOLD = Shape("series reason set_by set_at by_rule setByName@set_by")
RULE = Shape("changed_at changed_by changedByName@changed_by mode=rule.mode.value set=set_name")


async def retention_rules(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(Retention)
    state = await service.state(grant)
    return await _rules_json(info, [(one, state.hold_of(one.rule.series)) for one in state.rules])


async def retention_rule(_: Any, info: Info, series: str) -> Json:
    service, grant = await info.context.authorized(Retention)
    return (await _rules_json(info, [await service.rule_of(grant, check_series(series))]))[0]


async def retention_holds(_: Any, info: Info) -> list[Json]:
    service, grant = await info.context.authorized(Retention)
    return await info.context.shown(HOLD, *(await service.state(grant)).holds)


async def set_retention_rule(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Retention)
    return (await _rules_json(info, [await service.set_rule(grant, parse_rule(input))]))[0]


async def delete_retention_rule(_: Any, info: Info, series: str) -> bool:
    service, grant = await info.context.authorized(Retention)
    await service.delete_rule(grant, check_series(series))
    return True


async def hold_series(_: Any, info: Info, input: Json) -> Json:
    service, grant = await info.context.authorized(Retention)
    series, reason = check_series(input["series"]), check_hold_reason(input["reason"])
    hold, active = await service.hold(grant, series, reason)
    actors = (*HOLD.actors(hold), *OPERATION.actors(*active))
    names = await info.context.names(actors)
    return {"hold": HOLD(hold, names), "activeOperations": [operation_json(info, one, names) for one in active]}


async def release_series(_: Any, info: Info, series: str) -> bool:
    service, grant = await info.context.authorized(Retention)
    await service.release(grant, check_series(series))
    return True


async def _rules_json(info: Info, rules: Sequence[tuple[StoredRule, Hold | None]]) -> list[Json]:
    holds = [hold for _, hold in rules if hold is not None]
    names = await info.context.names([*RULE.actors(*(stored for stored, _ in rules)), *HOLD.actors(*holds)])
    return [rule_json(stored, hold, names) for stored, hold in rules]


def rule_json(stored: StoredRule, hold: Hold | None, names: Mapping[str, str]) -> Json:
    written = {**dict.fromkeys(FIELDS), **stored.rule.written()}
    about = {"holdReason": written["hold"], "hold": None if hold is None else HOLD(hold, names)}
    return written | RULE(stored, names) | about
