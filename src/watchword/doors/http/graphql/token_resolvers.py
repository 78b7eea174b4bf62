"""Tokens in GraphQL: its words turned into the service's, and the answers back. No rule lives here."""

from collections.abc import Callable
from typing import Any

from graphql import GraphQLResolveInfo

from watchword.domain.errors import invalid
from watchword.domain.filters import (
    DEFAULT_COUNT,
    Search,
    Sort,
    check_filter_sizes,
    check_page,
    parse_filter,
    parse_sort,
)
from watchword.domain.lifetimes import Duration
from watchword.domain.ports import Clock
from watchword.domain.tokens import (
    NewToken,
    TokenRecord,
    TokenType,
    check_description,
    check_name,
    check_token_id,
)
from watchword.domain.urns import check_actor, name_of, token_urn
from watchword.doors.http.callers import MAX_AUTHORIZATION
from watchword.doors.http.graphql.endpoint import Context

Json = dict[str, Any]
Info = GraphQLResolveInfo[Context]
Resolvers = dict[str, Callable[..., Any]]


class TokenResolvers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.queries: Resolvers = {
            "listAccessTokens": self._list,
            "getAccessToken": self._get,
            "getAccessTokenMetadata": self._find,
        }
        self.mutations: Resolvers = {"createAccessToken": self._create, "revokeAccessToken": self._revoke}

    async def _create(self, _: Any, info: Info, input: Json) -> Json:  # noqa: A002 - the schema's word
        context = info.context
        duration = input.get("duration")
        created = await context.services.tokens.create(
            context.caller,
            lambda: _new_token(input),
            Duration[duration] if duration is not None else None,
            input.get("durationIso"),
        )
        context.created.append(created.record.id)
        return {"accessToken": created.token.reveal(), "metadata": self._shown(created.record)}

    async def _revoke(self, _: Any, info: Info, tokenId: str) -> bool:  # noqa: N803 - the schema's word
        context = info.context
        await context.services.tokens.revoke(context.caller, lambda: check_token_id(tokenId, "tokenId"))
        return True

    async def _list(self, _: Any, info: Info, input: Json | None = None) -> Json:  # noqa: A002
        context = info.context
        # One search of a request at a time, all of them within one deadline: nobody takes all threads with one request.
        async with context.searching:
            search, page = await context.services.tokens.list(
                context.caller, lambda: _search(input or {}), context.time_left()
            )
        return {
            "start": search.start,
            "count": search.count,
            "total": page.total,
            "tokens": [self._shown(record) for record in page.rows],
        }

    async def _get(self, _: Any, info: Info, id: str) -> Json:  # noqa: A002
        context = info.context
        return self._shown(await context.services.tokens.get(context.caller, lambda: check_token_id(id, "id")))

    async def _find(self, _: Any, info: Info, token: str) -> Json:
        context = info.context
        record = await context.services.tokens.find(context.caller, lambda: _raw_token(token))
        return self._shown(record)

    def _shown(self, record: TokenRecord) -> Json:
        return {
            "urn": token_urn(record.id),
            "type": "ACCESS_TOKEN",
            "id": record.id,
            "name": record.name,
            "description": record.description,
            "actorUrn": record.actor_urn,
            "ownerUrn": record.owner_urn,
            "owner": shown_user(record.owner_urn),
            "tokenType": record.type.value,
            "status": record.status(self._clock()).value,
            "createdAt": record.created_at,
            "expiresAt": record.expires_at,
            "lastUsedAt": record.last_used_at,
            "revokedAt": record.revoked_at,
        }


def shown_user(urn: str) -> Json:
    return {"urn": urn, "type": "CORP_USER", "username": name_of(urn), "exists": True}


def page_of(input: Json) -> tuple[int, int]:  # noqa: A002
    """Where a page starts and how long it is; an explicit null is as good as nothing."""
    start, count = input.get("start"), input.get("count")
    start, count = 0 if start is None else start, DEFAULT_COUNT if count is None else count
    check_page(start, count)
    return start, count


def _new_token(input: Json) -> NewToken:  # noqa: A002
    return NewToken(
        type=TokenType(input["type"]),
        actor_urn=check_actor(input["actorUrn"], "actorUrn"),
        name=check_name(input["name"]),
        description=check_description(input.get("description")),
    )


def _search(input: Json) -> Search:  # noqa: A002
    start, count = page_of(input)
    filters = input.get("filters") or []
    check_filter_sizes([len(f.get("values") or ()) for f in filters])
    sort = input.get("sort")
    return Search(
        start=start,
        count=count,
        filters=tuple(
            parse_filter(
                f"filters[{index}]",
                f["field"],
                f.get("condition"),
                f.get("value"),
                f.get("values"),
                bool(f.get("negated")),
            )
            for index, f in enumerate(filters)
        ),
        sort=parse_sort(sort["field"], sort.get("order") != "ASCENDING") if sort else Sort(),
    )


def _raw_token(token: str) -> bytes:
    if len(token) > MAX_AUTHORIZATION or not token.isascii():
        raise invalid("token", f"token must be an access token: ASCII, at most {MAX_AUTHORIZATION:,} characters.")
    return token.encode()
