"""The histogram of a time series, through both clients."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.both_clients import Clients
from tests.support.series import fill, new_aspect
from tests.support.server import ADMIN, Server
from watchword.client import BadRequest


def test_spans_of_a_time_series_tell_when_its_rows_are_from(server: Server, connect: Clients) -> None:
    aspect = new_aspect()
    index = fill(server, aspect, old=3, young=5)
    found = connect(server.url, actor=ADMIN).series.histogram("dataset", aspect, spans=2)
    assert (found.index_name, found.rows, found.rows_without_time) == (index, 8, 0)
    assert [span.rows for span in found.spans] == [3, 5]
    assert found.span is not None
    assert abs(found.span - timedelta(days=39) / 2) < timedelta(milliseconds=2)
    assert datetime.now(UTC) - found.spans[0].start > timedelta(days=40)
    assert found.spans[0].start < found.spans[1].start


def test_more_spans_than_there_can_be_are_rejected(server: Server, connect: Clients) -> None:
    with pytest.raises(BadRequest, match="spans must be a whole number from 1 to 200"):
        connect(server.url, actor=ADMIN).series.histogram("dataset", "operation", spans=201)
