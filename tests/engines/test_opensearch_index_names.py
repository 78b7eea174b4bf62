"""Index names are sent in full; a name that could match another index is never sent."""

import re
import string
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.harness import Run
from tests.support.engine_nodes import engine_at
from tests.support.ports import free_port
from watchword.index.engine import Pace
from watchword.index.indices import Row
from watchword.index.opensearch.engine import OpenSearchEngine
from watchword.index.opensearch.index_queries import bare_path, checked_tag, concrete, inlet, listing, path

FINE = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)
PACE = Pace("tag")
OTHERS = [
    "*",
    "a*",
    "a,b",
    "_all",
    "-a",
    "+a",
    "..",
    "a/b",
    "<a-{now/d}>",
    "a:b",
    "a?b",
    "a#b",
    "a%2Cb",
    "A",
    "",
    "a\n",
]
NAMES = st.one_of(
    st.sampled_from(OTHERS), st.text(max_size=20), st.text(string.ascii_lowercase + "0123456789_-*,.", max_size=20)
)

Call = Callable[[OpenSearchEngine, str], Coroutine[Any, Any, Any]]

CALLS: list[Call] = [
    lambda e, n: e.resolve(n),
    lambda e, n: e.sizes(n, "aspect_v1*"),
    lambda e, n: e.count(n, 0),
    lambda e, n: e.start_delete(n, 0, PACE),
    lambda e, n: e.start_copy(n, "a", 0, PACE),
    lambda e, n: e.start_catch_up(n, "a", 0, (0,), PACE),
    lambda e, n: e.checkpoints(n),
    lambda e, n: e.make_like(n, "a"),
    lambda e, n: e.block(n),
    lambda e, n: e.unblock(n),
    lambda e, n: e.is_blocked(n),
    lambda e, n: e.reconcile(n, "a", 0),
    lambda e, n: e.swap("a", n, "b"),
    lambda e, n: e.swap(n, "a", "b"),
    lambda e, n: e.drop(n),
    lambda e, n: e.make(n),
    lambda e, n: e.write(n, [Row(b"{}")]),
]


@given(NAMES)
def test_only_a_plain_name_becomes_a_path_segment(name: str) -> None:
    for make in (partial(path, name, "_search", scroll="1m"), partial(bare_path, name, "_bulk")):
        if FINE.fullmatch(name):
            assert urlsplit(make()).path.split("/")[1] == name
        else:
            with pytest.raises(ValueError, match="does not name one index"):
                make()


@given(NAMES)
def test_only_a_plain_name_is_sent_in_a_body(name: str) -> None:
    if FINE.fullmatch(name):
        assert (concrete(name), inlet(name).lower()) == (name, f"{name}_inlet")
    else:
        for make in (concrete, inlet):
            with pytest.raises(ValueError, match="does not name one index"):
                make(name)


@given(st.text(max_size=10), st.text(max_size=10))
def test_listing_pattern_has_one_wildcard(head: str, ending: str) -> None:
    plain = re.fullmatch(r"[a-z0-9_-]+", head + ending, re.ASCII)
    if plain:
        assert urlsplit(listing(head, ending, "_stats")).path == f"/{head}*{ending}/_stats"
    else:
        with pytest.raises(ValueError, match="not a head and an ending"):
            listing(head, ending, "_stats")


@pytest.mark.parametrize("tag", ["", "a b", "a\r\nHost: b", "é", "x" * 201])
def test_invalid_tag_is_not_sent(tag: str) -> None:
    with pytest.raises(ValueError, match="tag of a task"):
        checked_tag(tag)


def test_call_with_an_invalid_name_sends_nothing(run: Run) -> None:
    engine = engine_at(f"http://127.0.0.1:{free_port()}")  # no listener: sending would raise another error
    for call in CALLS:
        for name in OTHERS:
            with pytest.raises(ValueError, match=r"does not name one index|not a head and an ending"):
                run(call(engine, name))
    run(engine.close())
