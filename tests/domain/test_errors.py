"""Every reason has a unique code, an HTTP status and a response for GraphQL and for REST."""

import json
import re
import time
from pathlib import Path

import pytest

import watchword
from watchword.basics.errors import Fault, Reason, invalid
from watchword.http.errors import fault_response, graphql_error, redact, without_tokens

TYPES = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "UNAUTHORIZED",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "TIMEOUT",
    409: "CONFLICT",
    413: "TOO_LARGE",
    414: "URI_TOO_LONG",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "THROTTLED",
    500: "SERVER_ERROR",
    503: "UNAVAILABLE",
}
SOURCE = Path(watchword.__file__).parent
HIDDEN = "the private why"


def fault(reason: Reason) -> Fault:
    return Fault(reason, "A sentence.", cause=HIDDEN, extra=1)


def test_reason_words_are_unique() -> None:
    words = [reason.word for reason in Reason]
    assert len(set(words)) == len(words) == len(Reason.__members__)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", word) for word in words)


@pytest.mark.parametrize("reason", Reason)
def test_reason_kind_matches_the_contract(reason: Reason) -> None:
    assert TYPES[reason.kind.code] == reason.kind.type


@pytest.mark.parametrize("reason", Reason)
def test_reason_has_a_meaning(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z].{10,}\.", reason.meaning)


@pytest.mark.parametrize("reason", Reason)
def test_reason_is_used_in_the_source(reason: Reason) -> None:
    files = [path for path in SOURCE.rglob("*.py") if path.name != "errors.py" or path.parent.name != "domain"]
    used = any(f"Reason.{reason.name}" in path.read_text() for path in files)
    assert used or reason is Reason.INVALID_FIELD  # raised by `invalid`


@pytest.mark.parametrize("reason", Reason)
def test_graphql_response_shows_the_reason(reason: Reason) -> None:
    response = fault_response(fault(reason), graphql=True)
    (error,) = json.loads(response.body)["errors"]
    assert response.status == reason.kind.code
    assert error["message"] == "A sentence."
    wanted = {"code": reason.kind.code, "type": reason.kind.type, "reason": reason.word, "extra": 1}
    assert error["extensions"] == graphql_error(fault(reason))["extensions"] == wanted


@pytest.mark.parametrize("reason", Reason)
def test_rest_response_shows_the_reason(reason: Reason) -> None:
    response = fault_response(fault(reason), graphql=False)
    error = json.loads(response.body)["error"]
    assert response.status == reason.kind.code
    assert error["code"] == reason.kind.code
    assert error["type"] == reason.kind.type
    assert error["reason"] == reason.word
    assert error["message"] == "A sentence."


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("graphql", [True, False])
def test_private_cause_is_never_sent(reason: Reason, graphql: bool) -> None:
    response = fault_response(fault(reason), graphql=graphql)
    assert HIDDEN.encode() not in response.body
    assert HIDDEN not in repr(response.headers)
    assert HIDDEN not in str(fault(reason))


@pytest.mark.parametrize("reason", Reason)
def test_response_headers_match_the_status(reason: Reason) -> None:
    headers = dict(fault_response(fault(reason), graphql=False).headers)
    assert headers["content-type"].startswith("application/json")
    assert ("www-authenticate" in headers) == (reason.kind.code == 401)
    assert ("retry-after" in headers) == (reason.kind.code == 503)
    assert ("allow" in headers) == (reason.kind.code == 405)


def test_challenge_has_no_error_without_a_credential() -> None:
    def challenge(reason: Reason) -> str:
        return dict(fault_response(fault(reason), graphql=False).headers)["www-authenticate"]

    assert challenge(Reason.MISSING_CREDENTIAL) == 'Bearer realm="watchword"'
    for reason in (Reason.INVALID_TOKEN, Reason.TOKEN_EXPIRED, Reason.TOKEN_REVOKED):
        assert 'error="invalid_token", error_description="A sentence."' in challenge(reason)


def test_invalid_value_names_its_field() -> None:
    made = invalid("name", "name must be short.")
    assert (made.kind.code, made.reason.word, made.details) == (400, "invalid_field", {"field": "name"})


@pytest.mark.parametrize("dot", [".", *("%" + "25" * times + "2" + end for times in (0, 1, 2, 9, 40) for end in "Ee")])
def test_token_is_removed_however_often_its_dots_were_encoded(dot: str) -> None:
    token = dot.join(("eyJhbGciOiJFZERTQSJ9", "eyJpc3MiOiJodHRwczovL2lzcyJ9", "c2lnbmF0dXJl" * 7))
    assert redact(f"/api/{token}/more") == "/api/…/more"


@pytest.mark.parametrize(
    "piece", ["a" * 12 + "%2525252525", "a" * 12 + "%252E", "%25", "25", "a" * 12 + "%" + "25" * 1_000, "eyJ", "%2E"]
)
def test_time_to_remove_tokens_is_linear(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    began = time.thread_time()
    without_tokens(text)
    assert time.thread_time() - began < 2
