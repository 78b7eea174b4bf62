"""Request bodies: JSON and forms, limited in what makes them expensive to parse."""

from collections import Counter
from typing import Any
from urllib.parse import parse_qsl

import orjson

from watchword.domain.errors import Fault, Reason, invalid
from watchword.http.requests import MAX_BODY, Request

MAX_MEMBERS = 12_000
"""List items and object members: enough for the ids of the most tokens that one request revokes."""
MAX_BACKSLASHES = 60_000
"""Some clients escape every character that is not ASCII."""
FORM = "application/x-www-form-urlencoded"
MAX_FORM = 64 * 1024
MAX_FORM_FIELDS = 20
MAX_PERCENT_ESCAPES = 5_000


def check_media_type(request: Request) -> None:
    kind, _, parameters = request.header("content-type").lower().partition(";")
    encoding = request.header("content-encoding").lower()
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != "application/json" or charset not in {"", "charset=utf-8"} or encoding not in {"", "identity"}:
        raise Fault(Reason.NOT_JSON, "Send the body as Content-Type: application/json, in UTF-8, uncompressed.")


async def read_json(request: Request, expected: str, max_bytes: int = MAX_BODY) -> Any:
    check_media_type(request)
    return parse_json(await request.body(max_bytes), expected)


def parse_json(body: bytes, expected: str) -> Any:
    """Limits the number of members first: parsed objects take far more memory than their text."""
    opened = body.count(b"[") + body.count(b"{")
    is_closed = opened <= MAX_MEMBERS or opened == body.count(b"]") + body.count(b"}")
    if is_closed and opened + body.count(b",") > MAX_MEMBERS:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_MEMBERS:,} commas and opening brackets.")
    if body.count(b"\\") > MAX_BACKSLASHES:
        raise Fault(Reason.INVALID_JSON, f"The body may have at most {MAX_BACKSLASHES:,} backslashes.")
    try:
        if is_closed:
            return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    raise Fault(Reason.INVALID_JSON, f"The body must be JSON: {expected}.")


async def read_form(request: Request) -> dict[str, str]:
    """The form fields as latin-1, so that any bytes are accepted; each field may occur once."""
    kind = request.header("content-type").lower().partition(";")[0].strip()
    if kind != FORM or request.is_repeated("content-type") or "content-encoding" in request.headers:
        raise Fault(
            Reason.INVALID_HEADER,
            f"Send the parameters in the body as Content-Type: {FORM}, uncompressed.",
            field="Content-Type",
        )
    body = (await request.body(MAX_FORM)).decode("latin-1")
    if body.count("%") > MAX_PERCENT_ESCAPES:
        raise invalid("body", f"The body may have at most {MAX_PERCENT_ESCAPES:,} escapes.")
    try:
        fields = parse_qsl(body, keep_blank_values=True, encoding="latin-1", max_num_fields=MAX_FORM_FIELDS)
    except ValueError:
        raise invalid("body", f"The body may have at most {MAX_FORM_FIELDS} parameters.") from None
    if any(times > 1 for times in Counter(name for name, _ in fields).values()):
        raise invalid("body", "The body must have each parameter once.")
    return dict(fields)
