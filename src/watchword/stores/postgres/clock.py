"""The database's clock, as it is known here: what it last said, and what has passed since by a clock nobody sets.

Instances may disagree about the time; the database they share does not. Verdicts use the time that came with their own
read; this is for what is said in between, such as when a token begins.
"""

import time


class DatabaseClock:
    def __init__(self) -> None:
        self._ahead = time.time_ns() - time.monotonic_ns()

    def set(self, now: int) -> None:
        self._ahead = now * 1_000_000 - time.monotonic_ns()

    def __call__(self) -> int:
        return (time.monotonic_ns() + self._ahead) // 1_000_000
