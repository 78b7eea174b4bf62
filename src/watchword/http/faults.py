"""Faults at the door: the two shapes of an error body, and what goes with a status. Nothing internal gets past here."""

import re
import traceback
from pathlib import Path
from typing import Any

import orjson

from watchword.domain.errors import Fault, Kind, Reason
from watchword.http.requests import Header, Response

JSON = ("content-type", "application/json; charset=utf-8")
NO_STORE = ("cache-control", "no-store")
CHALLENGE = 'Bearer realm="watchword"'
RETRY_AFTER = ("retry-after", "1")

# Three runs of base64 joined by dots: a token, or a part of one long enough to matter. It begins only where a run does
# and never goes back over one, so its time grows with the text and no faster.
_SECRET = re.compile(
    r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{12,}+\.[A-Za-z0-9_-]{12,}+(?:\.[A-Za-z0-9_-]*+)?|eyJ[A-Za-z0-9_-]{8,}+"
)
LONGEST_MESSAGE = 600
LONGEST_LOOK = 4_096


def without_tokens(text: str) -> str:
    """Before any shortening: half a token does not look like one."""
    return _SECRET.sub("…", text)


def redact(text: str) -> str:
    """The text without anything that looks like a token, and not longer than a message should be."""
    clean = without_tokens(text[:LONGEST_LOOK])
    return clean if len(clean) <= LONGEST_MESSAGE else clean[:LONGEST_MESSAGE] + "…"


def printable(text: str) -> str:
    """The text with whatever would act on a terminal shown as an escape."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogatepass").decode()


def internal_fault(error: BaseException) -> Fault:
    """A defect of ours: nothing of it for the client; for the log, what it was and the last places it came through."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    return Fault(
        Reason.INTERNAL,
        "Something went wrong here, not with your request.",
        why=f"{type(error).__name__} at {places}: {error}",
    )


def rest_body(fault: Fault) -> bytes:
    kind = fault.kind
    content = {
        "code": kind.code,
        "type": kind.type,
        "reason": fault.reason.word,
        "message": redact(fault.message),
    }
    return orjson.dumps({"error": content | fault.details})


def graphql_error(fault: Fault) -> dict[str, Any]:
    return {"message": redact(fault.message), "extensions": extensions(fault)}


def extensions(fault: Fault) -> dict[str, Any]:
    kind: Kind = fault.kind
    return {"code": kind.code, "type": kind.type, "reason": fault.reason.word, **fault.details}


def graphql_body(fault: Fault) -> bytes:
    return orjson.dumps({"errors": [graphql_error(fault)]})


def fault_response(fault: Fault, *, graphql: bool) -> Response:
    body = graphql_body(fault) if graphql else rest_body(fault)
    return Response(fault.kind.code, [JSON, NO_STORE, *fault_headers(fault)], body)


def fault_headers(fault: Fault) -> list[Header]:
    match fault.kind.code:
        case 401:
            return [("www-authenticate", challenge(fault))]
        case 405:
            return [("allow", str(fault.details.get("allow", "")))]
        case 429 if "retryAfter" in fault.details:
            return [("retry-after", str(fault.details["retryAfter"]))]
        case 503:
            return [RETRY_AFTER]
    return []


def challenge(fault: Fault) -> str:
    """RFC 6750: no error word when no credential came."""
    if fault.reason is Reason.MISSING_CREDENTIAL:
        return CHALLENGE
    return CHALLENGE + f', error="invalid_token", error_description="{fault.message}"'
