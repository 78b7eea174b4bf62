"""GraphQL resolvers for offboarding."""

from typing import Any

from watchword.access.policy_graphql import policy_json, users_of
from watchword.accounts.graphql import ACCOUNT
from watchword.authority.callers import ActorStatus
from watchword.basics.names import check_actor, name_of
from watchword.http.graphql.context import Info
from watchword.http.graphql.shapes import Json, Shape
from watchword.offboarding.service import Offboarding
from watchword.tokens.graphql import with_names

_FORMER = Shape("urn set=set_name", name=lambda former: former.name or name_of(former.urn))
_REVOKED = Shape("count=receipt.count digest=receipt.digest revokedAt=receipt.revoked_at ids")
_RECEIPT = Shape(
    "at tokens tokens_for_others sessionCount=sessions groups",
    status=lambda _: ActorStatus.SUSPENDED.value,
    tokens=_REVOKED,
    tokensForOthers=_REVOKED,
)
_SINCE = Shape(
    "tokens tokens_for_others sessionCount=sessions groups policies",
    tokens=_REVOKED,
    tokensForOthers=_REVOKED,
    groups=[_FORMER],
    policies=[_FORMER],
)
_PLAN = Shape(
    "urn=state.urn displayName@state.urn status=state.status.value known=holdings.known tokenCount=tokens.total"
    " tokensForOthersCount=tokens_for_others.total sessionCount=holdings.sessions serviceAccounts=accounts groups"
    " declaredGroups=declared_groups",
    serviceAccounts=[ACCOUNT],
    declaredGroups=[Shape("urn set=set_name")],
)
_SUSPENDED = Shape("at=changed_at actorUrn=changed_by actorName@changed_by")


async def offboard_actor(_: Any, info: Info, input: Json) -> Json:
    context, offboarding = info.context, info.context.of(Offboarding)
    async with context.searching:
        grant = await offboarding.authorize(context.caller)
        plan = await offboarding.plan(grant, check_actor(input["urn"], "urn"), context.time_left())
        context.show(len(plan.tokens.rows) + len(plan.tokens_for_others.rows))
        receipt = None
        if input.get("dryRun") is False:
            receipt = await offboarding.offboard(
                grant,
                plan,
                revoke_tokens_for_others=bool(input.get("revokeTokensForOthers")),
                seconds=context.time_left(),
            )
    names = await context.names([*_PLAN.actors(plan), *_SUSPENDED.actors(plan.state)])
    shown = await context.users(users_of(plan.policies))
    return _PLAN(plan, names) | {
        "dryRun": receipt is None,
        "policies": [policy_json(policy, shown) for policy in plan.policies],
        "tokens": await with_names(context, plan.tokens.rows),
        "tokensForOthers": await with_names(context, plan.tokens_for_others.rows),
        "suspension": None if plan.since is None else _SUSPENDED(plan.state, names) | _SINCE(plan.since),
        "receipt": None if receipt is None else _RECEIPT(receipt),
    }
