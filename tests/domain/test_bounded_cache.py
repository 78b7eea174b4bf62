"""Caches of what callers choose are bounded in bytes."""

import json
import tracemalloc

from watchword.authority.limits import unpacked
from watchword.authority.policies import root_policy
from watchword.authority.policy_set import PolicySet
from watchword.authority.service import rights_under
from watchword.basics.bounded_cache import CACHE_BYTES, cached_within

ACTOR = "urn:li:corpuser:ada"
TOKENS, SCOPES = 1_300, 49


def test_what_is_remembered_of_many_tokens_with_scopes_is_bounded_in_bytes() -> None:
    rights = rights_under(PolicySet(1, (root_policy(ACTOR),)))
    tracemalloc.start()
    try:
        for token in range(TOKENS):
            limits = unpacked(json.dumps({"scopes": [f"{token}.{number}.".ljust(52, "x") for number in range(SCOPES)]}))
            assert rights(ACTOR, (), limits.scopes).scopes == limits.words
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * CACHE_BYTES


def test_the_oldest_results_go_first() -> None:
    made = []

    @cached_within(10_000)
    def twice(text: str) -> str:
        made.append(text[0])
        return text * 2

    for letter in "abcaabd":
        assert twice(letter * 1_000) == letter * 2_000
    assert made == ["a", "b", "c", "d"]
    twice("b" * 1_000)
    assert made[-1] == "d"
    twice("a" * 1_000)
    assert made[-1] == "a"


def test_a_result_larger_than_the_cache_is_returned_and_not_kept() -> None:
    @cached_within(1_000)
    def twice(text: str) -> list[str]:
        return [text * 2]

    assert twice("a" * 2_000) is not twice("a" * 2_000)
    assert twice("a") is twice("a")
