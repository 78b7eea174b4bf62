"""How much is done in one transaction: as much as holds the write lock for a few milliseconds, whatever the machine.

Writers of rows wait for that lock. The process that works is of the lowest priority, so that the same batch takes
much longer while the machine is busy; what counts is therefore what the last ones took by the clock.
"""

HELD_SECONDS = 0.012
FIRST_ROWS, LEAST_ROWS = 100, 10


class AdaptiveBatchSize:
    def __init__(self) -> None:
        self._rows: dict[object, float] = {}

    def rows(self, kind: object, most: int) -> int:
        return min(most, int(self._rows.get(kind, FIRST_ROWS)))

    def note(self, kind: object, rows: int, held: float) -> None:
        """So many rows held the lock for so long. Slower at once, faster by and by."""
        if not rows:
            return
        now = self._rows.get(kind, float(FIRST_ROWS))
        fitting = rows * HELD_SECONDS / max(held, 1e-6)
        if fitting < now:
            self._rows[kind] = max(LEAST_ROWS, fitting, now / 2)
        elif rows >= int(now):  # a batch that was small for another reason says nothing of larger ones
            self._rows[kind] = min(fitting, now * 1.3)
