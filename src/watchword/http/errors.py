"""Error responses: the REST and GraphQL shapes of a fault and the headers of its status. Nothing internal gets out."""

import re
import traceback
from pathlib import Path
from typing import Any

import orjson

from watchword.basics.errors import Fault, Reason
from watchword.basics.names import TOKEN_DOT
from watchword.http.requests import Header, Response

JSON = ("content-type", "application/json; charset=utf-8")
NO_STORE = ("cache-control", "no-store")
CHALLENGE = 'Bearer realm="watchword"'
RETRY_AFTER = ("retry-after", "1")

# A token, or a part of one that is long enough to matter: base64 joined by dots. It matches only from the start of a
# word and backtracks only over one run of `25`, so its time is linear in the text.
_SECRET = re.compile(
    rf"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{{12,}}+{TOKEN_DOT}[A-Za-z0-9_-]{{12,}}+(?:{TOKEN_DOT}[A-Za-z0-9_-]*+)?"
    r"|eyJ[A-Za-z0-9_-]{8,}+"
)
MAX_MESSAGE = 600
MAX_SEARCHED = 4_096


def without_tokens(text: str) -> str:
    """Call this before shortening a text: half a token does not look like one."""
    return _SECRET.sub("…", text)


def redact(text: str) -> str:
    """The text without anything that looks like a token, shortened to the length of a message."""
    clean = without_tokens(text[:MAX_SEARCHED])
    return clean if len(clean) <= MAX_MESSAGE else clean[:MAX_MESSAGE] + "…"


def printable(text: str) -> str:
    """The text with control characters as escapes, so that it is safe on a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode()


def internal_fault(error: BaseException) -> Fault:
    """A bug: the client sees nothing of it; the log gets the exception and its last four frames."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return Fault(Reason.INTERNAL, "Internal server error.", cause=f"{type(error).__name__} at {places}: {error}")


def _codes(fault: Fault) -> dict[str, Any]:
    return {"code": fault.kind.code, "type": fault.kind.type, "reason": fault.reason.word}


def graphql_error(fault: Fault) -> dict[str, Any]:
    return {"message": redact(fault.message), "extensions": _codes(fault) | fault.details}


def json_response(content: Any, *headers: Header, status: int = 200) -> Response:
    return Response(status, [JSON, NO_STORE, *headers], orjson.dumps(content))


def fault_response(fault: Fault, *, graphql: bool, has_status: bool = False) -> Response:
    """DataHub's clients look for `message` and `status` at its REST addresses."""
    if graphql:
        content: dict[str, Any] = {"errors": [graphql_error(fault)]}
    else:
        content = {"error": _codes(fault) | {"message": redact(fault.message)} | fault.details}
    if has_status:
        content |= {"message": redact(fault.message), "status": fault.kind.code}
    return json_response(content, *fault_headers(fault), status=fault.kind.code)


def fault_headers(fault: Fault) -> list[Header]:
    match fault.kind.code:
        case 401:
            return [("www-authenticate", _challenge(fault))]
        case 405:
            return [("allow", str(fault.details.get("allow", "")))]
        case 429 | 503 if "retryAfter" in fault.details:
            return [("retry-after", str(fault.details["retryAfter"]))]
        case 503:
            return [RETRY_AFTER]
    return []


def _challenge(fault: Fault) -> str:
    """RFC 6750: no error code when the request has no credential."""
    if fault.reason is Reason.MISSING_CREDENTIAL:
        return CHALLENGE
    return CHALLENGE + f', error="invalid_token", error_description="{fault.message}"'
