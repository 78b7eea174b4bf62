"""`watchword serve` with a defect that the checker must find: `python -m tests.linear.stale serve …`. Each worker
caches bearers for a moment. Also applied where a worker process imports this module."""

import time
from typing import Any

from watchword.__main__ import main
from watchword.app import services
from watchword.authority.callers import Bearer
from watchword.authority.service import Authority

SECONDS = 0.3


class ForgetfulAuthority(Authority):
    """A store whose bearer lookups are up to this many seconds old."""

    def __init__(self, store: Any, *others: Any) -> None:
        find, kept = store.find_bearer, dict[str, tuple[float, Bearer | None]]()

        async def cached(token_id: str) -> Bearer | None:
            at, bearer = kept.get(token_id, (float("-inf"), None))
            if time.monotonic() - at > SECONDS:
                bearer = await find(token_id)
                kept[token_id] = time.monotonic(), bearer
            return bearer

        store.find_bearer, store.find_bearer_now = cached, None
        super().__init__(store, *others)


opened: Any = services
opened.Authority = ForgetfulAuthority

if __name__ == "__main__":
    main()
