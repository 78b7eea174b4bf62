import hashlib
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import fault_or_none
from tests.support.strategies import NOW, characters, names, records, times
from watchword.basics.errors import Fault, Reason
from watchword.basics.names import MAX_DESCRIPTION, MAX_NAME, check_description, check_name
from watchword.basics.secret import Secret
from watchword.tokens.rules import TokenRecord, TokenStatus, TokenType, check_token_id, identifier


@given(records(), times)
def test_status_is_revoked_then_expired_then_active(record: TokenRecord, now: int) -> None:
    if record.revoked_at is not None:
        assert record.status(now) is TokenStatus.REVOKED
    elif record.expires_at is not None and now >= record.expires_at:
        assert record.status(now) is TokenStatus.EXPIRED
    else:
        assert record.status(now) is TokenStatus.ACTIVE


@given(records(), st.integers(1, 10**9))
def test_inactive_token_never_becomes_active_again(record: TokenRecord, later: int) -> None:
    if record.status(NOW) is not TokenStatus.ACTIVE:
        assert record.status(NOW + later) is record.status(NOW)


def test_token_expires_at_the_exact_millisecond() -> None:
    assert _expiring_at(NOW).status(NOW - 1) is TokenStatus.ACTIVE
    assert _expiring_at(NOW).status(NOW) is TokenStatus.EXPIRED


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_token_id_is_base64_of_the_salted_digest(token: bytes, salt: bytes) -> None:
    made = identifier(Secret(salt))(token)
    assert made == b64encode(hashlib.sha256(token + salt).digest()).decode()
    assert len(made) == 44
    assert check_token_id(made, "tokenId") == made


@given(st.text(max_size=60))
def test_invalid_token_id_is_rejected_and_not_echoed(text: str) -> None:
    fault = fault_or_none(lambda: check_token_id(text, "tokenId"))
    if fault is None:
        assert len(b64decode(check_token_id(text, "tokenId"), validate=True)) == 32
    else:
        assert fault.details == {"field": "tokenId"}
        assert fault.message == "tokenId must be a token's id (44 characters of base64), not the token itself."


@given(names)
def test_visible_name_is_kept_unchanged(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "\u00a0", "x" * (MAX_NAME + 1), "a\nb", "a\rb", "a\tb", "a\x00", "\x1b[0m", "\x7f", "\udc00",
        "\x85", "\u200b", "\u3164\u2800", "a\u202eb", "a\u2028b"]
)  # fmt: skip
def test_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(Fault) as caught:
        check_name(name)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.details == {"field": "name"}


def test_name_allows_200_wide_characters() -> None:
    assert check_name("😀" * MAX_NAME) == "😀" * MAX_NAME


@given(st.none() | st.text(characters | st.sampled_from("\n\r\t"), max_size=50))
def test_description_may_be_multiline_or_absent(description: str | None) -> None:
    assert check_description(description) == description


@pytest.mark.parametrize("description", ["x" * (MAX_DESCRIPTION + 1), "\x00", "\ud800"])
def test_invalid_description_is_rejected(description: str) -> None:
    with pytest.raises(Fault) as caught:
        check_description(description)
    assert caught.value.details == {"field": "description"}


def _expiring_at(at: int) -> TokenRecord:
    record = TokenRecord("id", TokenType.PERSONAL, "n", None, "urn:a:b", "urn:a:b", 0, None)
    return record._replace(expires_at=at)
