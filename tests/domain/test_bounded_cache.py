"""Caches of what callers choose are bounded in bytes."""

import json
import tracemalloc

from watchword.domain import token_limits
from watchword.domain.bounded_cache import CACHE_BYTES
from watchword.domain.token_limits import unpacked

TOKENS, SCOPES = 1_500, 100


def test_cached_scopes_of_many_tokens_are_bounded_in_bytes() -> None:
    tracemalloc.start()
    try:
        for token in range(TOKENS):
            limits = unpacked(json.dumps({"scopes": [f"scope-{token}-{number}" for number in range(SCOPES)]}))
            token_limits._words(limits.scopes)
            token_limits._privileges(limits.scopes)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * CACHE_BYTES
