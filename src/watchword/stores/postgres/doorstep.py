"""The doorstep: where connections are opened, after a failure not all at once and not at once.

While the server is away each attempt waits longer than the one before, by a random share, up to a bound that lets us
be back within moments of its return. The wait is common to all that want a connection: a crowd of requests knocks no
more often than one.
"""

import asyncio
import random
import time

from watchword.domain.errors import OperatorError
from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.connections import DRIVER_ERRORS, Connection, Session, connect

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.5


class ConnectionBackoff:
    def __init__(self, place: PostgresUrl) -> None:
        self.place = place
        self.problem: BaseException | None = None
        """Why the last attempt failed; None once one has not."""
        self._pause = 0.0
        self._not_before = 0.0

    async def connect(self, session: Session = Session()) -> Connection:  # noqa: B008 - frozen
        while (wait := self._not_before - time.monotonic()) > 0:  # noqa: ASYNC110 - a moment, not an event
            await asyncio.sleep(wait)
        try:
            connection = await connect(self.place, session)
        except (*DRIVER_ERRORS, OperatorError) as error:
            self.problem = error
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
            self._not_before = time.monotonic() + self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
            raise
        self._pause = 0.0
        self.problem = None
        return connection
