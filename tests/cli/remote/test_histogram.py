"""`watchword index histogram`: rows over time, as bars and as JSON."""

import json
from collections.abc import Callable

from tests.support.series import fill, new_aspect
from tests.support.server import Server

Done = Callable[..., str]


def test_histogram_is_shown_as_bars(server: Server, done: Done) -> None:
    aspect = new_aspect()
    fill(server, aspect, old=10, young=40)
    head, first, second = done("index", "histogram", "dataset", aspect, "--spans", "2").splitlines()
    assert head.split() == ["FROM", "ROWS", "SHARE"]
    assert first.split()[1:] == ["10", "#" * 10]
    assert second.split()[1:] == ["40", "#" * 40]


def test_histogram_is_printed_as_json(server: Server, done: Done) -> None:
    aspect = new_aspect()
    fill(server, aspect, old=1, young=2)
    spans = json.loads(done("index", "histogram", "dataset", aspect, "--json", "--spans", "2"))
    assert [span["rows"] for span in spans] == [1, 2]
    assert spans[0]["startMillis"] < spans[1]["startMillis"]
