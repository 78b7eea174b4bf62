"""GraphQL resolvers for tokens, their overview, and the tokens that come from DataHub."""

from collections.abc import Callable
from typing import Any

from orjson import Fragment

from watchword.domain.bulk_revocation import parse_selection
from watchword.domain.counts import EXPIRING_DAYS, by_day, check_days, day_of
from watchword.domain.errors import invalid
from watchword.domain.filters import BY_END, Field, Search, depend_on_now, parse_filters, parse_sort
from watchword.domain.lifetimes import Duration
from watchword.domain.names import TOKEN_PREFIX, check_actor, check_description, check_name
from watchword.domain.ports import Clock
from watchword.domain.token_limits import Limits, check_limits
from watchword.domain.tokens import (
    MAX_AUTHORIZATION,
    TokenRecord,
    TokenRequest,
    TokenType,
    check_rotation_window,
    check_token_id,
)
from watchword.http.graphql.context import Context, Info, Json, camel_case, days_json, page_of, record_json
from watchword.http.graphql.directory_resolvers import user_json
from watchword.http.graphql.fastpath import Memo, Reader
from watchword.service.tokens import JSON_FIELDS, CreatedToken, DerivedTokenRequest, Lifetime

_JSON_FIELDS = {field.word: field for field in JSON_FIELDS}


async def create_access_token(_: Any, info: Info, input: Json) -> Json:
    context, tokens = info.context, info.context.services.core.tokens
    request = context.idempotent_request("createAccessToken", input)
    grant = await tokens.authorize(context.caller)
    new = TokenRequest(
        type=TokenType(input["type"]),
        actor_urn=check_actor(input["actorUrn"], "actorUrn"),
        name=check_name(input["name"]),
        description=check_description(input.get("description")),
        limits=_limits(input),
    )
    lifetime = _lifetime(input)
    await context.pace_write(grant)
    return await _deliver(context, await tokens.create(grant, new, lifetime, request))


async def derive_access_token(_: Any, info: Info, input: Json) -> Json:
    context, tokens = info.context, info.context.services.core.tokens
    request = context.idempotent_request("deriveAccessToken", input)
    grant = await tokens.authorize_derive(context.caller)
    name, description = check_name(input["name"]), check_description(input.get("description"))
    new, lifetime = DerivedTokenRequest(name, description, _limits(input)), _lifetime(input)
    await context.pace_write(grant)
    return await _deliver(context, await tokens.derive(grant, new, lifetime, request))


async def rotate_access_token(
    _: Any, info: Info, tokenId: str, overlap: str | None = None, grace: str | None = None
) -> Json:
    context, tokens = info.context, info.context.services.core.tokens
    content = {"tokenId": tokenId, "overlap": overlap, "grace": grace}
    request = context.idempotent_request("rotateAccessToken", content)
    grant = await tokens.authorize(context.caller)
    token_id, window = check_token_id(tokenId, "tokenId"), check_rotation_window(overlap, grace)
    await context.pace_write(grant)
    return await _deliver(context, await tokens.rotate(grant, token_id, window, request))


async def update_access_token(_: Any, info: Info, tokenId: str, input: Json) -> TokenRecord:
    context, tokens = info.context, info.context.services.core.tokens
    grant = await tokens.authorize(context.caller)
    token_id, name, description = check_token_id(tokenId, "tokenId"), input.get("name"), input.get("description")
    if name is None and description is None:
        raise invalid("input", "input must have name, description or both.")
    if name is not None:
        check_name(name)
    check_description(description)
    await context.pace_write(grant)
    return await context.with_name(await tokens.update(grant, token_id, name, description))


async def revoke_access_token(_: Any, info: Info, tokenId: str, cascade: bool | None = None) -> bool:
    tokens = info.context.services.core.tokens
    grant = await tokens.authorize(info.context.caller)
    await tokens.revoke(grant, check_token_id(tokenId, "tokenId"), cascade=bool(cascade))
    return True


async def revoke_access_tokens(_: Any, info: Info, input: Json) -> Json:
    context, tokens = info.context, info.context.services.core.tokens
    dry_run = input.get("dryRun") is not False
    async with context.searching:
        grant = await tokens.authorize(context.caller)
        selection = parse_selection(input, context.now)
        search = Search(filters=selection.filters) if selection.ids is None else None
        if search is not None and (dry_run or search.pinned is not None):
            context.search(search)
        if not dry_run:
            receipt = await tokens.revoke_selected(grant, selection, context.time_left())
            return record_json(receipt, "count digest revoked_at", dryRun=False)
        preview = await tokens.preview_revocation(grant, selection, context.time_left())
        if search is not None:
            context.searched(search, preview.seconds)
    names = await context.names(share.actor_urn for share in preview.actors)
    actors = [record_json(share, "actor_urn count", actorName=names.get(share.actor_urn)) for share in preview.actors]
    return {"dryRun": True, "count": preview.count, "actors": actors}


async def list_access_tokens(_: Any, info: Info, input: Json | None = None) -> Json:
    context, service = info.context, info.context.services.core.tokens
    # One search at a time within one deadline, so that a request cannot occupy all threads.
    async with context.searching:
        grant = await service.authorize(context.caller)
        search = _search(input or {}, info)
        context.search(search)
        page = await service.list(grant, search, context.time_left())
        context.searched(search, page.seconds)
        context.show(len(page.rows) if page.json is None else page.json.number)
    tokens = await context.with_names(page.rows) if page.json is None else Fragment(page.json.text)
    return {"start": search.start, "count": search.count, "total": page.total, "tokens": tokens}


async def get_access_token(_: Any, info: Info, id: str) -> TokenRecord:
    tokens, grant = await info.context.authorized(info.context.services.core.tokens)
    return await info.context.with_name(await tokens.get(grant, check_token_id(id, "id")))


async def get_access_token_metadata(_: Any, info: Info, token: str) -> TokenRecord:
    tokens, grant = await info.context.authorized(info.context.services.core.tokens)
    return await info.context.with_name(await tokens.find(grant, _raw_token(token)))


async def _deliver(context: Context, created: CreatedToken) -> Json:
    context.created.append(created.record.id)
    return {"accessToken": created.token.reveal(), "metadata": await context.with_name(created.record)}


def token_readers(clock: Clock) -> dict[str, Reader]:
    """How each field of a token is read from its record."""
    names = (
        "id name description actor_urn owner_urn created_at expires_at last_used_at use_count last_network revoked_at "
        "created_with replaces replaced_by replaced_at"
    )
    paths = {camel_case(name): name for name in names.split()} | {
        "tokenType": "type._value_",
        "scopes": "limits.scopes",
        "audience": "limits.audience",
        "allowedNetworks": "limits.networks",
        "parentId": "parent",
    }
    computed: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "urn": (lambda record: TOKEN_PREFIX + record.id, ("id",)),
        "type": (lambda _: "ACCESS_TOKEN", ()),
        "actorName": (lambda record: record.actor_name, ("actor_urn", "actor_name")),
        "ownerName": (lambda record: record.owner_name, ("owner_urn", "owner_name")),
        "owner": (
            lambda record: user_json(record.owner_urn, record.owner or record.owner_name),
            ("owner_urn", "owner_name", "owner"),
        ),
        "status": (lambda record: record.status(clock()).value, ("revoked_at", "expires_at")),
        "effectiveStatus": (
            lambda record: record.effective_status(clock()),
            ("revoked_at", "expires_at", "actor_urn", "suspended"),
        ),
        "networks": (lambda record: record.networks or (), ("networks",)),
        "usesByDay": (lambda record, days=None: _uses_by_day(record, days, clock()), ("uses",)),
        "awaitsFirstUse": (lambda record: record.grace is not None, ("grace",)),
        "expiresAtOnceUsed": (
            lambda record: record.full_end if record.grace is not None else None,
            ("full_end", "grace"),
        ),
    }
    readers = {name: Reader(TokenRecord, path) for name, path in paths.items()}
    return readers | {name: Reader(TokenRecord, read, fields) for name, (read, fields) in computed.items()}


def _uses_by_day(record: TokenRecord, days: int | None, now: int) -> list[Json]:
    days = check_days(days)
    return days_json(by_day(record.uses or {}, day_of(now) - days + 1, days))


async def allowed_durations(_: Any, info: Info) -> list[str]:
    return [duration.name for duration in info.context.services.core.tokens.allowed_durations]


def _limits(input: Json) -> Limits:
    return check_limits(input.get("scopes"), input.get("audience"), input.get("allowedNetworks"))


def _lifetime(input: Json) -> Lifetime:
    duration = input.get("duration")
    return Lifetime(None if duration is None else Duration[duration], input.get("durationIso"))


def _search(input: Json, info: Info) -> Search:
    memo: Memo | None = getattr(info, "memo", None)
    if memo is not None and memo.parsed is not None:
        kept: Search = memo.parsed
        return kept
    page, sort, filters = page_of(input), input.get("sort"), input.get("filters") or []
    search = Search(
        start=page["start"],
        count=page["count"],
        filters=parse_filters(filters, info.context.now),
        sort=parse_sort(sort["field"], sort.get("order") != "ASCENDING") if sort else BY_END,
        record_fields=getattr(info, "record_fields", None),
        json_fields=_json_fields(getattr(info, "row_names", None)),
    )
    if memo is not None and not depend_on_now(filters):
        memo.parsed = search
    return search


def _json_fields(names: tuple[str, ...] | None) -> tuple[Field, ...] | None:
    """The fields of the rows if the store can return them all as JSON."""
    if names is None or not all(name in _JSON_FIELDS for name in names):
        return None
    return tuple(_JSON_FIELDS[name] for name in names)


def _raw_token(token: str) -> bytes:
    if len(token) > MAX_AUTHORIZATION or not token.isascii():
        raise invalid("token", f"token must be an access token: ASCII, at most {MAX_AUTHORIZATION:,} characters.")
    return token.encode()


_WEEK = EXPIRING_DAYS.index(7)


async def overview(_: Any, info: Info, input: Json | None = None) -> Json:
    context, service = info.context, info.context.services.core.overview
    async with context.searching:
        grant = await service.authorize(context.caller)
        if (input or {}).get("all"):
            found = await service.of_all(grant, context.time_left())
        else:
            context.meter.check()
            found = await service.of_caller(grant, context.time_left())
            context.meter.charge(found.counts.seconds)
    counts = found.counts
    names = await context.names(urn for urn, _ in counts.owners)
    return record_json(
        counts,
        "live never_expiring suspended",
        expiring7Days=counts.expiring[_WEEK],
        unused90Days=found.unused,
        usesByDay=days_json(found.uses),
        expiriesByDay=days_json(found.expiries),
        denialsByDay=None if found.denials is None else days_json(found.denials),
        failedSignInsByDay=None if found.failed_sign_ins is None else days_json(found.failed_sign_ins),
        owners=[{"actorUrn": urn, "actorName": names.get(urn), "count": count} for urn, count in counts.owners],
    )


async def import_status(_: Any, info: Info) -> Json:
    imports, grant = await info.context.authorized(info.context.services.core.imports)
    async with info.context.searching:
        found = await imports.status(grant)
    status = record_json(found, "tokens live never_expiring last_expires_at last_changed_at")
    return status | {"usedIn30Days": found.used_lately, "hasSalt": imports.has_salt}
