"""Offboarding in GraphQL. No rule lives here."""

from typing import Any

from watchword.domain.actors import ActorStatus
from watchword.domain.offboarding import OffboardingPlan, OffboardingReceipt, RevokedTokens
from watchword.domain.urns import check_actor
from watchword.http.graphql.account_resolvers import shown_account
from watchword.http.graphql.context import Info, Json, Resolvers
from watchword.http.graphql.policy_resolvers import shown_policy


async def _offboard(_: Any, info: Info, input: Json) -> Json:  # noqa: A002 - the schema's word
    context = info.context
    service = context.services.offboarding
    async with context.searching:
        plan = await service.plan(context.caller, lambda: check_actor(input["urn"], "urn"), context.time_left())
        context.show(len(plan.tokens.rows) + len(plan.minted.rows))
        receipt = None
        if input.get("dryRun") is False:
            receipt = await service.offboard(
                context.caller,
                plan,
                revoke_minted=bool(input.get("revokeMinted")),
                seconds=context.time_left(),
            )
    return _shown(plan, receipt)


def _shown(plan: OffboardingPlan, receipt: OffboardingReceipt | None) -> Json:
    return {
        "dryRun": receipt is None,
        "urn": plan.state.urn,
        "status": plan.state.status.value,
        "known": plan.holdings.known,
        "tokenCount": plan.tokens.total,
        "tokens": plan.tokens.rows,
        "mintedTokenCount": plan.minted.total,
        "mintedTokens": plan.minted.rows,
        "sessionCount": plan.holdings.sessions,
        "serviceAccounts": [shown_account(account) for account in plan.accounts],
        "groups": list(plan.groups),
        "policies": [shown_policy(policy) for policy in plan.policies],
        "receipt": None if receipt is None else _shown_receipt(receipt),
    }


def _shown_receipt(receipt: OffboardingReceipt) -> Json:
    return {
        "at": receipt.at,
        "status": ActorStatus.SUSPENDED.value,
        "tokens": _shown_revoked(receipt.tokens),
        "mintedTokens": None if receipt.minted is None else _shown_revoked(receipt.minted),
        "sessionCount": receipt.sessions,
        "groups": list(receipt.groups),
    }


def _shown_revoked(revoked: RevokedTokens) -> Json:
    receipt = revoked.receipt
    return {
        "count": receipt.count,
        "digest": receipt.digest,
        "revokedAt": receipt.revoked_at,
        "ids": list(revoked.ids),
    }


MUTATIONS: Resolvers = {"offboardActor": _offboard}
