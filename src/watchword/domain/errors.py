"""Every error the service returns, in one table.

A fault has a stable reason code, a public message, and a private cause that only the log gets.
The kind of a reason sets its status number, for HTTP and GraphQL:

    400 BAD_REQUEST   401 UNAUTHENTICATED   403 UNAUTHORIZED   404 NOT_FOUND    409 CONFLICT
    429 THROTTLED     500 SERVER_ERROR      503 UNAVAILABLE    and HTTP's own 405, 408, 413, 414, 415
"""

from enum import Enum
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


class Reason(Enum):
    """The stable reason codes, each with its kind and its meaning for users."""

    def __init__(self, word: str, kind: Kind, meaning: str) -> None:
        self.word = word
        self.kind = kind
        self.meaning = meaning

    INVALID_FIELD = (
        "invalid_field",
        BAD_REQUEST,
        "A field has an invalid value; `field` names it.",
    )
    INVALID_JSON = ("invalid_json", BAD_REQUEST, "The body is not a JSON object of the expected form.")
    UNKNOWN_ACTION = ("unknown_action", BAD_REQUEST, "Unknown operation; `actions` lists the known ones.")
    INVALID_DOCUMENT = (
        "invalid_document",
        BAD_REQUEST,
        "The GraphQL document has a syntax error or does not match the schema.",
    )
    DOCUMENT_TOO_COMPLEX = (
        "document_too_complex",
        BAD_REQUEST,
        "The GraphQL document exceeds a limit.",
    )
    TOO_MANY_CHUNKS = ("too_many_chunks", BAD_REQUEST, "The request body arrived in too many small chunks.")
    INVALID_HEADER = ("invalid_header", BAD_REQUEST, "A header is malformed, repeated or too long.")
    MISSING_CREDENTIAL = (
        "missing_credential",
        UNAUTHENTICATED,
        "Missing or unsupported credential.",
    )
    INVALID_TOKEN = ("invalid_token", UNAUTHENTICATED, "The token is invalid.")
    TOKEN_EXPIRED = ("token_expired", UNAUTHENTICATED, "The token has expired.")
    TOKEN_REVOKED = ("token_revoked", UNAUTHENTICATED, "The token was revoked.")
    SESSION_OVER = ("session_over", UNAUTHENTICATED, "The session has ended or does not exist. Sign in again.")
    MISSING_PRIVILEGE = (
        "missing_privilege",
        UNAUTHORIZED,
        "The caller lacks a privilege; `privilege` names it.",
    )
    MISSING_SCOPE = ("missing_scope", UNAUTHORIZED, "The token lacks a required scope; `scope` names it.")
    WRONG_AUDIENCE = (
        "wrong_audience",
        UNAUTHORIZED,
        "The token is limited to other audiences than the required one.",
    )
    FOREIGN_REQUEST = (
        "foreign_request",
        UNAUTHORIZED,
        "Only requests from the console's own pages may use a session.",
    )
    WIDER_THAN_MAKER = (
        "wider_than_maker",
        BAD_REQUEST,
        "The new token would have more rights than the token used to create it; `field` names the right.",
    )
    NO_SUCH_ADDRESS = ("no_such_address", NOT_FOUND, "Nothing is served at this address.")
    TOKEN_NOT_FOUND = (
        "token_not_found",
        NOT_FOUND,
        "The token does not exist, or the caller may not see it.",
    )
    POLICY_NOT_FOUND = ("policy_not_found", NOT_FOUND, "No policy has this urn.")
    GROUP_NOT_FOUND = ("group_not_found", NOT_FOUND, "No group has this urn.")
    ACCOUNT_NOT_FOUND = ("account_not_found", NOT_FOUND, "No service account has this urn.")
    ASPECT_NOT_FOUND = ("aspect_not_found", NOT_FOUND, "Unknown entity or aspect.")
    OPERATION_NOT_FOUND = ("operation_not_found", NOT_FOUND, "No operation has this id.")
    METHOD_NOT_ALLOWED = (
        "method_not_allowed",
        METHOD_NOT_ALLOWED,
        "The address does not support this HTTP method.",
    )
    BODY_TIMEOUT = ("body_timeout", TIMEOUT, "The body did not arrive in time.")
    ALREADY_REVOKED = ("already_revoked", CONFLICT, "The token is already revoked; `revokedAt` is when.")
    ALREADY_REPLACED = (
        "already_replaced",
        CONFLICT,
        "The token was rotated and its successor is in use; `replacedBy` names it.",
    )
    ROTATION_UNDER_WAY = (
        "rotation_under_way",
        CONFLICT,
        "The token's predecessor is still valid (grace period); `until` is its end.",
    )
    NOT_LIVE = (
        "not_live",
        CONFLICT,
        "An expired token or an unused successor cannot be rotated.",
    )
    KEY_REUSED = (
        "idempotency_key_reused",
        CONFLICT,
        "The Idempotency-Key was used with another request or credential, or its token cannot be returned any more.",
    )
    ACTOR_SUSPENDED = ("actor_suspended", CONFLICT, "The actor is suspended; no token can be created for it.")
    NOT_EDITABLE = ("not_editable", CONFLICT, "The service manages this policy or actor itself.")
    DECLARED_ELSEWHERE = (
        "policy_declared_elsewhere",
        CONFLICT,
        "Another policy set declares this policy; `set` names it.",
    )
    ALREADY_EXISTS = ("already_exists", CONFLICT, "The name or urn is already in use.")
    OPERATION_RUNNING = (
        "operation_running",
        CONFLICT,
        "Another operation on the same index is unfinished; `operationId` names it.",
    )
    TOO_LATE_TO_CANCEL = ("too_late_to_cancel", CONFLICT, "The operation has finished or can no longer be cancelled.")
    INDEX_AMBIGUOUS = ("index_ambiguous", CONFLICT, "The name matches several indices. Nothing was changed.")
    INDEX_REFUSED = ("index_refused", CONFLICT, "The search index rejected the request.")
    BODY_TOO_LARGE = ("body_too_large", TOO_LARGE, "The request body is too large.")
    ADDRESS_TOO_LONG = ("address_too_long", URI_TOO_LONG, "The path and query string are too long.")
    NOT_JSON = ("not_json", UNSUPPORTED_MEDIA_TYPE, "The content type is not application/json.")
    PROCESSOR_BUDGET_USED = (
        "processor_budget_used",
        THROTTLED,
        "The actor has used its processor time; retry after `retryAfter` seconds.",
    )
    TOO_MANY_SIGN_INS = (
        "too_many_sign_ins",
        THROTTLED,
        "The token, actor or address has signed in too often; retry after `retryAfter` seconds.",
    )
    TOO_MANY_TOKENS = ("too_many_tokens", THROTTLED, "The actor has reached its maximum number of live tokens.")
    MORE_THAN_ALLOWED_FOR = (
        "more_than_allowed_for",
        CONFLICT,
        "More tokens match than `atMost` allows. Nothing was revoked.",
    )
    TOO_MANY_AT_ONCE = ("too_many_at_once", BAD_REQUEST, "More tokens match than one call can revoke.")
    INTERNAL = ("internal", SERVER_ERROR, "Internal server error; find the request id in the log.")
    STORE_UNAVAILABLE = (
        "store_unavailable",
        UNAVAILABLE,
        "The database did not answer in time. Nothing was changed.",
    )
    OUTCOME_UNKNOWN = (
        "outcome_unknown",
        UNAVAILABLE,
        "The database did not confirm the change in time. Check whether it was made before you retry.",
    )
    INDEX_UNAVAILABLE = ("index_unavailable", UNAVAILABLE, "The search index did not answer in time.")
    INDEX_BLOCKED = ("index_blocked", UNAVAILABLE, "Writes to the index are blocked for a moment. Retry.")
    DEADLINE = ("deadline", UNAVAILABLE, "The search took too long. Narrow it.")
    CONTENDED = ("contended", UNAVAILABLE, "Policies changed concurrently. Retry the request.")
    TOO_MANY_BODIES = (
        "too_many_bodies",
        UNAVAILABLE,
        "Too many large request bodies arrived at the same time, and this one was dropped. Retry.",
    )
    STOPPING = ("stopping", UNAVAILABLE, "The service is stopping.")


class Subject(NamedTuple):
    """The actor and token an error is about. `because` goes to the event only."""

    actor: str
    token_id: str | None
    because: str | None = None


class Fault(Exception):
    """An error for the client. `message` and `details` are public; `why` goes to the log only, `subject` to the event
    only.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        why: str | None = None,
        subject: Subject | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.why = why
        self.subject = subject
        self.details = details

    @property
    def kind(self) -> Kind:
        return self.reason.kind

    @property
    def is_outage(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind is UNAVAILABLE


def invalid(field: str, message: str) -> Fault:
    """The fault for an invalid value. The message names the field and what is allowed."""
    return Fault(Reason.INVALID_FIELD, message, field=field)


class OperatorError(Exception):
    """Stops a start or a command; the message is for the operator."""


class Stale(Exception):
    """A write precondition no longer holds: authorize again. Never reaches a client."""
