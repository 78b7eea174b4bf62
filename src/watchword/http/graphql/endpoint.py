"""The GraphQL endpoint: one POST, both media types, every error in GraphQL's own shape."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson
from graphql import ExecutionResult, FieldNode, GraphQLError, GraphQLSchema
from structlog.typing import FilteringBoundLogger

from watchword.domain.actors import Caller, system_precondition
from watchword.domain.errors import THROTTLED, UNAVAILABLE, Fault, Reason
from watchword.domain.filters import SEARCH_SECONDS, Search, check_effort, check_shown
from watchword.domain.idempotency import HEADER, check_key
from watchword.http.faults import JSON, NO_STORE, fault_headers, graphql_error
from watchword.http.graphql.budget import Meter, ProcessorBudget
from watchword.http.graphql.documents import Documents, InvalidDocument
from watchword.http.graphql.errors import failed, refused
from watchword.http.requests import Header, Request, Response
from watchword.service.accounts import Accounts
from watchword.service.audit import Audit
from watchword.service.bulk_revocation import Endings
from watchword.service.minting import UNKEYED
from watchword.service.minting import Request as MintRequest
from watchword.service.offboarding import Offboarding
from watchword.service.operations import Operations
from watchword.service.policies import Policies
from watchword.service.refusals import Refusals
from watchword.service.tokens import Tokens

GRAPHQL_RESPONSE = "application/graphql-response+json"
KEY_HEADER = HEADER.lower()
MAX_MEMBERS = 12_000
"""Of lists and objects: room for the ids of as many tokens as are ended at once."""
MAX_ESCAPES = 60_000
"""Some clients write all but ASCII as escapes."""
WITHDRAW_PAUSES = (0.1, 0.2, 0.5, 1, 2, 5, 10)
THROTTLED_SECONDS = 0.2
"""For which the answer is held back when a budget is used up."""
_GRAPHQL_JSON = ("content-type", GRAPHQL_RESPONSE + "; charset=utf-8")


@dataclass(frozen=True, slots=True)
class Services:
    tokens: Tokens
    endings: Endings
    accounts: Accounts
    policies: Policies
    audit: Audit
    operations: Operations
    refusals: Refusals
    offboarding: Offboarding


@dataclass(slots=True)
class Context:
    """What resolvers see of a request."""

    caller: Caller
    services: Services
    meter: Meter
    key: str | None = None
    """The Idempotency-Key it came with: for one token."""
    created: list[str] = field(default_factory=list)
    """Ids of the tokens this request made: ended again if nobody is there to take them, nor could ask again."""
    _searching: asyncio.Lock | None = None
    _began: float = field(default_factory=time.monotonic)
    widest: int = 1
    """How many fields a row of a list may have."""
    _shown: int = 0
    _effort: int = 0
    _pinned_effort: int = 0

    @property
    def searching(self) -> asyncio.Lock:
        """Held by a search: a request makes one at a time."""
        if self._searching is None:
            self._searching = asyncio.Lock()
        return self._searching

    def request(self, operation: str, content: dict[str, Any]) -> MintRequest:
        """What a token is asked for with; the key serves once."""
        key, self.key = self.key, "" if self.key is not None else None
        if key == "":
            raise Fault(Reason.INVALID_HEADER, f"Under an {HEADER} a request makes one token.", field=HEADER)
        if key is None:
            return UNKEYED
        return MintRequest(key, {"operation": operation, **content}, self.caller.credential)

    def time_left(self) -> float:
        """Seconds that searches may still take."""
        return max(0.0, self._began + SEARCH_SECONDS - time.monotonic())

    def search(self, search: Search) -> None:
        """All tokens, or those it is pinned to, are about to be gone through."""
        if search.pinned is None:
            self._effort += search.effort
        else:
            self._pinned_effort += search.effort
        check_effort(self._effort, self._pinned_effort)
        if self._is_charged(search):
            self.meter.check()

    def searched(self, search: Search, seconds: float) -> None:
        """So long it took the store."""
        if self._is_charged(search):
            self.meter.charge(seconds)

    def _is_charged(self, search: Search) -> bool:
        """Searches of one's own tokens need no privilege to speak of."""
        return search.pinned == self.caller.actor and search.effort > 0

    def show(self, rows: int) -> None:
        """So many rows of a list are about to be shown."""
        self._shown += rows * self.widest
        check_shown(self._shown)


class Ask(NamedTuple):
    query: str
    variables: dict[str, Any]
    operation_name: str | None


class GraphQLEndpoint:
    def __init__(
        self,
        schema: GraphQLSchema,
        services: Services,
        logger: FilteringBoundLogger,
        budget: ProcessorBudget,
        *,
        planned: bool = True,
    ) -> None:
        """Without plans, for comparison, graphql-core executes everything."""
        self._schema = schema
        self._services = services
        self._logger = logger
        self._documents = Documents(schema)
        self._budget = budget
        self._planned = planned

    async def answer(self, request: Request, caller: Caller) -> Response:
        meter = Meter(self._budget, caller.actor)
        try:
            return await self._answer(request, caller, meter)
        finally:
            # A client that retries at once would still cost as much as any other request.
            if meter.has_refused:
                await asyncio.sleep(THROTTLED_SECONDS)

    async def _answer(self, request: Request, caller: Caller, meter: Meter) -> Response:
        check_media_type(request)
        ask = parse_ask(await request.body())
        modern = GRAPHQL_RESPONSE in request.header("accept").lower()
        context = Context(caller, self._services, meter, _key(request))
        try:
            prepared = self._documents.get(ask.query, meter)
        except InvalidDocument as invalid:
            with meter:
                errors = [refused(error, self._schema, invalid.document) for error in invalid.errors]
            return _response({"errors": errors}, 400, modern=modern)
        except Fault as fault:
            if fault.kind is THROTTLED:
                raise
            return _response({"errors": [graphql_error(fault)]}, fault.kind.code, modern=modern)
        context.widest = prepared.widest
        if prepared.mutates:
            request.watch()
        try:
            result = await prepared.plans.execute(
                ask.operation_name, ask.variables, context, planned=self._planned, metered=meter
            )
            if context.created and context.key is None and request.is_gone:
                await self._withdraw(context)
        finally:
            request.unwatch()
        return self._formatted(result, caller, modern=modern)

    def _formatted(self, result: ExecutionResult, caller: Caller, *, modern: bool) -> Response:
        if result.data is None and result.errors and all(error.path is None for error in result.errors):
            errors = [refused(error, self._schema, None) for error in result.errors]
            return _response({"errors": errors}, 400, modern=modern)
        content: dict[str, Any] = {"data": result.data}
        headers: list[Header] = []
        if result.errors:
            content["errors"] = []
            for error in result.errors:
                shown, fault = failed(error, self._schema)
                content["errors"].append(shown)
                if fault.reason is Reason.MISSING_PRIVILEGE:
                    self._services.refusals.denied(caller, _asked(error), fault)
                if fault.kind is THROTTLED:
                    headers = fault_headers(fault)
                if fault.why is not None:
                    self._logger.warning("fault", reason=fault.reason.word, why=fault.why, request_id=caller.request_id)
        return _response(content, 200, *headers, modern=modern)

    async def _withdraw(self, context: Context) -> None:
        """The caller went away before its tokens could be handed over: nobody holds them, so nobody may."""
        precondition = system_precondition("undelivered", context.caller.request_id)
        for token_id in context.created:
            await _insist(partial(self._services.tokens.withdraw, precondition, token_id))
        self._logger.info("withdrawn", tokens=len(context.created), request_id=context.caller.request_id)


async def _insist(deed: Callable[[], Awaitable[None]]) -> None:
    """Nobody waits for this answer, so there is time to outlast a store that is away for a moment."""
    for pause in WITHDRAW_PAUSES:
        try:
            return await deed()
        except Fault as fault:
            if fault.kind is not UNAVAILABLE:
                raise
            await asyncio.sleep(pause)
    return await deed()


def _key(request: Request) -> str | None:
    if KEY_HEADER not in request.headers:
        return None
    if request.is_repeated(KEY_HEADER):
        raise Fault(Reason.INVALID_HEADER, f"{HEADER} must be given once.", field=HEADER)
    return check_key(request.header(KEY_HEADER))


def _asked(error: GraphQLError) -> str:
    """The name of the field that was refused, whatever the document calls it."""
    node = error.nodes[0] if error.nodes else None
    return node.name.value if isinstance(node, FieldNode) else ""


def _response(content: dict[str, Any], status: int, *headers: Header, modern: bool) -> Response:
    """A GraphQL answer: 200 for the old media type, the true status for the new one."""
    body = orjson.dumps(content)
    if modern:
        return Response(status, [_GRAPHQL_JSON, NO_STORE, *headers], body)
    return Response(200, [JSON, NO_STORE, *headers], body)


def check_media_type(request: Request) -> None:
    kind, _, parameters = request.header("content-type").lower().partition(";")
    encoding = request.header("content-encoding").lower()
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != "application/json" or charset not in {"", "charset=utf-8"} or encoding not in {"", "identity"}:
        raise Fault(Reason.NOT_JSON, "Send the body as Content-Type: application/json, in UTF-8, uncompressed.")


def read_json(body: bytes, what: str) -> Any:
    """What the body holds. Bounded by what would make it many, wherever in it that stands: objects cost far more than
    the bytes they come in.
    """
    opened = body.count(b"[") + body.count(b"{")
    is_closed = opened <= MAX_MEMBERS or opened == body.count(b"]") + body.count(b"}")
    if is_closed and opened + body.count(b",") > MAX_MEMBERS:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_MEMBERS:,} commas and opening brackets.")
    if body.count(b"\\") > MAX_ESCAPES:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_ESCAPES:,} backslashes.")
    try:
        if is_closed:
            return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    raise Fault(Reason.INVALID_JSON, f"The body must be JSON: {what}.")


def parse_ask(body: bytes) -> Ask:
    content = read_json(body, "an object with query and variables")
    if not isinstance(content, dict):
        raise Fault(Reason.INVALID_JSON, "The body must be a JSON object with query and variables.")
    query, variables, name = content.get("query"), content.get("variables"), content.get("operationName")
    if not isinstance(query, str):
        raise Fault(Reason.INVALID_JSON, "query must be a string that holds a GraphQL document.", field="query")
    if variables is not None and not isinstance(variables, dict):
        raise Fault(Reason.INVALID_JSON, "variables must be an object.", field="variables")
    if not isinstance(content.get("extensions"), dict | None):
        raise Fault(Reason.INVALID_JSON, "extensions must be an object.", field="extensions")
    if name is not None and not isinstance(name, str):
        raise Fault(Reason.INVALID_JSON, "operationName must be a string.", field="operationName")
    return Ask(query, variables or {}, name or None)
