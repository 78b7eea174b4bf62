"""`watchword serve` with a defect, to see whether the judge finds it: `python -m tests.linear.stale serve …`.

Each worker remembers for a moment how a bearer stood. Done where a worker's process imports this module, too.
"""

import time
from typing import Any

from watchword import wiring
from watchword.__main__ import main
from watchword.domain.actors import Bearer
from watchword.service.authority import Authority

SECONDS = 0.3


class ForgetfulAuthority(Authority):
    """On a store whose answers about bearers are up to so many seconds old."""

    def __init__(self, store: Any, *others: Any) -> None:
        find, kept = store.find_bearer, dict[str, tuple[float, Bearer | None]]()

        async def remembered(token_id: str) -> Bearer | None:
            at, bearer = kept.get(token_id, (float("-inf"), None))
            if time.monotonic() - at > SECONDS:
                bearer = await find(token_id)
                kept[token_id] = time.monotonic(), bearer
            return bearer

        store.find_bearer = remembered
        super().__init__(store, *others)


opened: Any = wiring
opened.Authority = ForgetfulAuthority

if __name__ == "__main__":
    main()
