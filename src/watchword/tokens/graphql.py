"""GraphQL resolvers for tokens."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orjson import Fragment

from watchword.access.directory_graphql import user_json
from watchword.authority.callers import Grant
from watchword.authority.limits import Limits, check_limits
from watchword.basics.errors import MAX_AUTHORIZATION, Fault, Reason, invalid
from watchword.basics.names import TOKEN_PREFIX, check_actor, check_description, check_name
from watchword.basics.times import Clock, Duration
from watchword.http.graphql.completers import Reader
from watchword.http.graphql.context import Context, Info, page_of
from watchword.http.graphql.fastpath import Memo
from watchword.http.graphql.shapes import Json, Shape, camel_case
from watchword.journal.day_counts import DayCount, by_day, check_days, day_of
from watchword.tokens.bulk_revocation import parse_selection
from watchword.tokens.filters import (
    BY_END,
    JSON_FIELDS,
    Field,
    Search,
    check_effort,
    depend_on_now,
    parse_filters,
    parse_sort,
)
from watchword.tokens.idempotency import HEADER, IdempotentRequest
from watchword.tokens.issue_service import CreatedToken, Lifetime, TokenIssuer
from watchword.tokens.list_service import ACCOUNTS, MANAGE_ALL, VisibleTokens
from watchword.tokens.revoke_service import TokenRevoker
from watchword.tokens.rules import TokenRecord, TokenRequest, TokenType, check_rotation_window, check_token_id

_JSON_FIELDS = {field.word: field for field in JSON_FIELDS}
RECEIPT = Shape("count digest revoked_at")
_SHARE = Shape("actor_urn count actorName@actor_urn")


async def create_access_token(_: Any, info: Info, input: Json) -> Json:
    context, issuer = info.context, info.context.of(TokenIssuer)
    request = _idempotent(context, "createAccessToken", input)
    grant = await context.of(VisibleTokens).authorize(context.caller)
    new = TokenRequest(
        type=TokenType(input["type"]),
        actor_urn=check_actor(input["actorUrn"], "actorUrn"),
        name=check_name(input["name"]),
        description=check_description(input.get("description")),
        limits=_limits(input),
    )
    lifetime = _lifetime(input)
    await _pace_write(context, grant)
    return await _deliver(context, await issuer.create(grant, new, lifetime, request))


async def derive_access_token(_: Any, info: Info, input: Json) -> Json:
    context, issuer = info.context, info.context.of(TokenIssuer)
    request = _idempotent(context, "deriveAccessToken", input)
    grant = await issuer.authorize_derive(context.caller)
    name, description = check_name(input["name"]), check_description(input.get("description"))
    limits, lifetime = _limits(input), _lifetime(input)
    await _pace_write(context, grant)
    return await _deliver(context, await issuer.derive(grant, name, description, limits, lifetime, request))


async def rotate_access_token(
    _: Any, info: Info, tokenId: str, overlap: str | None = None, grace: str | None = None
) -> Json:
    context = info.context
    content = {"tokenId": tokenId, "overlap": overlap, "grace": grace}
    request = _idempotent(context, "rotateAccessToken", content)
    grant = await context.of(VisibleTokens).authorize(context.caller)
    token_id, window = check_token_id(tokenId, "tokenId"), check_rotation_window(overlap, grace)
    await _pace_write(context, grant)
    return await _deliver(context, await context.of(TokenIssuer).rotate(grant, token_id, window, request))


async def update_access_token(_: Any, info: Info, tokenId: str, input: Json) -> TokenRecord:
    context, tokens = info.context, info.context.of(VisibleTokens)
    grant = await tokens.authorize(context.caller)
    token_id, name, description = check_token_id(tokenId, "tokenId"), input.get("name"), input.get("description")
    if name is None and description is None:
        raise invalid("input", "input must have name, description or both.")
    if name is not None:
        check_name(name)
    check_description(description)
    await _pace_write(context, grant)
    return await _with_name(context, await tokens.update(grant, token_id, name, description))


async def revoke_access_token(_: Any, info: Info, tokenId: str, cascade: bool | None = None) -> bool:
    context, revoker = info.context, info.context.of(TokenRevoker)
    grant = await context.of(VisibleTokens).authorize(context.caller)
    await revoker.revoke(grant, check_token_id(tokenId, "tokenId"), cascade=bool(cascade))
    return True


async def revoke_access_tokens(_: Any, info: Info, input: Json) -> Json:
    context, revoker = info.context, info.context.of(TokenRevoker)
    dry_run = input.get("dryRun") is not False
    async with context.searching:
        grant = await context.of(VisibleTokens).authorize(context.caller)
        selection = parse_selection(input, context.now)
        search = Search(filters=selection.filters) if selection.ids is None else None
        if search is not None and (dry_run or search.pinned is not None):
            _charge(context, search)
        if not dry_run:
            receipt = await revoker.revoke_selected(grant, selection, context.time_left())
            return RECEIPT(receipt) | {"dryRun": False}
        preview = await revoker.preview(grant, selection, context.time_left())
        if search is not None:
            _charge_time(context, search, preview.seconds)
    return {"dryRun": True, "count": preview.count, "actors": await context.shown(_SHARE, *preview.actors)}


async def list_access_tokens(_: Any, info: Info, input: Json | None = None) -> Json:
    context, service = info.context, info.context.of(VisibleTokens)
    # One search at a time within one deadline, so that a request cannot occupy all threads.
    async with context.searching:
        grant = await service.authorize(context.caller)
        search = _search(input or {}, info)
        _charge(context, search)
        page = await service.list(grant, search, context.time_left())
        _charge_time(context, search, page.seconds)
        context.show(len(page.rows) if page.json is None else page.json.number)
    tokens = await with_names(context, page.rows) if page.json is None else Fragment(page.json.text)
    return {"start": search.start, "count": search.count, "total": page.total, "tokens": tokens}


async def get_access_token(_: Any, info: Info, id: str) -> TokenRecord:
    tokens, grant = await info.context.authorized(VisibleTokens)
    return await _with_name(info.context, await tokens.get(grant, check_token_id(id, "id")))


async def get_access_token_metadata(_: Any, info: Info, token: str) -> TokenRecord:
    tokens, grant = await info.context.authorized(VisibleTokens)
    return await _with_name(info.context, await tokens.find(grant, _raw_token(token)))


def _idempotent(context: Context, operation: str, content: Json) -> IdempotentRequest | None:
    """For a new token, if the request has a key. A key creates one token."""
    key, context.key = context.key, "" if context.key is not None else None
    if key == "":
        raise Fault(Reason.INVALID_HEADER, f"A request with an {HEADER} may create only one token.", field=HEADER)
    if key is None:
        return None
    return context.of(TokenIssuer).idempotent(context.caller, key, {"operation": operation, **content})


async def _pace_write(context: Context, grant: Grant) -> None:
    """Before a token is created or changed: wait if the caller wrote many. Callers who may write more than their own
    tokens do not wait.
    """
    context.meter.exempt_write()
    if grant.may(MANAGE_ALL) or grant.may(ACCOUNTS):
        return
    wait = context.meter.charge_write()
    if wait:
        await asyncio.sleep(wait)


def _charge(context: Context, search: Search) -> None:
    """Charge a search before it runs."""
    context.efforts[search.pinned is not None] += search.effort
    check_effort(*context.efforts)
    if _is_charged(context, search):
        context.meter.check()


def _charge_time(context: Context, search: Search, seconds: float) -> None:
    if _is_charged(context, search):
        context.meter.charge(seconds)


def _is_charged(context: Context, search: Search) -> bool:
    """Only searches of the caller's own tokens, which need the least privilege."""
    return search.pinned == context.caller.actor and search.effort > 0


async def with_names(context: Context, records: tuple[TokenRecord, ...]) -> tuple[TokenRecord, ...]:
    """The tokens with the names of their actors and owners, their uses and their networks, as far as the document
    selects them: one query for each of these. The records may be projections.
    """
    if not records:
        return records
    reads, fields, ids, tokens = (
        context.reads,
        records[0]._fields,
        [one.id for one in records],
        context.of(VisibleTokens),
    )
    if reads.uses and "uses" in fields:
        uses = await tokens.uses_of(ids)
        records = tuple(record._replace(uses=uses.get(record.id)) for record in records)
    if reads.networks and "networks" in fields:
        networks = await tokens.networks_of(ids)
        records = tuple(record._replace(networks=networks.get(record.id)) for record in records)
    if reads.profiles and "owner" in fields:
        users: Mapping[str, Any] = await context.users(record.owner_urn for record in records)
        records = tuple(record._replace(owner=users.get(record.owner_urn)) for record in records)
    if not reads.names:
        return records
    pairs = [(f"{role}_name", f"{role}_urn") for role in ("actor", "owner") if f"{role}_name" in fields]
    names = await context.names(getattr(record, urn) for record in records for _, urn in pairs)
    if not names:
        return records
    named: list[Any] = [{name: names.get(getattr(record, urn)) for name, urn in pairs} for record in records]
    return tuple(record._replace(**found) for record, found in zip(records, named, strict=True))


async def _with_name(context: Context, record: TokenRecord) -> TokenRecord:
    (named,) = await with_names(context, (record,))
    return named


async def _deliver(context: Context, created: CreatedToken) -> Json:
    context.created.append(created.record.id)
    return {"accessToken": created.token.reveal(), "metadata": await _with_name(context, created.record)}


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


def days_json(days: Iterable[DayCount]) -> list[Json]:
    return [{"day": one.day, "count": one.count} for one in days]


def _uses_by_day(record: TokenRecord, days: int | None, now: int) -> list[Json]:
    days = check_days(days)
    return days_json(by_day(record.uses or {}, day_of(now) - days + 1, days))


async def allowed_durations(_: Any, info: Info) -> list[str]:
    return info.context.of(TokenIssuer).lifetimes.names


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
