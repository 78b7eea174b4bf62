"""Tokens in PostgreSQL: verified by shared reads, made and ended by one statement each, searched under a deadline.

Where the answer to a write was lost, what became of it is looked up; a token that nobody received is ended.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from watchword.domain.actors import Bearer, Standing, Warrant, system_warrant
from watchword.domain.errors import Fault, Stale
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.ports import Page
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.postgres.clock import DatabaseClock
from watchword.stores.postgres.connections import Connection, store_fault
from watchword.stores.postgres.creates import Creates
from watchword.stores.postgres.database import Database, Lost, unknown_outcome
from watchword.stores.postgres.lanes import Lanes
from watchword.stores.postgres.searches import Statement, folded, translate
from watchword.stores.postgres.warrants import proof

_STANDING = """
SELECT EXISTS (SELECT 1 FROM actors WHERE urn = $1 AND status = 'SUSPENDED'),
       ARRAY(SELECT group_urn FROM group_members WHERE actor_urn = $1),
       (SELECT policy_version FROM state)
"""
_GET = f"SELECT {rows.TOKEN} FROM tokens WHERE id = $1"  # noqa: S608
_REVOKE = "SELECT outcome, at FROM revoke_token($1, $2, $3, $4, $5, $6, $7)"
_WITHDRAW = "SELECT withdraw_token($1, $2, $3)"
# Locked in one order, so that no two instances that note the uses of the same tokens wait for each other.
_USES = """
UPDATE tokens SET last_used_at = seen.at
FROM unnest($1::text[], $2::bigint[]) AS seen (id, at),
     (SELECT id FROM tokens WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE) AS held
WHERE tokens.id = held.id AND seen.id = held.id AND coalesce(tokens.last_used_at, 0) < seen.at
"""
WITHDRAW_AGAIN = 1.0


class PostgresTokens:
    def __init__(self, database: Database, lanes: Lanes, clock: DatabaseClock) -> None:
        self._db = database
        self._lanes = lanes
        self.clock = clock
        self._creates = Creates(database)
        self._withdrawals: set[asyncio.Task[None]] = set()

    async def find_bearer(self, token_id: str) -> Bearer | None:
        return await self._lanes.find(token_id)

    async def standing(self, actor: str) -> Standing:
        suspended, groups, version = await self._db.row(_STANDING, actor)
        return Standing(suspended, tuple(groups), version)

    async def get_token(self, token_id: str) -> TokenRecord | None:
        row = await self._db.row(_GET, token_id)
        return None if row is None else rows.token_of(row)

    async def add_token(self, warrant: Warrant, record: TokenRecord, kid: str, max_live: int) -> None:
        detail = rows.json_text(rows.created(record).detail)
        bound = (
            *(*proof(warrant), warrant.peer, warrant.request_id, kid, max_live, detail),
            *(*rows.token_values(record), folded(record.name), folded(record.description)),
        )
        deadline = self._db.deadline()
        lost: BaseException | None = None
        outcome = "again"
        try:
            while outcome == "again":
                try:
                    outcome = await self._creates.add(bound, deadline)
                except Lost as error:
                    lost = error.why  # asked for again under the same id: it is kept once
        except Fault as fault:
            if lost is None:
                raise
            self._withdraw(record.id)
            raise unknown_outcome(lost) from fault
        if outcome == "there" and lost is not None:
            outcome = "kept"  # by an earlier attempt
        if lost is not None and outcome != "kept":
            self._withdraw(record.id)  # the first request may still be on its way
        match outcome:
            case "kept":
                return
            case "suspended":
                raise rows.actor_suspended()
            case "full":
                raise rows.no_room(max_live)
            case "there":
                raise store_fault(ValueError(f"the id {record.id} was given before"))
            case _:
                raise Stale

    async def revoke_token(self, warrant: Warrant, token_id: str, only_of: str | None) -> int:
        bound = (*proof(warrant), warrant.peer, warrant.request_id, token_id, only_of)
        deadline = self._db.deadline()
        lost: BaseException | None = None
        while True:
            try:
                outcome, at = await self._db.call(_REVOKE, *bound, deadline=deadline)
                break
            except Lost as error:
                lost = error.why  # asked again: a token is revoked once, however often that is said
            except Fault as fault:
                if lost is None:
                    raise
                raise unknown_outcome(lost) from fault
        if outcome == "already" and lost is not None:
            outcome = "revoked" if await self._revoked_here(warrant, token_id) else outcome
        match outcome:
            case "revoked":
                revoked_at: int = at
                return revoked_at
            case "already":
                raise rows.already_revoked(at)
            case "unknown":
                raise rows.no_token()
            case _:
                raise Stale

    async def search(self, search: Search, seconds: float = SEARCH_SECONDS) -> Page:
        statement = translate(search)
        if statement.inline:
            return await self._db.read(lambda c: _page(c, statement))
        return await self._db.scan(lambda c: _page(c, statement), seconds)

    async def record_uses(self, uses: Mapping[str, int]) -> None:
        with suppress(Lost):
            await self._db.call(_USES, list(uses), list(uses.values()))

    async def settle_withdrawals(self) -> None:
        """At the end: a last moment for what nobody received."""
        if self._withdrawals:
            await asyncio.wait(self._withdrawals, timeout=self._db.timeout)
        for task in list(self._withdrawals):
            task.cancel()
        await asyncio.gather(*self._withdrawals, return_exceptions=True)

    async def _revoked_here(self, warrant: Warrant, token_id: str) -> bool:
        """Whether the revocation was ours, of an earlier attempt."""
        statement = "SELECT actor, request_id FROM events WHERE target = $1 AND action = 'token.revoked'"
        row = await self._db.row(statement, token_id)
        return row is not None and tuple(row) == (warrant.actor, warrant.request_id)

    def _withdraw(self, token_id: str) -> None:
        task = asyncio.get_running_loop().create_task(self._withdrawn(token_id))
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _withdrawn(self, token_id: str) -> None:
        system = system_warrant("undelivered")
        while True:
            try:
                await self._db.call(_WITHDRAW, token_id, system.actor, system.peer)
            except (Fault, Lost):
                await asyncio.sleep(WITHDRAW_AGAIN)
            else:
                return


async def _page(c: Connection, statement: Statement) -> Page:
    found = await c.fetch(statement.text, *statement.bound)
    total = found[0][0]
    return Page(total, tuple(rows.token_of(row[1:]) for row in found if row[1] is not None))
