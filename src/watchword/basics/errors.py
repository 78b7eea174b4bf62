"""Every error the service returns, in one table.

A fault has a stable reason code, a public message, and a private cause that only the log gets.
The kind of a reason sets its status number, for HTTP and GraphQL:

    400 BAD_REQUEST   401 UNAUTHENTICATED   403 UNAUTHORIZED   404 NOT_FOUND    409 CONFLICT
    429 THROTTLED     500 SERVER_ERROR      503 UNAVAILABLE    and HTTP's own 405, 408, 413, 414, 415
"""

from collections.abc import Iterable, Sequence, Sized
from enum import Enum, unique
from typing import Any, NamedTuple


class Kind(NamedTuple):
    code: int
    type: str


BAD_REQUEST = Kind(400, "BAD_REQUEST")
UNAUTHENTICATED = Kind(401, "UNAUTHENTICATED")
UNAUTHORIZED = Kind(403, "UNAUTHORIZED")
NOT_FOUND = Kind(404, "NOT_FOUND")
METHOD_NOT_ALLOWED = Kind(405, "METHOD_NOT_ALLOWED")
TIMEOUT = Kind(408, "TIMEOUT")
CONFLICT = Kind(409, "CONFLICT")
TOO_LARGE = Kind(413, "TOO_LARGE")
URI_TOO_LONG = Kind(414, "URI_TOO_LONG")
UNSUPPORTED_MEDIA_TYPE = Kind(415, "UNSUPPORTED_MEDIA_TYPE")
THROTTLED = Kind(429, "THROTTLED")
SERVER_ERROR = Kind(500, "SERVER_ERROR")
UNAVAILABLE = Kind(503, "UNAVAILABLE")
MAX_AUTHORIZATION = 8_192
AUTHORIZATION_TOO_LONG = f"The Authorization header must have at most {MAX_AUTHORIZATION:,} characters."


@unique
class Reason(Enum):
    """The reason codes, each with its kind and its meaning for users. The code is the name in lower case."""

    def __init__(self, kind: Kind, meaning: str) -> None:
        self.word = self.name.lower()
        self.kind = kind
        self.meaning = meaning

    INVALID_FIELD = BAD_REQUEST, "A field has an invalid value; `field` names it."
    INVALID_JSON = BAD_REQUEST, "The body is not a JSON object of the expected form."
    UNKNOWN_ACTION = BAD_REQUEST, "Unknown operation; `actions` lists the known ones."
    INVALID_DOCUMENT = BAD_REQUEST, "The GraphQL document has a syntax error or does not match the schema."
    DOCUMENT_TOO_COMPLEX = BAD_REQUEST, "The GraphQL document exceeds a limit."
    TOO_MANY_CHUNKS = BAD_REQUEST, "The request body arrived in too many small chunks."
    INVALID_HEADER = BAD_REQUEST, "A header is malformed, repeated or too long."
    INVALID_CLIENT = BAD_REQUEST, "Device authorization: the client is not one that a setting names."
    INVALID_SCOPE = BAD_REQUEST, "Device authorization: a scope is malformed."
    UNSUPPORTED_GRANT_TYPE = BAD_REQUEST, "The token endpoint has no such grant type."
    INVALID_GRANT = BAD_REQUEST, "The device code is unknown, used, or of another client."
    AUTHORIZATION_PENDING = BAD_REQUEST, "The terminal is not approved yet."
    SLOW_DOWN = BAD_REQUEST, "The terminal polled too fast; wait five seconds longer from now on."
    ACCESS_DENIED = (
        BAD_REQUEST,
        "The terminal was denied, or its approver signed out or may not create the token any more.",
    )
    EXPIRED_TOKEN = BAD_REQUEST, "The device code has expired."
    MISSING_CREDENTIAL = UNAUTHENTICATED, "Missing or unsupported credential."
    INVALID_TOKEN = UNAUTHENTICATED, "The token is invalid."
    TOKEN_EXPIRED = UNAUTHENTICATED, "The token has expired."
    TOKEN_REVOKED = UNAUTHENTICATED, "The token was revoked."
    SESSION_OVER = UNAUTHENTICATED, "The session has ended or does not exist. Sign in again."
    INVALID_SIGN_IN = (
        BAD_REQUEST,
        "The sign-in did not begin in this browser, took too long, or its answer is not valid.",
    )
    SIGN_IN_REFUSED = UNAUTHORIZED, "The claims do not identify an allowed user."
    MISSING_PRIVILEGE = UNAUTHORIZED, "The caller lacks a privilege; `privilege` names it."
    MISSING_SCOPE = (
        UNAUTHORIZED,
        "The token lacks a required scope, or would name one that its actor does not hold; `scope` names it.",
    )
    LIMITED_TOKEN = UNAUTHORIZED, "A token that is limited or derived may not be used for this."
    WRONG_AUDIENCE = UNAUTHORIZED, "The token is limited to other audiences than the required one."
    WRONG_RESOURCE = UNAUTHENTICATED, "The token's audience does not contain the resource that the address names."
    UNKNOWN_RESOURCE = UNAUTHORIZED, "No policy file declares the resource that the address names."
    FOREIGN_REQUEST = UNAUTHORIZED, "Only requests from the console's own pages may use a session."
    WIDER_THAN_MAKER = (
        BAD_REQUEST,
        "The new token would exceed the limits of the token used to create it; `field` says how.",
    )
    NO_SUCH_ADDRESS = NOT_FOUND, "Nothing is served at this address."
    TOKEN_NOT_FOUND = NOT_FOUND, "The token does not exist, or the caller may not see it."
    POLICY_NOT_FOUND = NOT_FOUND, "No policy has this urn."
    GROUP_NOT_FOUND = NOT_FOUND, "No group has this urn."
    ACCOUNT_NOT_FOUND = NOT_FOUND, "No service account has this urn."
    SESSION_NOT_FOUND = NOT_FOUND, "The session does not exist, or the caller may not see it."
    ASPECT_NOT_FOUND = NOT_FOUND, "Unknown entity or aspect."
    OPERATION_NOT_FOUND = NOT_FOUND, "No operation has this id."
    RULE_NOT_FOUND = NOT_FOUND, "No retention rule is for this series."
    HOLD_NOT_FOUND = NOT_FOUND, "No hold is on this series."
    RUN_NOT_FOUND = NOT_FOUND, "No retention run has this number."
    WEBHOOK_NOT_FOUND = NOT_FOUND, "No webhook has this id."
    DELIVERY_NOT_FOUND = NOT_FOUND, "No delivery of the webhook has this id."
    DEVICE_NOT_FOUND = NOT_FOUND, "No terminal is waiting with this user code."
    METHOD_NOT_ALLOWED = METHOD_NOT_ALLOWED, "The address does not support this HTTP method."
    BODY_TIMEOUT = TIMEOUT, "The body did not arrive in time."
    ALREADY_REVOKED = CONFLICT, "The token is already revoked; `revokedAt` is when."
    ALREADY_REPLACED = CONFLICT, "The token was rotated and its successor is in use; `replacedBy` names it."
    ROTATION_UNDER_WAY = CONFLICT, "The token's predecessor is still valid (grace period); `until` is its end."
    NOT_LIVE = CONFLICT, "An expired token or an unused successor cannot be rotated."
    IDEMPOTENCY_KEY_REUSED = CONFLICT, "The key was used with another request or credential, or its token has ended."
    ACTOR_SUSPENDED = CONFLICT, "The actor is suspended; no token can be created for it."
    NOT_EDITABLE = CONFLICT, "The service manages this policy or actor itself."
    POLICY_DECLARED_ELSEWHERE = CONFLICT, "Another policy set declares this; `set` names it."
    POLICY_CHANGED = CONFLICT, "The policy has another revision than the given one: someone changed it meanwhile."
    IDENTITY_LINKED = CONFLICT, "The identity is linked to another actor; `actorUrn` names it."
    ALREADY_EXISTS = CONFLICT, "The name or urn is already in use."
    OPERATION_RUNNING = CONFLICT, "Another operation on the same index is unfinished; `operationId` names it."
    SERIES_HELD = (
        CONFLICT,
        "A hold is on the series; `setBy`, `setAt` and `holdReason` say whose, since when and why.",
    )
    HOLD_DECLARED = CONFLICT, "The retention rule of the series declares the hold; it ends with the rule's `hold`."
    TOO_MANY_RULES = CONFLICT, "There would be more retention rules than are allowed."
    TOO_LATE_TO_CANCEL = CONFLICT, "The operation has finished or can no longer be cancelled."
    RUN_NOT_WAITING = CONFLICT, "The retention run does not wait for approval, or its rule has changed."
    RUN_GREW = CONFLICT, "The retention run would remove another number of rows; `rows` has it."
    WEBHOOK_DISABLED = CONFLICT, "The webhook is disabled. Enable it first."
    QUEUE_FULL = CONFLICT, "Too many deliveries of the webhook wait already."
    INDEX_AMBIGUOUS = CONFLICT, "The name matches several indices. Nothing was changed."
    INDEX_REFUSED = CONFLICT, "The search index rejected the request."
    BODY_TOO_LARGE = TOO_LARGE, "The request body is too large."
    ADDRESS_TOO_LONG = URI_TOO_LONG, "The path and query string are too long."
    NOT_JSON = UNSUPPORTED_MEDIA_TYPE, "The content type is not application/json."
    PROCESSOR_BUDGET_USED = THROTTLED, "The actor has used its processor time; retry after `retryAfter` seconds."
    TOO_MANY_CHANGES = THROTTLED, "The actor has made its changes for now; retry after `retryAfter` seconds."
    TOO_MANY_SIGN_INS = THROTTLED, "The token, actor or address signed in too often; retry after `retryAfter` seconds."
    TOO_MANY_CODES = (
        THROTTLED,
        "Too many device codes are open, or too many wrong ones were tried; retry after `retryAfter` seconds.",
    )
    TOO_MANY_WAITING = THROTTLED, "Too many requests wait for events; retry after `retryAfter` seconds."
    TOO_MANY_WEBHOOKS = THROTTLED, "There are as many webhooks as there may be."
    TOO_MANY_TOKENS = THROTTLED, "The actor has reached its maximum number of live tokens."
    MORE_THAN_ALLOWED_FOR = CONFLICT, "More tokens match than `atMost` allows. Nothing was revoked."
    TOO_MANY_AT_ONCE = BAD_REQUEST, "More tokens match than one call can revoke."
    INTERNAL = SERVER_ERROR, "Internal server error; find the request id in the log."
    STORE_UNAVAILABLE = UNAVAILABLE, "The database did not answer in time. Nothing was changed."
    OUTCOME_UNKNOWN = UNAVAILABLE, "The database did not confirm the change in time. Check before you retry."
    PROVIDER_UNAVAILABLE = UNAVAILABLE, "The identity provider did not answer, or not as expected."
    INDEX_UNAVAILABLE = UNAVAILABLE, "The search index did not answer in time."
    INDEX_BLOCKED = UNAVAILABLE, "Writes to the index are blocked for a moment. Retry."
    CLOCK_JUMPED = UNAVAILABLE, "The server's clock jumped ahead; no retention run is planned for an hour."
    DEADLINE = UNAVAILABLE, "The search took too long. Narrow it."
    CONTENDED = UNAVAILABLE, "Policies changed concurrently. Retry the request."
    TOO_MANY_BODIES = UNAVAILABLE, "Too many large request bodies arrived at the same time. Retry."
    STOPPING = UNAVAILABLE, "The service is stopping."


class Subject(NamedTuple):
    """The actor and token an error is about. `cause` goes to the event only."""

    actor: str
    token_id: str | None
    cause: str | None = None


class Fault(Exception):
    """An error for the client. `message` and `details` are public; `cause` goes to the log only, `subject` to the event
    only.
    """

    def __init__(
        self, reason: Reason, message: str, *, cause: str | None = None, subject: Subject | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.cause = cause
        self.subject = subject
        self.details = details

    @property
    def kind(self) -> Kind:
        return self.reason.kind

    @property
    def for_log(self) -> str:
        return f"{self.message} {self.cause or ''}".strip()

    @property
    def is_outage(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind is UNAVAILABLE


def invalid(field: str, message: str) -> Fault:
    """The fault for an invalid value. The message names the field and what is allowed."""
    return Fault(Reason.INVALID_FIELD, message, field=field)


def check_whole(value: object, field: str, least: int, most: int, allowed: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(field, f"{field} must be {allowed or f'a whole number from {least:,} to {most:,}'}.")
    return value


def check_length(entries: Sized, field: str, most: int) -> None:
    if len(entries) > most:
        raise invalid(field, f"{field} may have at most {most:,} entries.")


def check_known(names: Iterable[str], known: Sequence[str], where: str = "") -> None:
    """Reject unknown fields: a misspelt one must not be ignored."""
    for name in names:
        if name not in known:
            raise invalid(where + name[:80], f"There is no field {name[:80]!r}; there are: {', '.join(known)}.")


def too_often(reason: Reason, millis: int, message: str) -> Fault:
    """`millis`: the wait until the next try is allowed."""
    seconds = max(-(-millis // 1000), 1)
    return Fault(reason, f"{message} Try again in {seconds:,} s.", retryAfter=seconds)


class OperatorError(Exception):
    """Stops a start or a command; the message is for the operator."""


class Stale(Exception):
    """A write precondition no longer holds: authorize again. Never reaches a client."""
