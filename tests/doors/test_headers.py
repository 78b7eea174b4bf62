"""Headers are read in one go; what came twice is known, and the first of it counts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from watchword.doors.http.requests import RequestReader

names = st.sampled_from([b"host", b"authorization", b"x-service-actor", b"accept", b"x"])
sent = st.lists(st.tuples(names, st.binary(max_size=4)), max_size=8)


@given(sent)
def test_the_first_of_each_header_counts_and_repeats_are_known(headers: list[tuple[bytes, bytes]]) -> None:
    request = RequestReader((), lambda: "id").read({"headers": headers}, None)  # type: ignore[arg-type]
    assert request.headers == {name: next(v for n, v in headers if n == name) for name, _ in headers}
    assert request.repeated == {name for name, times in Counter(n for n, _ in headers).items() if times > 1}
