import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import fault_or_none
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import DAY, HOUR, Duration, parse_iso
from watchword.tokens.lifetimes import SHORTEST, Lifetimes

NAMED = [duration for duration in Duration if duration is not Duration.NO_EXPIRY]
ALL = Lifetimes.of(NAMED, allow_no_expiry=False)
UNITS = {"W": 7 * DAY, "D": DAY, "H": HOUR, "M": 60_000, "S": 1_000}

numbers = st.none() | st.integers(0, 999_999_999)
some = st.lists(st.sampled_from(NAMED), min_size=1, unique=True)
moments = st.integers(0, 2**53)


def iso_text(weeks: int | None, days: int | None, hours: int | None, minutes: int | None, seconds: int | None) -> str:
    """Format the parts as an ISO duration; skip those that are None."""
    date = "".join(f"{n}{unit}" for n, unit in ((weeks, "W"), (days, "D")) if n is not None)
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n is not None)
    return f"P{date}{'T' + time if time else ''}"


def rejection(lifetimes: Lifetimes, duration: Duration | None, iso: str | None) -> Fault:
    with pytest.raises(Fault) as caught:
        lifetimes.expiry(0, duration, iso)
    assert caught.value.reason is Reason.INVALID_FIELD
    return caught.value


@given(st.tuples(numbers, numbers, numbers, numbers, numbers).filter(lambda parts: set(parts) != {None}))
def test_iso_duration_is_the_sum_of_its_parts(parts: tuple[int | None, ...]) -> None:
    assert parse_iso(iso_text(*parts)) == sum((n or 0) * unit for n, unit in zip(parts, UNITS.values(), strict=True))


@given(st.integers(0, 10**15))
def test_iso_duration_survives_a_round_trip(seconds: int) -> None:
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    weeks, d = divmod(days, 7)
    text = iso_text(weeks % 10**9, d, h, m, s)
    assert parse_iso(text) == (seconds - weeks // 10**9 * 10**9 * 7 * 86_400) * 1_000


@given(st.text(alphabet="P0123456789WDTHMS.-+ \n", max_size=12) | st.text())
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    fault = fault_or_none(lambda: parse_iso(text))
    if fault is not None:
        assert fault.details == {"field": "durationIso"}
        assert "P3D" in fault.message
    else:
        length = parse_iso(text)
        # Independent oracle: split at the T, then pair each number with its unit.
        date, _, time = text.removeprefix("P").partition("T")
        found = re.findall(r"(\d+)([WD])", date) + re.findall(r"(\d+)([HMS])", time)
        assert text.isascii()
        assert length == sum(int(number) * UNITS[unit] for number, unit in found)
        assert "".join(n + u for n, u in found) == text.removeprefix("P").replace("T", "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1D",
        "p1d",
        "P1Y",
        "P1M",
        "P1.5D",
        "PT1,5H",
        "-P1D",
        "P-1D",
        "+P1D",
        " P1D",
        "P1D\n",
        "P1D2W",
        "PT1S1M",
        "P1H",
        "PT1D",
        "P1234567890D",
        "P\u0661D",
        "P1DT1H\x00",
    ],
)
def test_invalid_iso_duration_is_rejected(text: str) -> None:
    with pytest.raises(Fault, match="durationIso must be an ISO 8601 duration"):
        parse_iso(text)


@given(moments, st.sampled_from(NAMED))
def test_named_lifetime_expires_after_its_length(now: int, duration: Duration) -> None:
    assert ALL.expiry(now, duration, None) == now + int(duration.value)


def test_named_lengths_match_the_contract() -> None:
    days = {duration.name: duration.value / DAY for duration in NAMED}
    assert days == {
        "ONE_HOUR": 1 / 24,
        "ONE_DAY": 1,
        "ONE_WEEK": 7,
        "ONE_MONTH": 30,
        "THREE_MONTHS": 90,
        "SIX_MONTHS": 180,
        "ONE_YEAR": 365,
    }


@given(moments, some, st.integers(0, 400 * 86_400))
def test_iso_lifetime_outside_the_bounds_is_rejected(now: int, allowed: list[Duration], seconds: int) -> None:
    lifetimes = Lifetimes.of(allowed, allow_no_expiry=False)
    longest = max(int(duration.value) for duration in allowed)
    if SHORTEST <= seconds * 1_000 <= longest:
        assert lifetimes.expiry(now, None, f"PT{seconds}S") == now + seconds * 1_000
    else:
        fault = rejection(lifetimes, None, f"PT{seconds}S")
        assert fault.details == {"field": "durationIso"}
        told = f"P{longest // 86_400_000}D" if longest >= 86_400_000 else "PT1H"
        assert f"from PT1M to {told}, " in fault.message


@given(some)
def test_iso_lifetime_bounds_are_inclusive(allowed: list[Duration]) -> None:
    lifetimes = Lifetimes.of(allowed, allow_no_expiry=False)
    assert lifetimes.expiry(0, None, "PT1M") == SHORTEST
    assert lifetimes.expiry(0, None, f"PT{lifetimes.longest // 1000}S") == lifetimes.longest


@given(some, st.sampled_from(NAMED))
def test_disallowed_duration_is_rejected_with_the_allowed_ones(allowed: list[Duration], asked: Duration) -> None:
    lifetimes = Lifetimes.of(allowed, allow_no_expiry=False)
    if asked in allowed:
        assert lifetimes.expiry(0, asked, None) == asked.value
    else:
        fault = rejection(lifetimes, asked, None)
        assert fault.details == {"field": "duration"}
        assert all(duration.name in fault.message.split("allowed: ")[1] for duration in allowed)


@given(some)
def test_no_expiry_requires_the_setting(allowed: list[Duration]) -> None:
    assert Lifetimes.of(allowed, allow_no_expiry=True).expiry(0, Duration.NO_EXPIRY, None) is None
    assert (
        rejection(Lifetimes.of(allowed, allow_no_expiry=False), Duration.NO_EXPIRY, None).details["field"] == "duration"
    )


def test_listing_no_expiry_does_not_enable_it() -> None:
    assert Duration.NO_EXPIRY not in Lifetimes.of(Duration, allow_no_expiry=False).allowed


@pytest.mark.parametrize(("duration", "iso"), [(None, None), (Duration.ONE_DAY, "P1D")])
def test_duration_and_iso_are_mutually_exclusive(duration: Duration | None, iso: str | None) -> None:
    assert "exactly one" in rejection(ALL, duration, iso).message
