"""The lives of tokens in SQLite: replaced, ended with all that die with them, and purged when they are long dead."""

import time
from collections.abc import Callable
from typing import Any

import apsw

from watchword.domain.actors import WritePrecondition
from watchword.domain.bulk_revocation import (
    MOST,
    MOST_ACTORS,
    Receipt,
    Revocation,
    RevocationPreview,
    Selection,
    Share,
    TokenVisibility,
    check_confirmed,
    check_count,
    receipt,
)
from watchword.domain.errors import Stale
from watchword.domain.filters import SEARCH_SECONDS, Search
from watchword.domain.idempotency import KEPT, IdempotencyRecord
from watchword.domain.ports import Clock, Issue
from watchword.domain.tokens import TokenRecord
from watchword.stores import rows
from watchword.stores.sqlite.database import Database
from watchword.stores.sqlite.issuing import check_issue, get, get_idempotency_record, keep
from watchword.stores.sqlite.searches import translate
from watchword.stores.sqlite.warrants import leave_event, prove

# Who dies with the chosen: what was derived from them and lives; the partner of a rotation while both are alive; with a
# cascade, what was minted with them. Of relatives the dead are left as they are.
_FAMILY = """
WITH RECURSIVE family (id) AS (
    SELECT id FROM tokens WHERE {chosen}
    UNION
    SELECT t.id FROM family AS f JOIN tokens AS t ON t.parent = f.id
    WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now)
    UNION
    SELECT new.id FROM family AS f JOIN tokens AS old INDEXED BY tokens_replaced ON old.id = f.id
    JOIN tokens AS new ON new.id = old.replaced_by
    WHERE old.replaced_by IS NOT NULL AND old.revoked_at IS NULL AND (old.expires_at IS NULL OR old.expires_at > :now)
    UNION
    SELECT old.id FROM family AS f JOIN tokens AS new INDEXED BY tokens_replacing ON new.id = f.id
    JOIN tokens AS old ON old.id = new.replaces
    WHERE new.replaces IS NOT NULL AND new.revoked_at IS NULL AND (new.expires_at IS NULL OR new.expires_at > :now)
      AND old.revoked_at IS NULL AND (old.expires_at IS NULL OR old.expires_at > :now)
    {minted})
"""
# A dead one leads on to what was minted with it, and to its successor, lest somebody ends one to hide the others.
_MINTED = """
    UNION
    SELECT t.id FROM family AS f JOIN tokens AS t ON t.minted_with = f.id
    UNION
    SELECT old.replaced_by FROM family AS f JOIN tokens AS old INDEXED BY tokens_replaced ON old.id = f.id
    WHERE old.replaced_by IS NOT NULL
"""
_ENDED = """
CREATE TEMP TABLE IF NOT EXISTS ended (id TEXT PRIMARY KEY, actor_urn TEXT NOT NULL) STRICT, WITHOUT ROWID
"""
_GATHER = """
INSERT INTO temp.ended SELECT id, actor_urn FROM tokens
WHERE revoked_at IS NULL AND id IN (SELECT id FROM family)
    AND (expires_at IS NULL OR expires_at > :now OR ({expired}))
LIMIT :most
"""
_SPARES = """
SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
    AND id NOT IN (SELECT id FROM temp.ended))
"""
_TELL = """
INSERT INTO events (at, actor, bearer_id, action, target, peer, request_id, detail)
SELECT :now, :actor, :bearer, 'token.revoked', id, :peer, :request,
    json_patch(
        iif(:why IS NULL OR id = :why, json_object('actorUrn', actor_urn),
            json_object('actorUrn', actor_urn, 'with', :why)),
        :more)
FROM temp.ended
"""
_PROSPECT = """
SELECT actor_urn, count(*) FROM (
    SELECT actor_urn FROM tokens
    WHERE revoked_at IS NULL AND id IN (SELECT id FROM family) AND (expires_at IS NULL OR expires_at > :now)
    LIMIT :most)
GROUP BY actor_urn ORDER BY 2 DESC, 1
"""
_MEANT = "SELECT id FROM tokens WHERE {chosen} LIMIT :most"
_LIVE_TOTAL = "SELECT count(*) FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)"
_REACH = "(actor_urn = :reach OR (:created AND owner_urn = :reach) OR (:accounts AND type = 'SERVICE_ACCOUNT'))"
# With the old token end those derived from it. Those that await their own first use must not live longer by it either.
_SHORTEN = """
WITH RECURSIVE line (id) AS (
    VALUES (:id) UNION SELECT t.id FROM line AS l JOIN tokens AS t ON t.parent = l.id
    WHERE t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > :now OR t.grace IS NOT NULL))
UPDATE tokens SET expires_at = min(ifnull(expires_at, :end), :end),
    full_end = iif(grace IS NULL, full_end, min(ifnull(full_end, :end), :end))
WHERE id IN (SELECT id FROM line) AND revoked_at IS NULL AND (
    expires_at IS NULL OR expires_at > :end OR (grace IS NOT NULL AND (full_end IS NULL OR full_end > :end)))
"""
_PURGE_RETRIES = """
DELETE FROM retries WHERE (actor, digest) IN (
    SELECT actor, digest FROM retries WHERE created_at <= :over ORDER BY created_at LIMIT :most)
"""
_LONG_REVOKED = """
SELECT id FROM tokens WHERE revoked_at IS NOT NULL AND revoked_at < :before ORDER BY revoked_at LIMIT :most
"""
_LONG_EXPIRED = """
SELECT id FROM tokens WHERE revoked_at IS NULL AND expires_at < :before ORDER BY expires_at DESC LIMIT :most
"""
_RELINK = """
UPDATE tokens SET minted_with = (SELECT maker.minted_with FROM tokens AS maker WHERE maker.id = tokens.minted_with)
WHERE minted_with IN (SELECT value FROM json_each(:ids)) AND id NOT IN (SELECT value FROM json_each(:ids))
"""


class SqliteLives:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._db = database
        self.clock = clock

    async def get_idempotency_record(self, actor: str, digest: str) -> IdempotencyRecord | None:
        return await self._db.read(lambda c: get_idempotency_record(c, actor, digest, self.clock()))

    async def note_replay(self, precondition: WritePrecondition, record: TokenRecord) -> bool:
        def work(c: apsw.Connection) -> bool:
            now = self.clock()
            prove(c, precondition, now)
            found = get(c, record.id)
            if found is None or not found.is_live(now):
                return False
            leave_event(c, precondition, rows.replayed(found), now)
            return True

        return await self._db.write(work)

    async def rotate_token(
        self, precondition: WritePrecondition, seen: TokenRecord, successor: TokenRecord, issue: Issue
    ) -> int:
        def work(c: apsw.Connection) -> int:
            now = self.clock()
            prove(c, precondition, now)
            check_issue(c, successor, issue, now)
            old = get(c, seen.id)
            if old is None or rows.course(old) != rows.course(seen) or not old.is_live(now):
                raise Stale
            ended = 0
            if old.replaced_by is not None:
                unused: dict[str, object] = {"id": old.replaced_by}
                ended = end(c, precondition, "id = :id AND revoked_at IS NULL", unused, now, why=old.id, alone=True)
            keep(c, precondition, successor, now)
            c.execute("UPDATE tokens SET replaced_by = ? WHERE id = ?", (successor.id, old.id))
            return ended

        return await self._db.write(work)

    async def note_first_use(self, precondition: WritePrecondition, token_id: str) -> None:
        def work(c: apsw.Connection) -> None:
            now = self.clock()
            new = get(c, token_id)
            if new is None or new.grace is None or not new.is_live(now):
                return
            c.execute("UPDATE tokens SET expires_at = full_end, grace = NULL WHERE id = ?", (new.id,))
            c.execute("UPDATE tokens SET replaced_at = ? WHERE id = ?", (now, new.replaces))
            c.execute(_SHORTEN, {"id": new.replaces, "end": now + new.grace, "now": now})
            leave_event(c, precondition, rows.replaced(new, now + new.grace), now)

        await self._db.write(work)

    async def revoke_token(
        self,
        precondition: WritePrecondition,
        token_id: str,
        visibility: TokenVisibility | None,
        *,
        cascade: bool = False,
    ) -> Revocation:
        def work(c: apsw.Connection) -> Revocation:
            now = self.clock()
            prove(c, precondition, now)
            record = get(c, token_id)
            if record is None or not (visibility is None or visibility.covers(record)):
                raise rows.no_token()
            if record.revoked_at is not None and not cascade:
                raise rows.already_revoked(record.revoked_at)
            # What dies with it is no reason to keep it alive; what was minted with it could be ended apart.
            limits: dict[str, Any] = {"check": check_count} if cascade else {"most": -1}
            ended = end(c, precondition, "id = :id", {"id": token_id}, now, why=token_id, cascade=cascade, **limits)
            if not ended:
                raise rows.already_revoked(record.revoked_at or now)
            return Revocation(now, ended)

        return await self._db.write(work)

    async def withdraw_token(self, precondition: WritePrecondition, token_id: str) -> int:
        return await self._db.write(lambda c: withdraw(c, precondition, token_id, self.clock()))

    async def revoke_tokens(
        self, precondition: WritePrecondition, selection: Selection, seconds: float = SEARCH_SECONDS
    ) -> Receipt:
        found = None
        if not selection.is_plain:
            found = await self._db.scan(lambda c: _meant(c, selection, self.clock()), seconds)

        def work(c: apsw.Connection) -> Receipt:
            now = self.clock()
            prove(c, precondition, now)
            ids: list[str] = []

            def check(count: int) -> None:
                check_count(count, selection.at_most)
                if not selection.may_be_all:
                    check_confirmed(selection, count, spares=bool(c.execute(_SPARES, {"now": now}).get))

            chosen, bound = _chosen(selection, now)
            if found is not None:
                chosen, bound = "id IN (SELECT value FROM json_each(:meant))", {"meant": found}
            end(c, precondition, chosen, bound, now, cascade=selection.cascade, ids=ids, check=check, expired=False)
            made = receipt(ids, now)
            leave_event(c, precondition, rows.many_revoked(selection, made), now)
            return made

        return await self._db.write(work)

    async def revocation_preview(self, selection: Selection, seconds: float = SEARCH_SECONDS) -> RevocationPreview:
        def work(c: apsw.Connection) -> RevocationPreview:
            began = time.thread_time()
            now = self.clock()
            chosen, bound = _chosen(selection, now)
            text = _FAMILY.format(chosen=chosen, minted=_MINTED if selection.cascade else "") + _PROSPECT
            found: list[Any] = c.execute(text, {**bound, "now": now, "most": MOST + 1}).fetchall()
            count = sum(number for _, number in found)
            check_count(count)
            if not selection.may_be_all:
                check_confirmed(selection, count, spares=c.execute(_LIVE_TOTAL, {"now": now}).get > count)
            shares = tuple(Share(*row) for row in found[:MOST_ACTORS])
            return RevocationPreview(count, shares, len(found), time.thread_time() - began)

        return await self._db.scan(work, seconds)

    async def purge_tokens(self, before: int, most: int) -> int:
        def work(c: apsw.Connection) -> int:
            ids = [row[0] for row in c.execute(_LONG_REVOKED, {"before": before, "most": most})]
            ids += [row[0] for row in c.execute(_LONG_EXPIRED, {"before": before, "most": most - len(ids)})]
            those = {"ids": rows.json_text(ids)}
            # What was minted with one of them counts as minted with whatever that one was: a cascade finds it still.
            for _ in range(100):  # as far as makers of makers go that leave at once
                c.execute(_RELINK, those)
                if not c.changes():
                    break
            c.execute("DELETE FROM tokens WHERE id IN (SELECT value FROM json_each(:ids))", those)
            return len(ids)

        return await self._db.write(work)

    async def purge_idempotency_records(self, most: int) -> int:
        def work(c: apsw.Connection) -> int:
            c.execute(_PURGE_RETRIES, {"over": self.clock() - KEPT, "most": most})
            return c.changes()

        return await self._db.write(work)


def end(
    c: apsw.Connection,
    precondition: WritePrecondition,
    chosen: str,
    bound: dict[str, object],
    now: int,
    *,
    why: str | None = None,
    cascade: bool = False,
    alone: bool = False,
    most: int = MOST + 1,
    ids: list[str] | None = None,
    check: Callable[[int], None] | None = None,
    expired: bool = True,
) -> int:
    """Revoke the chosen, the `expired` among them too, and who dies with them (none with `alone`), each with its event;
    returns how many. `ids` gets theirs. `check` is told how many before anything is changed, and may raise.
    """
    c.execute(_ENDED)
    c.execute("DELETE FROM temp.ended")
    family = _FAMILY.format(chosen=chosen, minted=_MINTED if cascade else "")
    if alone:
        family = f"WITH family (id) AS (SELECT id FROM tokens WHERE {chosen})"  # noqa: S608 - literal pieces
    c.execute(family + _GATHER.format(expired=chosen if expired else "false"), {**bound, "now": now, "most": most})
    count = c.changes()
    if check is not None:
        check(count)
    c.execute("UPDATE tokens SET revoked_at = ? WHERE id IN (SELECT id FROM temp.ended)", (now,))
    origin = {
        "actor": precondition.actor,
        "bearer": precondition.bearer_id,
        "peer": precondition.peer,
        "request": precondition.request_id,
    }
    more = rows.json_text({"byPossession": True} if precondition.by_possession else {})
    c.execute(_TELL, {**origin, "now": now, "why": why, "more": more})
    if ids is not None:
        ids.extend(row[0] for row in c.execute("SELECT id FROM temp.ended ORDER BY id"))
    c.execute("DELETE FROM temp.ended")
    return count


def withdraw(c: apsw.Connection, precondition: WritePrecondition, token_id: str, now: int) -> int:
    """End a token that nobody received, if it is there; returns how many were."""
    return end(c, precondition, "id = :id AND revoked_at IS NULL", {"id": token_id}, now, alone=True)


def _meant(c: apsw.Connection, selection: Selection, now: int) -> str:
    """The ids of those that are meant, one more than may be, as JSON."""
    chosen, bound = _chosen(selection, now)
    return rows.json_text([row[0] for row in c.execute(_MEANT.format(chosen=chosen), {**bound, "most": MOST + 1})])


def _chosen(selection: Selection, now: int) -> tuple[str, dict[str, object]]:
    statement = translate(Search(filters=selection.seeds), now)
    # Said once more in the words of the indexes.
    terms = [statement.where, *([] if selection.follows_dead else ["tokens.revoked_at IS NULL"])]
    bound = dict(statement.bound)
    if selection.ids is not None:
        terms.append("tokens.id IN (SELECT value FROM json_each(:ids))")
        bound["ids"] = rows.json_text(selection.ids)
    if selection.visibility is not None:
        terms.append(_REACH)
        visibility = selection.visibility
        bound |= {"reach": visibility.actor, "accounts": visibility.accounts, "created": visibility.created}
    return " AND ".join(terms), bound
