"""GraphQL resolvers for actors: `me`, status, service accounts, offboarding, sessions, the persons that actors are
linked to, mail preferences, and the audit log of their actions.
"""

from collections.abc import Mapping
from typing import Any

from watchword.domain.actors import (
    ActorState,
    ActorStatus,
    Grant,
    ProfileField,
    ServiceAccount,
    check_profile,
    parse_actor_search,
)
from watchword.domain.errors import invalid
from watchword.domain.events import Action, KeptEvent, kind_of, named_in, parse_event_counts, parse_event_search
from watchword.domain.mail import MailKind, parse_kind
from watchword.domain.names import (
    check_account,
    check_actor,
    check_description,
    check_lower_id,
    check_name,
    check_text,
    name_of,
    username_of,
)
from watchword.domain.policies import PRIVILEGE_FIELDS
from watchword.domain.sessions import MAX_SUBJECT, Identity
from watchword.http import processor_budget
from watchword.http.graphql.context import Info, Json, page_of, query_of, record_json
from watchword.http.graphql.directory_resolvers import status_word, user_json
from watchword.http.graphql.policy_resolvers import policy_json, users_of
from watchword.service.actors import Former, OffboardingPlan, OffboardingReceipt, RevokedTokens, SinceSuspension
from watchword.service.mail import MailPreferences

# DataHub's clients ask for these. Nothing here corresponds to them.
NO_PRIVILEGES = dict.fromkeys(
    [
        "viewAnalytics", "viewMetadataProposals", "manageIngestion", "canViewIngestionPage", "manageSecrets",
        "createDomains", "manageDomains", "viewTests", "manageTests", "manageGlossaries", "proposeCreateGlossaryTerm",
        "proposeCreateGlossaryNode", "manageUserCredentials", "createTags", "manageTags", "viewManageTags",
        "manageGlobalSettings", "manageGlobalViews", "manageOwnershipTypes", "manageGlobalAnnouncements",
        "createBusinessAttributes", "manageBusinessAttributes", "manageStructuredProperties",
        "viewStructuredPropertiesPage", "manageApplications", "manageFeatures", "manageHomePageTemplates",
        "manageDocumentationForms", "viewDocumentationFormsPage", "manageDocuments",
        "manageOrganizationDisplayPreferences", "createSupportTickets",
    ],
    False,
)  # fmt: skip


async def me(_: Any, info: Info) -> Json:
    caller, policies = info.context.caller, info.context.services.core.policies
    granted, _scopes = await policies.granted(await policies.authorize_for(caller, caller.actor), caller.actor)
    shown = await info.context.users([caller.actor])
    return {
        "corpUser": user_json(caller.actor, shown.get(caller.actor)),
        "platformPrivileges": NO_PRIVILEGES | {field: one in granted for field, one in PRIVILEGE_FIELDS.items()},
    }


async def get_actor(_: Any, info: Info, urn: str) -> Json:
    policies, grant = await info.context.authorize_policies()
    state, holdings = await policies.actor_state(grant, check_actor(urn, "urn"))
    membership = await info.context.services.core.sessions.membership(grant, urn)
    names, linked = await info.context.names(filter(None, [urn, state.changed_by])), membership.linked
    identity = linked and linked.identity._asdict() | record_json(linked, "linked_at signed_in_at")
    return _state_json(state, names) | {
        "known": holdings.known,
        "liveTokenCount": holdings.live_tokens,
        "suspendedTokenCount": holdings.suspended_tokens,
        "sessionCount": holdings.sessions,
        "groups": list(membership.groups),
        "externalGroups": list(membership.external_groups),
        "identity": identity,
    }


async def list_actors(_: Any, info: Info, input: Json | None = None) -> Json:
    context, policies = info.context, info.context.services.core.policies
    async with context.searching:
        grant = await policies.authorize_list_actors(context.caller)
        search = parse_actor_search(input or {})
        page = await policies.actors(grant, search, context.time_left())
        context.show(len(page.actors))
    names = await context.names(
        urn for actor in page.actors for urn in (actor.state.urn, actor.state.changed_by) if urn
    )
    rows = [
        _state_json(actor.state, names)
        | {"username": username_of(actor.state.urn), "liveTokenCount": actor.live_tokens, "groups": list(actor.groups)}
        for actor in page.actors
    ]
    return {
        "count": search.count,
        "actors": rows,
        "cursor": page.actors[-1].state.urn if page.more else None,
    }


async def update_user_status(_: Any, info: Info, urn: str, status: str) -> str:
    policies, grant = await info.context.authorize_policies()
    await policies.set_actor_status(grant, check_actor(urn, "urn"), ActorStatus(status))
    return urn


async def set_actor(_: Any, info: Info, input: Json) -> str:
    policies, grant = await info.context.authorize_policies()
    urn: str = check_actor(input["urn"], "urn")
    profile = {field: input[field.value] for field in ProfileField if field.value in input}
    if not profile:
        raise invalid("input", "input must have displayName, email or both; null removes one.")
    await policies.set_profile(grant, urn, check_profile(profile))
    return urn


async def create_service_account(_: Any, info: Info, input: Json) -> Json:
    accounts, grant = await info.context.authorized(info.context.services.core.accounts)
    short_id, name = input.get("id"), input.get("displayName")
    if short_id is not None:
        check_lower_id(short_id, "id")
    if name is not None:
        check_name(name, "displayName")
    made = await accounts.create(grant, short_id, name, check_description(input.get("description")))
    return await _named_account(info, made)


async def get_service_account(_: Any, info: Info, urn: str) -> Json:
    accounts, grant = await info.context.authorized(info.context.services.core.accounts)
    return await _named_account(info, await accounts.get(grant, check_account(urn, "urn")))


async def list_service_accounts(_: Any, info: Info, input: Json | None = None) -> Json:
    context, accounts = info.context, info.context.services.core.accounts
    async with context.searching:
        grant = await accounts.authorize(context.caller)
        page = page_of(input or {})
        found = await accounts.list(grant, query=query_of(input or {}), **page)
    names = await context.names(account.created_by for account in found.rows)
    return page | {"total": found.total, "serviceAccounts": [_account_json(account, names) for account in found.rows]}


async def delete_service_account(_: Any, info: Info, urn: str) -> bool:
    accounts, grant = await info.context.authorized(info.context.services.core.accounts)
    await accounts.delete(grant, check_account(urn, "urn"))
    return True


async def offboard_actor(_: Any, info: Info, input: Json) -> Json:
    context, offboarding = info.context, info.context.services.core.offboarding
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
    creators = (account.created_by for account in plan.accounts)
    names = await context.names(filter(None, [plan.state.urn, plan.state.changed_by, *creators]))
    shown = await context.users(users_of(plan.policies))
    return _offboarding_json(plan, receipt, names) | {
        "policies": [policy_json(policy, shown) for policy in plan.policies],
        "tokens": await context.with_names(plan.tokens.rows),
        "tokensForOthers": await context.with_names(plan.tokens_for_others.rows),
    }


async def list_events(_: Any, info: Info, input: Json | None = None) -> Json:
    context, audit = info.context, info.context.services.core.audit
    async with context.searching:
        grant = await audit.authorize(context.caller)
        search = parse_event_search(input or {})
        events, cursor = await audit.list(grant, search, context.time_left())
        context.show(len(events))
    names = await context.names(urn for event in events for urn in named_in(event))
    return {
        "count": search.count,
        "events": await processor_budget.in_slices(events, lambda event: _event_json(event, names)),
        "cursor": None if cursor is None else str(cursor),
    }


async def event_counts(_: Any, info: Info, input: Json) -> Json:
    context, audit = info.context, info.context.services.core.audit
    async with context.searching:
        grant = await audit.authorize(context.caller)
        search, step = parse_event_counts(input)
        found = await audit.count_by_time(grant, search, step, context.time_left())
    counts = sorted((start, kind.value, count) for (start, kind), count in found.counts.items())
    return {
        "countedSince": found.since,
        "counts": [{"start": start, "kind": kind, "count": count} for start, kind, count in counts],
    }


async def list_event_actions(_: Any, __: Info) -> list[Json]:
    return [
        {"name": action.value, "description": action.meaning, "kind": kind_of(action.value).value} for action in Action
    ]


def _state_json(state: ActorState, names: Mapping[str, str]) -> Json:
    return record_json(
        state,
        "urn changed_at changed_by email",
        status=state.status.value,
        displayName=names.get(state.urn),
        changedByName=names.get(state.changed_by or ""),
    )


async def _named_account(info: Info, account: ServiceAccount) -> Json:
    return _account_json(account, await info.context.names([account.created_by]))


def _account_json(account: ServiceAccount, names: Mapping[str, str]) -> Json:
    return record_json(
        account,
        "urn description created_by created_at",
        type="CORP_USER",
        name=name_of(account.urn),
        displayName=account.name,
        createdByName=names.get(account.created_by),
        set=account.set_name,
        updatedAt=account.created_at,
        status=status_word(suspended=account.suspended),
    )


def _offboarding_json(plan: OffboardingPlan, receipt: OffboardingReceipt | None, names: Mapping[str, str]) -> Json:
    return {
        "dryRun": receipt is None,
        "urn": plan.state.urn,
        "displayName": names.get(plan.state.urn),
        "status": plan.state.status.value,
        "known": plan.holdings.known,
        "tokenCount": plan.tokens.total,
        "tokensForOthersCount": plan.tokens_for_others.total,
        "sessionCount": plan.holdings.sessions,
        "serviceAccounts": [_account_json(account, names) for account in plan.accounts],
        "groups": list(plan.groups),
        "declaredGroups": [{"urn": group.urn, "set": group.set_name} for group in plan.declared_groups],
        "suspension": None if plan.since is None else _suspension_json(plan.state, plan.since, names),
        "receipt": None if receipt is None else _receipt_json(receipt),
    }


def _suspension_json(state: ActorState, since: SinceSuspension, names: Mapping[str, str]) -> Json:
    return {
        "at": state.changed_at,
        "actorUrn": state.changed_by,
        "actorName": names.get(state.changed_by or ""),
        "tokens": _revoked_json(since.tokens),
        "tokensForOthers": _revoked_json(since.tokens_for_others),
        "sessionCount": since.sessions,
        "groups": [_former_json(group) for group in since.groups],
        "policies": [_former_json(policy) for policy in since.policies],
    }


def _former_json(former: Former) -> Json:
    return {"urn": former.urn, "name": former.name or name_of(former.urn), "set": former.set_name}


def _receipt_json(receipt: OffboardingReceipt) -> Json:
    return {
        "at": receipt.at,
        "status": ActorStatus.SUSPENDED.value,
        "tokens": _revoked_json(receipt.tokens),
        "tokensForOthers": None if receipt.tokens_for_others is None else _revoked_json(receipt.tokens_for_others),
        "sessionCount": receipt.sessions,
        "groups": list(receipt.groups),
    }


def _revoked_json(revoked: RevokedTokens) -> Json:
    return record_json(revoked.receipt, "count digest revoked_at", ids=list(revoked.ids))


def _event_json(event: KeptEvent, names: Mapping[str, str]) -> Json:
    shown = record_json(
        event,
        "at action target peer request_id detail",
        id=str(event.seq),
        actorUrn=event.actor,
        actorName=names.get(event.actor),
        tokenId=event.bearer_id,
        targetName=event.detail.get("name") or names.get(event.target),
    )
    return shown | {"names": {urn: names[urn] for urn in named_in(event) if urn in names}}


MAX_ISSUER = 1_000
MAX_ID = 100


async def list_sessions(_: Any, info: Info, input: Json | None = None) -> Json:
    context, sessions, arguments = info.context, info.context.services.core.sessions, input or {}
    async with context.searching:
        actor = None if arguments.get("all") else arguments.get("actorUrn") or context.caller.actor
        grant = await sessions.authorize(context.caller, actor)
        if actor is None and arguments.get("actorUrn"):
            raise invalid("all", "all must not be given together with actorUrn.")
        page = page_of(arguments)
        found = await sessions.list(grant, actor and check_actor(actor, "actorUrn"), **page)
        context.show(len(found.sessions))
    names = await context.names(session.actor for session in found.sessions)
    own = context.caller.session_id
    rows = [
        record_json(
            session,
            "id token_id created_at seen_at ends_at peer",
            actorUrn=session.actor,
            actorName=names.get(session.actor),
            method=session.method.name,
            current=session.id == own,
        )
        for session in found.sessions
    ]
    return page | {"total": found.total, "sessions": rows}


async def end_session(_: Any, info: Info, id: str) -> bool:
    sessions, caller = info.context.services.core.sessions, info.context.caller
    grant = await sessions.authorize(caller, caller.actor)
    await sessions.end(grant, check_text(id, "id", MAX_ID))
    return True


async def link_actor(_: Any, info: Info, input: Json) -> bool:
    services = info.context.services
    grant = await services.core.sessions.authorize_link(info.context.caller)
    issuer, subject = input.get("issuer"), input.get("subject")
    if issuer is None and services.provider is not None:
        issuer = services.provider.issuer
    identity = None if subject is None else _identity(issuer or "", subject)
    await services.core.sessions.link(grant, check_actor(input["actorUrn"], "actorUrn"), identity)
    return True


def _identity(issuer: str, subject: str) -> Identity:
    if not check_text(issuer, "issuer", MAX_ISSUER):
        raise invalid("issuer", "issuer must be given: WATCHWORD_OIDC_ISSUER is not set.")
    if not check_text(subject, "subject", MAX_SUBJECT):
        raise invalid("subject", f"subject must have 1 to {MAX_SUBJECT} characters.")
    return Identity(issuer, subject)


async def mail_preferences(_: Any, info: Info) -> list[Json]:
    preferences = info.context.services.core.mail_preferences
    return await _preferences_json(preferences, await preferences.authorize(info.context.caller))


async def set_mail_preferences(_: Any, info: Info, off: list[str]) -> list[Json]:
    preferences = info.context.services.core.mail_preferences
    grant = await preferences.authorize_change(info.context.caller)
    await preferences.set_off(grant, frozenset(parse_kind(word, "off") for word in off))
    return await _preferences_json(preferences, grant)


async def _preferences_json(preferences: MailPreferences, grant: Grant) -> list[Json]:
    off = await preferences.off(grant)
    return [
        {"kind": kind.value, "description": kind.meaning, "enabled": kind not in off, "sent": kind in preferences.sent}
        for kind in MailKind
    ]
