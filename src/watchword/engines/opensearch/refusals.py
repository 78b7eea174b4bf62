"""What the cluster says when it does not do what was asked, as this service's faults.

401, 403 without a block   its credentials are not accepted: INDEX_UNAVAILABLE, and a sentence for the operator
429, 502, 503, 504         come back later: repeated, then INDEX_UNAVAILABLE
other 4xx, write blocks    it cannot be done: INDEX_REFUSED
everything else            INDEX_UNAVAILABLE
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from watchword.domain.errors import Fault, Reason

BLOCK = "cluster_block_exception"
NO_INDEX = "index_not_found_exception"
NO_RESOURCE = "resource_not_found_exception"
EXISTS = "resource_already_exists_exception"
_LATER = frozenset({429, 502, 503, 504})
_MOST_CHARACTERS = 400


class Said(NamedTuple):
    status: int
    type: str
    reason: str


def unavailable(why: str) -> Fault:
    return Fault(Reason.INDEX_UNAVAILABLE, "The search index could not be asked in time.", why=shortened(why))


def refused(why: str) -> Fault:
    return Fault(Reason.INDEX_REFUSED, "The search index answered that this cannot be done.", why=shortened(why))


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Around the lines that take an answer apart, and no others: what answers in another shape than a search engine
    does is none, or not now. The same error anywhere else is a defect of ours, and stays one.
    """
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise unavailable(f"{what} was answered in another shape: {type(error).__name__} {error}") from error


def shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def read(status: int, content: bytes) -> Said:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    error = answer.get("error") if isinstance(answer, dict) else None
    if isinstance(error, dict):
        return Said(status, str(error.get("type", "")), told(error))
    return Said(status, "", str(error) if error is not None else "")


def told(error: Any) -> str:
    """An error of the cluster in one line: the first root cause, which says more than its wrapping."""
    if not isinstance(error, dict):
        return shortened(str(error))
    causes = error.get("root_cause") or [error]
    cause = causes[0] if isinstance(causes[0], dict) else error
    return shortened(f"{cause.get('type', 'error')}: {cause.get('reason', 'no reason given')}")


def asks_to_come_back(status: int, content: bytes) -> bool:
    """A full disk is answered as 429 too, but passes no sooner for asking again."""
    return status in _LATER and not (status == 429 and read(status, content).type == BLOCK)


def fault(said: Said, asked: str) -> Fault:
    why = f"{asked}: HTTP {said.status} {said.reason}"
    if said.status == 401 or (said.status == 403 and said.type != BLOCK):
        return Fault(
            Reason.INDEX_UNAVAILABLE,
            "The search index does not accept the credentials of this service; its operator must correct them.",
            why=shortened(why),
        )
    return refused(why) if 400 <= said.status < 500 else unavailable(why)
