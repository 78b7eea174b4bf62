"""Everything that can go wrong, in one table.

A fault has a stable word (its reason), a public sentence, and a private why that never leaves the process.
The kind of a reason fixes its number, for HTTP and GraphQL alike:

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
    """The stable words. Each carries its kind and what it tells a user."""

    def __init__(self, word: str, kind: Kind, meaning: str) -> None:
        self.word = word
        self.kind = kind
        self.meaning = meaning

    INVALID_FIELD = (
        "invalid_field",
        BAD_REQUEST,
        "A field has a value that is not allowed; `field` names it.",
    )
    INVALID_JSON = ("invalid_json", BAD_REQUEST, "The body is not a JSON object of the expected form.")
    UNKNOWN_ACTION = ("unknown_action", BAD_REQUEST, "There is no operation of this name; `actions` lists them.")
    INVALID_DOCUMENT = (
        "invalid_document",
        BAD_REQUEST,
        "The GraphQL document does not parse or does not fit the schema.",
    )
    DOCUMENT_TOO_COMPLEX = (
        "document_too_complex",
        BAD_REQUEST,
        "The GraphQL document is over one of the limits.",
    )
    TOO_MANY_CHUNKS = ("too_many_chunks", BAD_REQUEST, "The body came in too many small chunks.")
    INVALID_HEADER = ("invalid_header", BAD_REQUEST, "A header is malformed, repeated or too long.")
    MISSING_CREDENTIAL = (
        "missing_credential",
        UNAUTHENTICATED,
        "No credential came that this address believes.",
    )
    INVALID_TOKEN = ("invalid_token", UNAUTHENTICATED, "The token is not one this service accepts.")
    TOKEN_EXPIRED = ("token_expired", UNAUTHENTICATED, "The token was real and has expired.")
    TOKEN_REVOKED = ("token_revoked", UNAUTHENTICATED, "The token was real and has been revoked.")
    SESSION_OVER = ("session_over", UNAUTHENTICATED, "The session has ended, or never was one: sign in again.")
    MISSING_PRIVILEGE = (
        "missing_privilege",
        UNAUTHORIZED,
        "The caller lacks a privilege; `privilege` names it.",
    )
    MISSING_SCOPE = ("missing_scope", UNAUTHORIZED, "The token lacks a scope that is required; `scope` names it.")
    WRONG_AUDIENCE = (
        "wrong_audience",
        UNAUTHORIZED,
        "The token is limited to an audience that does not include the one asked for.",
    )
    FOREIGN_REQUEST = (
        "foreign_request",
        UNAUTHORIZED,
        "The request is not one that the console's own pages make, and only those may use a session.",
    )
    WIDER_THAN_MAKER = (
        "wider_than_maker",
        BAD_REQUEST,
        "The token asked for would be allowed more than the one it is asked with; `field` names what.",
    )
    NO_SUCH_ADDRESS = ("no_such_address", NOT_FOUND, "Nothing is served at this address.")
    TOKEN_NOT_FOUND = (
        "token_not_found",
        NOT_FOUND,
        "There is no such token, or it is not the caller's to know of.",
    )
    POLICY_NOT_FOUND = ("policy_not_found", NOT_FOUND, "There is no policy with this urn.")
    GROUP_NOT_FOUND = ("group_not_found", NOT_FOUND, "There is no group with this urn.")
    ACCOUNT_NOT_FOUND = ("account_not_found", NOT_FOUND, "There is no service account with this urn.")
    ASPECT_NOT_FOUND = ("aspect_not_found", NOT_FOUND, "No index of this entity and aspect is known.")
    OPERATION_NOT_FOUND = ("operation_not_found", NOT_FOUND, "There is no operation with this id.")
    METHOD_NOT_ALLOWED = (
        "method_not_allowed",
        METHOD_NOT_ALLOWED,
        "The address does not answer this method.",
    )
    BODY_TIMEOUT = ("body_timeout", TIMEOUT, "The body did not arrive in time.")
    ALREADY_REVOKED = ("already_revoked", CONFLICT, "The token was revoked before; `revokedAt` says when.")
    ALREADY_REPLACED = (
        "already_replaced",
        CONFLICT,
        "The token was rotated, and its successor is in use; `replacedBy` names it.",
    )
    ROTATION_UNDER_WAY = (
        "rotation_under_way",
        CONFLICT,
        "The token that it replaced lives on for its grace; `until` says how long.",
    )
    NOT_LIVE = ("not_live", CONFLICT, "The token has ended, or was never used, and cannot be rotated.")
    KEY_REUSED = (
        "idempotency_key_reused",
        CONFLICT,
        "The Idempotency-Key cannot give its token again: other content or credential, ended, or its signing key gone.",
    )
    ACTOR_SUSPENDED = ("actor_suspended", CONFLICT, "The actor is suspended and can be given no token.")
    NOT_EDITABLE = ("not_editable", CONFLICT, "The policy or actor is kept by the service itself.")
    DECLARED_ELSEWHERE = (
        "policy_declared_elsewhere",
        CONFLICT,
        "The policy is declared by another policy set; `set` names it.",
    )
    ALREADY_EXISTS = ("already_exists", CONFLICT, "Something of this name exists.")
    OPERATION_RUNNING = (
        "operation_running",
        CONFLICT,
        "An operation on the same index is not over yet; `operationId` names it.",
    )
    TOO_LATE_TO_CANCEL = ("too_late_to_cancel", CONFLICT, "The operation is over, or past the point of no return.")
    INDEX_AMBIGUOUS = ("index_ambiguous", CONFLICT, "The name stands for several indices, so none of them is touched.")
    INDEX_REFUSED = ("index_refused", CONFLICT, "The search index answered that this cannot be done.")
    BODY_TOO_LARGE = ("body_too_large", TOO_LARGE, "The body is larger than this address takes.")
    ADDRESS_TOO_LONG = ("address_too_long", URI_TOO_LONG, "The path and query are longer than any address here.")
    NOT_JSON = ("not_json", UNSUPPORTED_MEDIA_TYPE, "The content type is not application/json.")
    PROCESSOR_BUDGET_USED = (
        "processor_budget_used",
        THROTTLED,
        "The actor's processor time is used up; `retryAfter` says in how many seconds to try again.",
    )
    TOO_MANY_SIGN_INS = (
        "too_many_sign_ins",
        THROTTLED,
        "The token, actor or address has signed in too often; `retryAfter` says in how many seconds to try again.",
    )
    TOO_MANY_TOKENS = ("too_many_tokens", THROTTLED, "The actor holds as many live tokens as it may.")
    MORE_THAN_ALLOWED_FOR = (
        "more_than_allowed_for",
        CONFLICT,
        "More tokens are meant by now than the caller allowed for; none was revoked.",
    )
    TOO_MANY_AT_ONCE = ("too_many_at_once", BAD_REQUEST, "More tokens are meant than one call ends.")
    INTERNAL = ("internal", SERVER_ERROR, "A defect of the service; the request id finds it in the log.")
    STORE_UNAVAILABLE = (
        "store_unavailable",
        UNAVAILABLE,
        "The store could not be asked in time; nothing was changed.",
    )
    OUTCOME_UNKNOWN = (
        "outcome_unknown",
        UNAVAILABLE,
        "The store did not say in time whether a change was made: look before you try again.",
    )
    INDEX_UNAVAILABLE = ("index_unavailable", UNAVAILABLE, "The search index could not be asked in time.")
    INDEX_BLOCKED = ("index_blocked", UNAVAILABLE, "Writes to the index are held back for a moment; try again.")
    DEADLINE = ("deadline", UNAVAILABLE, "The search took too long; narrow it.")
    CONTENDED = ("contended", UNAVAILABLE, "The rules changed again and again meanwhile; try again.")
    TOO_MANY_BODIES = (
        "too_many_bodies",
        UNAVAILABLE,
        "Large bodies were arriving faster than they were whole, and this one was dropped: try again.",
    )
    STOPPING = ("stopping", UNAVAILABLE, "The service is stopping.")


class Subject(NamedTuple):
    """Whose token a refusal is about, and what of it is for the event alone."""

    actor: str
    token_id: str | None
    because: str | None = None


class Fault(Exception):
    """A refusal or failure with a public face. `details` are public too; `why` is for the log alone, `subject` for the
    event it leaves.
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
        """It may pass by itself: the same is worth trying again later."""
        return self.kind is UNAVAILABLE


def invalid(field: str, message: str) -> Fault:
    """The fault for a bad value: the sentence names the field and what is allowed."""
    return Fault(Reason.INVALID_FIELD, message, field=field)


class OperatorError(Exception):
    """What stops a start or a command: the message is a sentence for whoever runs it."""


class Stale(Exception):
    """What a write was allowed by has changed since the decision: decide again. Never reaches a client."""
