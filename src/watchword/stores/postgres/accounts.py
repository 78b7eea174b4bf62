"""Service accounts in PostgreSQL."""

from watchword.domain.accounts import AccountPage, ServiceAccount, no_account
from watchword.domain.actors import ActorStatus, WritePrecondition
from watchword.domain.events import Action, Event
from watchword.stores.postgres.connections import Connection
from watchword.stores.postgres.database import Database
from watchword.stores.postgres.lives import at_length, end
from watchword.stores.postgres.policies import SUSPEND
from watchword.stores.postgres.warrants import TOKENS, actor, leave_events, prove

_COLUMNS = """urn, name, description, created_at, created_by,
    EXISTS (SELECT 1 FROM actors WHERE actors.urn = service_accounts.urn AND status = 'SUSPENDED')"""
_GET = f"SELECT {_COLUMNS} FROM service_accounts WHERE urn = $1 AND deleted_at IS NULL"  # noqa: S608 - literal pieces
_ADD = "INSERT INTO service_accounts (urn, name, description, created_at, created_by) VALUES ($1, $2, $3, $4, $5)"
_MEANT = """deleted_at IS NULL
    AND ($1::text = '' OR strpos(lower(name), lower($1::text COLLATE "C")) > 0 OR strpos(urn, $1::text) > 0)"""
_LIST = f"SELECT {_COLUMNS} FROM service_accounts WHERE {_MEANT} ORDER BY name, urn LIMIT $2 OFFSET $3"  # noqa: S608
_OF = f"SELECT {_COLUMNS} FROM service_accounts WHERE created_by = $1 AND deleted_at IS NULL ORDER BY urn LIMIT $2"  # noqa: S608
_COUNT = f"SELECT count(*) FROM service_accounts WHERE {_MEANT}"  # noqa: S608
# With what dies with them, whose ever it is.
_TOKENS = (
    "SELECT dying(ARRAY(SELECT id FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL), $2, false, true, NULL)"
)


class PostgresAccounts:
    _db: Database

    async def add_account(self, precondition: WritePrecondition, account: ServiceAccount) -> None:
        async def work(c: Connection) -> None:
            now = await prove(c, precondition, changes=[actor(account.urn)])
            values = (account.urn, account.name, account.description, account.created_at, account.created_by)
            await c.execute(_ADD, *values)
            await leave_events(
                c, precondition, [Event(Action.ACCOUNT_CREATED, account.urn, {"name": account.name})], now
            )

        await self._db.write(work)

    async def get_account(self, urn: str) -> ServiceAccount:
        row = await self._db.row(_GET, urn)
        if row is None:
            raise no_account()
        return ServiceAccount(*row)

    async def accounts(self, start: int, count: int, query: str = "") -> AccountPage:
        async def work(c: Connection) -> AccountPage:
            found = await c.fetch(_LIST, query, count, start)
            return AccountPage(await c.fetchval(_COUNT, query), tuple(ServiceAccount(*row) for row in found))

        return await self._db.scan(work)

    async def accounts_of(self, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        async def work(c: Connection) -> tuple[ServiceAccount, ...]:
            return tuple(ServiceAccount(*row) for row in await c.fetch(_OF, creator, most))

        return await self._db.scan(work)

    async def delete_account(self, precondition: WritePrecondition, urn: str) -> int:
        """Nobody acts as it meanwhile, nor is any token of it made, replaced, used for the first time or ended."""

        async def work(c: Connection) -> int:
            now = await prove(c, precondition, changes=[actor(urn), TOKENS])
            if await c.fetchrow(_GET, urn) is None:
                raise no_account()
            await c.execute("UPDATE service_accounts SET deleted_at = $2 WHERE urn = $1", urn, now)
            await c.execute(SUSPEND, urn, ActorStatus.SUSPENDED.value, now, precondition.actor)
            ids = await c.fetchval(_TOKENS, urn, now)
            ended = await end(c, precondition, ids, now)
            await leave_events(c, precondition, [Event(Action.ACCOUNT_DELETED, urn, {"tokens": ended})], now)
            return ended

        return await at_length(self._db, work)
