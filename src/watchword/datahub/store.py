"""People and tokens that come from DataHub. Importing the same again changes nothing."""

import asyncio
import fcntl
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from watchword.access.actor_rules import ProfileField
from watchword.access.actor_store import put_profile, put_status
from watchword.authority.callers import ActorStatus
from watchword.authority.store import check_precondition
from watchword.basics.errors import OperatorError
from watchword.basics.files import open_lock
from watchword.basics.names import SYSTEM_ACTOR
from watchword.basics.times import DAY
from watchword.database import rows
from watchword.database.transaction import TOKENS, SqlPart, Transaction, actor_lock, long_transaction, snapshot
from watchword.database.urls import SqliteUrl, StoreUrl
from watchword.datahub.rules import ImportedPerson, ImportStatus, PersonChange, TokenMatch
from watchword.journal.events import Action, Detail, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import write_events
from watchword.signin.session_store import end_sessions
from watchword.tokens.revoke_store import MEMBER, revoke, revoked_together
from watchword.tokens.rows import insert_tokens
from watchword.tokens.rules import TokenRecord, TokenType
from watchword.tokens.store import shorten

IMPORTS = "imports"
"""The name of a lock: one import writes at a time."""
LOCK_SECONDS = 5.0
"""How long an import waits for another one."""
SOURCE: dict[str, Detail] = {"source": "datahub"}
_LIVE = """
SELECT i.id FROM imported_tokens AS i JOIN tokens AS t ON t.id = i.id
WHERE i.id > $1 AND i.id <= $2 AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > $3)
ORDER BY i.id LIMIT $4"""
_ADD = "INSERT INTO imported_tokens (id, expires_at) VALUES ($1, $2)"
_FOUND = "id, name, expires_at, revoked_at"
MAX_COUNTED = 10_000
_STATUS = f"""
SELECT count(*), count(live.id), count(*) FILTER (WHERE live.id IS NOT NULL AND live.expires_at IS NULL),
    count(*) FILTER (WHERE live.last_used_at >= $2), max(live.expires_at),
    (SELECT max(at) FROM events WHERE action = '{Action.DATAHUB_IMPORTED.value}')
FROM (SELECT id FROM imported_tokens ORDER BY id LIMIT {MAX_COUNTED}) AS imported
LEFT JOIN tokens AS live ON live.id = imported.id AND live.revoked_at IS NULL
    AND (live.expires_at IS NULL OR live.expires_at > $1)
    AND NOT EXISTS (
        SELECT 1 FROM actors AS a WHERE a.urn = live.actor_urn AND a.status = '{ActorStatus.SUSPENDED.value}')"""

# In DataHub. What is kept of a dead token must last as long as its row there.
_CHANGED_EXPIRY = {TokenMatch.SHORTENED, TokenMatch.EXPIRY_DIFFERS, TokenMatch.DEAD_CHANGED}
_EXTERNAL = "SELECT DISTINCT group_urn FROM group_members WHERE external = 1 AND group_urn {}"

PersonChanges = list[tuple[ImportedPerson, PersonChange]]


class ImportStore(SqlPart):
    """What an import from DataHub writes. With `dry_run` nothing is written; the result is the same."""

    def __init__(self, store: SqlPart) -> None:
        self._db = store.database

    async def import_people(
        self, precondition: WritePrecondition, people: Sequence[ImportedPerson], *, dry_run: bool
    ) -> PersonChanges:
        """Suspend those who are suspended there; resume those whom an import suspended; fill in a display name or
        e-mail address that is missing here. Returns the changes.
        """
        found = await self._db.scan(partial(_people_changes, people=people))
        changed = list({person.urn: person for person, _ in found}.values())
        if dry_run or all(change is PersonChange.STAYS_SUSPENDED for _, change in found):
            return found
        return await self._db.write_long(partial(_change_people, precondition=precondition, people=changed))

    async def import_tokens(
        self, precondition: WritePrecondition, records: Sequence[TokenRecord], *, dry_run: bool
    ) -> list[TokenMatch]:
        """Add the tokens that are not here and never were, in one transaction; of the others, an earlier expiry counts.
        Returns how each relates to what was here. The limit on the number of tokens does not apply.
        """
        matches = await self._db.scan(partial(_matches, records=records))
        same = (TokenMatch.UNCHANGED, TokenMatch.OWN, TokenMatch.DEAD, TokenMatch.NAME_DIFFERS)
        if dry_run or all(match in same for match in matches):
            return matches
        # A changed expiry counts for the family too.
        whole = not _CHANGED_EXPIRY.isdisjoint(matches)
        return await self._db.write_long(
            partial(_import_tokens, precondition=precondition, records=records, whole=whole)
        )

    @snapshot
    async def external_groups(self, tx: Transaction, urns: Sequence[str]) -> set[str]:
        """Those of these that are groups of the identity provider."""
        return {urn for (urn,) in await tx.fetch(_EXTERNAL.format(tx.dialect.any_of("$1")), list(urns))}

    @snapshot
    async def imported_tokens(self, tx: Transaction, after: str, until: str, most: int) -> list[str]:
        """The ids of imported live tokens after the first and up to the second, in order."""
        return [row[0] for row in await tx.fetch(_LIVE, after, until, await tx.now(), most)]

    @snapshot
    async def import_status(self, tx: Transaction) -> ImportStatus:
        now = await tx.now()
        found = await tx.fetchrow(_STATUS, now, now - 30 * DAY)
        assert found is not None
        return ImportStatus(*found)

    @long_transaction
    async def revoke_imported(self, tx: Transaction, precondition: WritePrecondition, ids: Sequence[str]) -> int:
        """Revoke imported tokens as `revoke_token` does; returns how many were revoked."""
        now = await check_precondition(tx, precondition, exclusive=[TOKENS])
        imported = f"id {tx.dialect.any_of('$1')} AND id IN (SELECT id FROM imported_tokens)"
        seeds = await tx.fetch(f"SELECT {MEMBER} FROM tokens WHERE {imported} AND revoked_at IS NULL", list(ids))
        revoked = await revoked_together(tx, seeds, now, cascade=False, expired=False, most=sys.maxsize)
        return await revoke(tx, precondition, list(revoked), now, lock_rows=False, detail=SOURCE)


async def _people_changes(tx: Transaction, people: Sequence[ImportedPerson]) -> PersonChanges:
    any_of, urns = tx.dialect.any_of("$1"), [person.urn for person in people]
    sql = f"SELECT urn, status, changed_by, display_name, email FROM actors WHERE urn {any_of}"
    known = {row[0]: row[1:] for row in await tx.fetch(sql, urns)}
    deleted = f"SELECT urn FROM service_accounts WHERE deleted_at IS NOT NULL AND urn {any_of}"
    dead = {urn for (urn,) in await tx.fetch(deleted, urns)}
    changes: PersonChanges = []
    for person in people:
        status, changed_by, *profile = known.get(person.urn, (ActorStatus.ACTIVE.value, None, None, None))
        is_suspended = status == ActorStatus.SUSPENDED.value
        if person.suspended and not is_suspended:
            changes.append((person, PersonChange.SUSPENDED))
        elif person.suspended is False and is_suspended:
            # Only an import suspends in the name of the system. An actor that a person suspended here stays suspended.
            resumes = changed_by == SYSTEM_ACTOR and person.urn not in dead
            changes.append((person, PersonChange.RESUMED if resumes else PersonChange.STAYS_SUSPENDED))
        here = dict(zip(ProfileField, profile, strict=True))
        if any(value is not None and here[name] is None for name, value in person.profile.items()):
            changes.append((person, PersonChange.NAMED))
    return changes


async def _change_people(
    tx: Transaction, precondition: WritePrecondition, people: Sequence[ImportedPerson]
) -> PersonChanges:
    locks = [actor_lock(person.urn) for person in people]
    now = await check_precondition(tx, precondition, exclusive=locks)
    changes = await _people_changes(tx, people)
    for person, change in changes:
        if change is PersonChange.SUSPENDED:
            await put_status(tx, precondition, person.urn, ActorStatus.SUSPENDED, now)
            await end_sessions(tx, precondition, person.urn, now)
            await write_events(tx, precondition, [Event(Action.ACTOR_SUSPENDED, person.urn, {**SOURCE})], now)
        elif change is PersonChange.RESUMED:
            await put_status(tx, precondition, person.urn, ActorStatus.ACTIVE, now)
            await write_events(tx, precondition, [Event(Action.ACTOR_RESUMED, person.urn, {**SOURCE})], now)
        elif change is PersonChange.NAMED:
            row = await tx.fetchrow("SELECT display_name, email FROM actors WHERE urn = $1", person.urn)
            here = dict(zip(ProfileField, row or (None, None), strict=True))
            missing = {name: value for name, value in person.profile.items() if here[name] is None}
            await put_profile(tx, precondition, person.urn, missing, now)
    return changes


async def _matches(tx: Transaction, records: Sequence[TokenRecord]) -> list[TokenMatch]:
    any_of, ids = tx.dialect.any_of("$1"), [record.id for record in records]
    known = {row[0]: row[1:] for row in await tx.fetch(f"SELECT {_FOUND} FROM tokens WHERE id {any_of}", ids)}
    sql = f"SELECT id, expires_at FROM imported_tokens WHERE id {any_of}"
    imported = {row[0]: row[1] for row in await tx.fetch(sql, ids)}
    return [_match(record, known.get(record.id), imported) for record in records]


def _match(record: TokenRecord, here: rows.Row | None, imported: dict[str, int | None]) -> TokenMatch:
    if record.id not in imported:
        return TokenMatch.NEW if here is None else TokenMatch.OWN
    is_same = record.expires_at == imported[record.id]
    if here is None or here[-1] is not None:
        return TokenMatch.DEAD if is_same else TokenMatch.DEAD_CHANGED
    name, expires_at, _revoked_at = here
    if not is_same:
        earlier = record.expires_at is not None and (expires_at is None or record.expires_at < expires_at)
        return TokenMatch.SHORTENED if earlier else TokenMatch.EXPIRY_DIFFERS
    return TokenMatch.UNCHANGED if name == record.name else TokenMatch.NAME_DIFFERS


async def _import_tokens(
    tx: Transaction, precondition: WritePrecondition, records: Sequence[TokenRecord], *, whole: bool
) -> list[TokenMatch]:
    """Import tokens; `whole` locks all families."""
    accounts = {record.actor_urn for record in records if record.type is TokenType.SERVICE_ACCOUNT}
    shared, exclusive = [actor_lock(urn) for urn in accounts], [IMPORTS]
    (exclusive if whole else shared).append(TOKENS)
    now = await check_precondition(tx, precondition, shared=shared, exclusive=exclusive)
    live = f"SELECT urn FROM service_accounts WHERE deleted_at IS NULL AND urn {tx.dialect.any_of('$1')}"
    missing = accounts - {urn for (urn,) in await tx.fetch(live, sorted(accounts))}
    matches = [
        TokenMatch.NO_ACCOUNT if match is TokenMatch.NEW and record.actor_urn in missing else match
        for record, match in zip(records, await _matches(tx, records), strict=True)
    ]
    pairs = list(zip(records, matches, strict=True))
    new = [record for record, match in pairs if match is TokenMatch.NEW]
    await tx.take_slot()
    await insert_tokens(tx, new)
    await tx.executemany(_ADD, [(record.id, record.expires_at) for record in new])
    await write_events(tx, precondition, [_imported_event(record) for record in new], now)
    for record, match in pairs if whole else ():
        if match in _CHANGED_EXPIRY:
            await tx.execute("UPDATE imported_tokens SET expires_at = $2 WHERE id = $1", record.id, record.expires_at)
        if match is TokenMatch.SHORTENED and record.expires_at is not None:
            await shorten(tx, record.id, record.expires_at, now)
    return matches


def _imported_event(record: TokenRecord) -> Event:
    detail: dict[str, Detail] = {"name": record.name, "actorUrn": record.actor_urn}
    return Event(Action.TOKEN_IMPORTED, record.id, {**detail, "expiresAt": record.expires_at})


@asynccontextmanager
async def import_lock(url: StoreUrl) -> AsyncIterator[None]:
    """One import at a time, so that none writes what it read before another one. The lock ends with the process."""
    if isinstance(url, SqliteUrl):
        descriptor = open_lock(url.path.with_name(url.path.name + ".import-lock"))

        async def lock_file() -> bool:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            await _until_locked(lock_file)
            yield
        finally:
            os.close(descriptor)
    else:
        from watchword.database.postgres.maintenance import lock_imports, maintenance_connection

        async with maintenance_connection(url) as connection:
            await _until_locked(lambda: lock_imports(connection, url.schema))
            yield


async def _until_locked(is_locked: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while not await is_locked():
        if time.monotonic() >= deadline:
            raise OperatorError("Another import into this store is running. Try again when it has ended.")
        await asyncio.sleep(0.2)
