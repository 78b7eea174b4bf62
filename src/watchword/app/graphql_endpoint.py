"""The GraphQL endpoint: POST, both media types, errors in GraphQL's shape."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from graphql import ExecutionResult, GraphQLError, GraphQLSchema, GraphQLSyntaxError
from graphql.language import ast
from structlog.typing import FilteringBoundLogger

from watchword.app.metrics import Metrics
from watchword.app.services import Services
from watchword.authority.callers import Caller
from watchword.authority.rejections_service import DENIALS
from watchword.basics.errors import THROTTLED, UNAVAILABLE, Fault, Reason
from watchword.http.errors import JSON, NO_STORE, fault_headers, graphql_error, internal_fault
from watchword.http.graphql.context import Context
from watchword.http.graphql.documents import Documents, InvalidDocument, PreparedDocument, all_nodes, explain
from watchword.http.graphql.fastpath import Cause, Memo
from watchword.http.processor_budget import Meter, ProcessorBudget
from watchword.http.requests import Header, Request, Response, check_media_type, compressed, parse_json
from watchword.journal.preconditions import system_precondition
from watchword.tokens.idempotency import HEADER, check_key

GRAPHQL_RESPONSE = "application/graphql-response+json"
KEY_HEADER = HEADER.lower()
WITHDRAW_PAUSES = (0.1, 0.2, 0.5, 1, 2, 5, 10)
MAX_KEPT, MAX_KEPT_BODY = 1_024, 1_024
"""Parsed requests that a worker keeps, and the bytes of the largest: at most about 20 MiB, usually 4."""
TOKEN_START = b"eyJ"
_GRAPHQL_JSON = ("content-type", GRAPHQL_RESPONSE + "; charset=utf-8")


class ParsedRequest(NamedTuple):
    query: str
    variables: dict[str, Any]
    operation: str | None
    memo: Memo


class ParsedRequests:
    """Parses bodies, and keeps the last small ones that only list tokens, by their bytes. Callers are authenticated and
    authorized each time; nothing that is kept depends on them.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, ParsedRequest] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, body: bytes) -> ParsedRequest:
        kept = self._kept.get(body)
        if kept is None:
            return parse_request(parse_json(body, "an object with query and variables"))
        self._kept.move_to_end(body)
        return kept

    def keep(self, body: bytes, request: ParsedRequest) -> None:
        """For a request whose only field was authorized and has valid arguments that do not depend on the time. A body
        with a token in it, as in a variable that the document does not declare, is not kept.
        """
        if len(body) <= MAX_KEPT_BODY and TOKEN_START not in body:
            self._kept[body] = request
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)


# A short document that begins with such a field is prepared even if the budget is used up, perhaps by a stolen token of
# the same actor.
_TAKES_AWAY = re.compile(
    r"\s*mutation\b[^{}]{0,300}\{\s*(?:\w{1,30}\s*:\s*)?"
    r"(?:revokeAccessTokens?|endSession|offboardActor|updateUserStatus)\b(?s:.{0,600})",
    re.ASCII,
)


@dataclass(slots=True)
class GraphQLEndpoint:
    _schema: GraphQLSchema
    _services: Services
    _logger: FilteringBoundLogger
    _budget: ProcessorBudget
    _metrics: Metrics
    _documents: Documents = field(init=False)
    _requests: ParsedRequests = field(default_factory=ParsedRequests)

    def __post_init__(self) -> None:
        self._documents = Documents(self._schema)
        for cause in Cause:  # metrics show a zero for each
            self._metrics.graphql_fallback(cause, 0)

    async def answer(self, request: Request, caller: Caller) -> Response:
        check_media_type(request)
        body = await request.body()
        meter = Meter(self._budget, caller.actor)
        return await meter.measure(self._answer(request, body, caller, meter))

    async def _answer(self, request: Request, body: bytes, caller: Caller, meter: Meter) -> Response:
        parsed = self._requests.get(body)
        is_new = parsed.memo.parsed is None
        modern = GRAPHQL_RESPONSE in request.header("accept").lower()
        context = Context(caller, self._services, meter, _idempotency_key(request))
        if parsed.query not in self._documents and _TAKES_AWAY.fullmatch(parsed.query):
            await meter.pace()
        try:
            document = self._documents.get(parsed.query, meter)
        except InvalidDocument as invalid:
            with meter:
                errors = [document_error(error, self._schema, invalid.document) for error in invalid.errors]
            self._metrics.error(Reason.INVALID_DOCUMENT)
            return _refusal(errors, 400, modern=modern)
        except Fault as fault:
            if fault.kind is THROTTLED:
                raise
            self._metrics.error(fault.reason)
            return _refusal([graphql_error(fault)], fault.kind.code, modern=modern)
        context.max_row_fields, context.reads = document.max_row_fields, document.reads
        # A mutation may revoke something: it is delayed, but never rejected.
        await meter.admit(document.cost(body), always=document.mutates)
        disconnect = request.watch_disconnect() if document.mutates else None
        try:
            result, fallback = await document.execute(parsed.operation, parsed.variables, context, meter, parsed.memo)
            if fallback is not None:
                self._note_fallback(document, parsed.query, fallback, caller)
            if is_new and parsed.memo.parsed is not None:
                self._requests.keep(body, parsed)
            if context.created and context.key is None and disconnect is not None and disconnect.done():
                await self._withdraw(context)
        finally:
            if disconnect is not None:
                disconnect.cancel()
        response = self._format(result, caller, modern=modern)
        # Only answers of mutations have secrets. Compressed, their length would depend on what secret and input have in
        # common (BREACH).
        return response if document.mutates else await compressed(request, response)

    def _note_fallback(self, document: PreparedDocument, text: str, cause: str, caller: Caller) -> None:
        """Counts every fallback to graphql-core; logs the first of each cached document, by its hash."""
        self._metrics.graphql_fallback(cause)
        if not document.fallback_logged:
            document.fallback_logged = True
            digest = sha256(text.encode()).hexdigest()[:16]
            self._logger.info("graphql fallback", cause=cause, document=digest, request_id=caller.request_id)

    def _format(self, result: ExecutionResult, caller: Caller, *, modern: bool) -> Response:
        if result.data is None and result.errors and all(error.path is None for error in result.errors):
            errors = [document_error(error, self._schema, None) for error in result.errors]
            self._metrics.error(Reason.INVALID_DOCUMENT)
            return _refusal(errors, 400, modern=modern)
        content: dict[str, Any] = {"data": result.data}
        headers: list[Header] = []
        if result.errors:
            content["errors"] = []
            for error in result.errors:
                formatted, fault = field_error(error, self._schema)
                content["errors"].append(formatted)
                self._metrics.error(fault.reason)
                if fault.reason in DENIALS:
                    self._services.rejections.record_denial(caller, _field_name(error), fault)
                if fault.kind is THROTTLED or "retryAfter" in fault.details:
                    headers = fault_headers(fault)
                if fault.cause is not None:
                    self._logger.warning(
                        "fault", reason=fault.reason.word, cause=fault.cause, request_id=caller.request_id
                    )
        return _response(content, 200, *headers, modern=modern)

    async def _withdraw(self, context: Context) -> None:
        """The client disconnected before it received its new tokens: revoke them."""
        precondition = system_precondition("undelivered", context.caller.request_id)
        for token_id in context.created:
            await _retry(partial(self._services.issuer.withdraw, precondition, token_id))
        self._logger.info("withdrawn", tokens=len(context.created), request_id=context.caller.request_id)


async def _retry(action: Callable[[], Awaitable[None]]) -> None:
    """No client waits for this, so there is time to outlast a short outage of the store."""
    for pause in WITHDRAW_PAUSES:
        try:
            return await action()
        except Fault as fault:
            if fault.kind is not UNAVAILABLE:
                raise
            await asyncio.sleep(pause)
    return await action()


def _idempotency_key(request: Request) -> str | None:
    if KEY_HEADER not in request.headers:
        return None
    if request.is_repeated(KEY_HEADER):
        raise Fault(Reason.INVALID_HEADER, f"{HEADER} must be given once.", field=HEADER)
    return check_key(request.header(KEY_HEADER))


def _field_name(error: GraphQLError) -> str:
    """The name of the denied field in the schema, whatever its alias."""
    node = error.nodes[0] if error.nodes else None
    return node.name.value if isinstance(node, ast.FieldNode) else ""


def _refusal(errors: list[dict[str, Any]], status: int, *, modern: bool) -> Response:
    """No operation was executed. With the old media type, clients of DataHub expect `data`; the new one forbids it."""
    return _response({"errors": errors} if modern else {"data": None, "errors": errors}, status, modern=modern)


def _response(content: dict[str, Any], status: int, *headers: Header, modern: bool) -> Response:
    """With the old media type the status is always 200."""
    status, kind = (status, _GRAPHQL_JSON) if modern else (200, JSON)
    return Response(status, [kind, NO_STORE, *headers], orjson.dumps(content))


def parse_request(content: Any) -> ParsedRequest:
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
    return ParsedRequest(query, variables or {}, name or None, Memo())


def document_error(error: GraphQLError, schema: GraphQLSchema, document: ast.DocumentNode | None) -> dict[str, Any]:
    """For a document or variable that does not match the schema."""
    message, name = explain(error.message, schema), _field_of(error, document)
    # DataHub's clients read the word.
    word = "InvalidSyntax" if isinstance(error, GraphQLSyntaxError) else "ValidationError"
    message = message if name is None else f"{name}: {message}"
    return _formatted(error, Fault(Reason.INVALID_DOCUMENT, message, classification=word))


def field_error(error: GraphQLError, schema: GraphQLSchema) -> tuple[dict[str, Any], Fault]:
    """For a field that failed or was denied, or that has an invalid argument."""
    cause = error.original_error
    if cause is None or isinstance(cause, GraphQLError):
        fault = Fault(Reason.INVALID_DOCUMENT, explain(error.message, schema))
    else:
        fault = cause if isinstance(cause, Fault) else internal_fault(cause)
    return _formatted(error, fault), fault


def _formatted(error: GraphQLError, fault: Fault) -> dict[str, Any]:
    content = graphql_error(fault)
    if error.path:
        content["path"] = error.path
    if error.locations:
        content["locations"] = [{"line": place.line, "column": place.column} for place in error.locations]
    return content


def _field_of(error: GraphQLError, document: ast.DocumentNode | None) -> str | None:
    """The name of the argument or field that has an invalid value."""
    wanted = error.nodes[0] if error.nodes else None
    if document is None or not isinstance(wanted, ast.ValueNode):
        return None
    parents = [node for node in all_nodes(document) if isinstance(node, ast.ArgumentNode | ast.ObjectFieldNode)]
    return next((node.name.value for node in parents if node.value is wanted), None)
