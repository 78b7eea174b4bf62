import hashlib
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal_of
from tests.support.strategies import NOW, characters, names, records, times
from watchword.domain.errors import Fault, Reason
from watchword.domain.names import MAX_DESCRIPTION, MAX_NAME, check_description, check_name
from watchword.domain.secret import Secret
from watchword.domain.tokens import TokenRecord, TokenStatus, TokenType, check_token_id, token_id


@given(records(), times)
def test_a_token_has_one_status_by_its_revocation_then_its_end(record: TokenRecord, now: int) -> None:
    if record.revoked_at is not None:
        assert record.status(now) is TokenStatus.REVOKED
    elif record.expires_at is not None and now >= record.expires_at:
        assert record.status(now) is TokenStatus.EXPIRED
    else:
        assert record.status(now) is TokenStatus.ACTIVE


@given(records(), st.integers(1, 10**9))
def test_a_token_that_is_no_longer_active_never_is_again(record: TokenRecord, later: int) -> None:
    if record.status(NOW) is not TokenStatus.ACTIVE:
        assert record.status(NOW + later) is record.status(NOW)


def test_a_token_is_dead_at_the_very_millisecond_of_its_end() -> None:
    assert _ending(NOW).status(NOW - 1) is TokenStatus.ACTIVE
    assert _ending(NOW).status(NOW) is TokenStatus.EXPIRED


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_the_id_is_the_padded_base64_of_the_salted_digest(token: bytes, salt: bytes) -> None:
    made = token_id(token, Secret(salt))
    assert made == b64encode(hashlib.sha256(token + salt).digest()).decode()
    assert len(made) == 44
    assert check_token_id(made, "tokenId") == made


@given(st.text(max_size=60))
def test_any_other_text_is_no_id_and_is_not_repeated(text: str) -> None:
    fault = refusal_of(lambda: check_token_id(text, "tokenId"))
    if fault is None:
        assert len(b64decode(check_token_id(text, "tokenId"), validate=True)) == 32
    else:
        assert fault.details == {"field": "tokenId"}
        assert fault.message == "tokenId must be a token's id (44 characters of base64), not the token itself."


@given(names)
def test_a_name_of_visible_text_is_kept_as_it_is(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "\u00a0", "x" * (MAX_NAME + 1), "a\nb", "a\rb", "a\tb", "a\x00", "\x1b[0m", "\x7f", "\udc00",
        "\x85", "\u200b", "a\u202eb", "a\u2028b"]
)  # fmt: skip
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(Fault) as caught:
        check_name(name)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.details == {"field": "name"}


def test_a_name_may_have_200_characters_of_any_width() -> None:
    assert check_name("😀" * MAX_NAME) == "😀" * MAX_NAME


@given(st.none() | st.text(characters | st.sampled_from("\n\r\t"), max_size=50))
def test_a_description_may_have_several_lines_or_be_absent(description: str | None) -> None:
    assert check_description(description) == description


@pytest.mark.parametrize("description", ["x" * (MAX_DESCRIPTION + 1), "\x00", "\ud800"])
def test_a_bad_description_is_refused(description: str) -> None:
    with pytest.raises(Fault) as caught:
        check_description(description)
    assert caught.value.details == {"field": "description"}


def _ending(at: int) -> TokenRecord:
    record = TokenRecord("id", TokenType.PERSONAL, "n", None, "urn:a:b", "urn:a:b", 0, None)
    return record._replace(expires_at=at)
