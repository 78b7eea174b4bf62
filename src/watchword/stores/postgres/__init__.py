"""The store on PostgreSQL: one database, any number of instances."""

from collections.abc import Callable

from watchword.domain.store_urls import PostgresUrl
from watchword.stores.postgres.accounts import PostgresAccounts
from watchword.stores.postgres.actors import PostgresActors
from watchword.stores.postgres.clock import DatabaseClock
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database, make_pool
from watchword.stores.postgres.doorstep import ConnectionBackoff
from watchword.stores.postgres.events import PostgresEvents
from watchword.stores.postgres.issuing import PostgresIssuing
from watchword.stores.postgres.keys import PostgresKeys
from watchword.stores.postgres.lanes import VerifyBatcher
from watchword.stores.postgres.lives import PostgresLives
from watchword.stores.postgres.operations import PostgresOperations
from watchword.stores.postgres.policies import PostgresPolicies
from watchword.stores.postgres.sessions import PostgresSessions
from watchword.stores.postgres.tokens import PostgresTokens

Observe = Callable[[str, float], None]


class PostgresStore(
    PostgresTokens,
    PostgresIssuing,
    PostgresLives,
    PostgresAccounts,
    PostgresSessions,
    PostgresPolicies,
    PostgresActors,
    PostgresKeys,
    PostgresEvents,
    PostgresOperations,
):
    async def probe(self) -> None:
        await self._db.write(lambda c: c.execute("UPDATE probes SET at = now_ms()"))
        if self._db.was_full:
            # That row fits into a page that is there, and proves nothing about the disk.
            await self._db.write(_take_room)
            self._db.was_full = False

    async def close(self) -> None:
        await self._lanes.close()
        await self._creates.finish()
        await self.settle_withdrawals()
        await self._db.close()


async def _take_room(c: Connection) -> None:
    """Write a row as large as a page until the table has grown, which it only does where the disk has room."""
    size = "SELECT pg_relation_size('probes')"
    before = await c.fetchval(size)
    while await c.fetchval(size) <= before:
        await c.execute("UPDATE probes SET filler = repeat('x', 8000)")
    await c.execute("UPDATE probes SET filler = NULL")


async def open_store(place: PostgresUrl, observe: Observe) -> PostgresStore:
    """The store in this database, which `migrate` has brought to this version. Opens although it is away: then nothing
    is answered until it is back.
    """
    doorstep = ConnectionBackoff(place)
    clock = DatabaseClock()
    database = Database(doorstep, await make_pool(doorstep), observe)
    return PostgresStore(database, VerifyBatcher(doorstep, clock, observe), clock)
