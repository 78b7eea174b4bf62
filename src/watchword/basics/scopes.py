"""Scopes: words that mean something to another service, such as `reports:read`. Policies grant them.

`orders:*` covers every scope that begins with `orders:`, and `*` covers every scope. Sets of scopes are frozen sets,
which compute their hash only once: caches find them quickly.
"""

import re
from collections.abc import Collection, Iterator

from watchword.basics.bounded_cache import cached_within
from watchword.basics.errors import invalid

MAX_SCOPE = 100
ALL_SCOPES = "*"
NO_SCOPES: frozenset[str] = frozenset()
SCOPE_FORM = (
    f"a scope such as reports:read, at most {MAX_SCOPE} characters: parts of a-z, 0-9, '.', '_' and '-' joined by ':', "
    "with :* at the end for all scopes below, or * for all scopes"
)

_SCOPE = re.compile(r"\*|[a-z0-9._-]+(?::[a-z0-9._-]+)*(?::\*)?", re.ASCII)


def is_scope(word: str) -> bool:
    return len(word) <= MAX_SCOPE and _SCOPE.fullmatch(word) is not None


def check_scope(word: str, field: str) -> str:
    if not is_scope(word):
        raise invalid(field, f"{field} must be {SCOPE_FORM}.")
    return word


def covering(held: Collection[str], word: str) -> str | None:
    """The scope that covers the word: the word itself or a wildcard above it."""
    return word if word in held else next((above for above in _wildcards_above(word) if above in held), None)


@cached_within()
def united(first: frozenset[str], second: frozenset[str]) -> frozenset[str]:
    """The scopes of both, without those that a wildcard among them covers."""
    return _without_covered(first | second)


def common(first: frozenset[str], second: frozenset[str]) -> frozenset[str]:
    """The scopes that both cover."""
    both = [word for word in first if covering(second, word)] + [word for word in second if covering(first, word)]
    return _without_covered(frozenset(both))


def _without_covered(words: frozenset[str]) -> frozenset[str]:
    return frozenset([word for word in words if not any(above in words for above in _wildcards_above(word))])


def _wildcards_above(word: str) -> Iterator[str]:
    end = word.removesuffix(":*").rfind(":")
    while end > 0:
        yield word[:end] + ":*"
        end = word.rfind(":", 0, end)
    if word != ALL_SCOPES:
        yield ALL_SCOPES
