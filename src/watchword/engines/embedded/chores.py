"""What is to be done beside tasks, a little at a time: rows of dropped indices, tasks that ended long ago, pages that
nothing uses any more.
"""

import time
from collections.abc import Callable

import apsw

from watchword.engines.embedded import tasks
from watchword.engines.embedded.documents import LAST_PLACE, place
from watchword.engines.embedded.file import transact
from watchword.engines.embedded.stride import AdaptiveBatchSize

PURGED_ROWS = 1_000
FREE_PAGES = 1_000
"""As many are kept for what is written next."""
VACUUMED_PAGES = 500
PRUNE_SECONDS = 3_600.0


class Housekeeping:
    def __init__(self, connection: apsw.Connection, stride: AdaptiveBatchSize, clock: Callable[[], int]) -> None:
        self._connection = connection
        self._stride = stride
        self._clock = clock
        self._pruned = -float("inf")
        self._gave_back = False

    def are_due(self) -> bool:
        return time.monotonic() - self._pruned > PRUNE_SECONDS

    def do_one(self) -> bool:
        """Whether there was one."""
        if self.are_due():
            self._pruned = time.monotonic()
            transact(self._connection, lambda c: tasks.prune(c, self._clock()))
            return True
        dropped = self._connection.execute("SELECT number FROM indices WHERE name IS NULL LIMIT 1").get
        return self._purge(dropped) if dropped is not None else self._give_pages_back()

    def _purge(self, index: int) -> bool:
        rows = self._stride.rows("purge", PURGED_ROWS)

        def purge(c: apsw.Connection) -> None:
            c.execute(
                """DELETE FROM documents WHERE place IN
                       (SELECT place FROM documents WHERE place BETWEEN ? AND ? LIMIT ?)""",
                (place(index, 0), place(index, LAST_PLACE), rows),
            )
            if c.changes() < rows:
                c.execute("DELETE FROM indices WHERE number = ?", (index,))

        self._timed("purge", rows, purge)
        return True

    def _give_pages_back(self) -> bool:
        free: int = self._connection.execute("PRAGMA freelist_count").get
        if free <= FREE_PAGES:
            return self._fold()
        pages = min(free - FREE_PAGES, self._stride.rows("vacuum", VACUUMED_PAGES))
        self._timed("vacuum", pages, lambda c: c.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall())
        self._gave_back = True
        return True

    def _fold(self) -> bool:
        """The file becomes shorter when the last of the log is folded into it, which holds nobody up."""
        if self._gave_back:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._gave_back = False
        return False

    def _timed(self, kind: str, rows: int, work: Callable[[apsw.Connection], object]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        held = time.monotonic()
        try:
            work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._stride.note(kind, rows, time.monotonic() - held)
