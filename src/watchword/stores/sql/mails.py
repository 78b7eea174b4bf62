"""Mails: written when their events are read, with the move of the cursor; claimed before they are sent."""

import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

import orjson

from watchword.domain.actors import ActorStatus, WritePrecondition
from watchword.domain.events import Action, Event
from watchword.domain.lifetimes import DAY, HOUR
from watchword.domain.mail import (
    DIGEST_DELAY,
    KINDS,
    MAIL_CURSOR,
    MAX_CREATED,
    MAX_ITEMS,
    RETRY_DAYS,
    Item,
    Mail,
    MailDraft,
    MailKind,
    MailRules,
    MailState,
    SendResult,
    outcome,
)
from watchword.domain.names import ACCOUNT_PREFIX
from watchword.stores import rows
from watchword.stores.sql.events import move_cursor
from watchword.stores.sql.transaction import (
    SqlPart,
    Transaction,
    actor_lock,
    check_precondition,
    delete_oldest,
    snapshot,
    transaction,
    write_events,
)

_ADD = """
INSERT INTO mails (kind, recipient, address, items, more, made_at, next_at, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'WAITING')"""
# Untried: it may still grow.
_GROWING = """
SELECT number, items, more, next_at FROM mails
WHERE recipient = $1 AND kind = $2 AND state = 'WAITING' AND attempts = 0 ORDER BY number LIMIT 1"""
_GROW = """
UPDATE mails SET address = $2, items = $3, more = $4, next_at = $5
WHERE number = $1 AND state = 'WAITING' AND attempts = 0"""
_LAST = "SELECT max(coalesce(done_at, next_at)) FROM mails WHERE recipient = $1 AND kind = $2"
_RECENT = "SELECT count(*) FROM mails WHERE recipient = $1 AND kind = $2 AND made_at > $3"
_DUE = "SELECT number FROM mails WHERE state = 'WAITING' AND next_at <= (SELECT now_ms()) ORDER BY next_at"
# As in `delete_oldest`: a subquery could claim more.
_CLAIM = f"""
WITH due AS MATERIALIZED ({_DUE} LIMIT $1 {{skip_locked}})
UPDATE mails SET attempts = attempts + 1, next_at = (SELECT now_ms()) + $2
WHERE number IN (SELECT number FROM due)
RETURNING number, kind, recipient, address, items, more, made_at, attempts"""
_SETTLE = """
UPDATE mails SET state = $3, error = $4, next_at = $5,
    done_at = CASE WHEN $3::text = 'WAITING' THEN NULL ELSE $6::bigint END
WHERE number = $1 AND attempts = $2 AND state = 'WAITING'"""
_EXPIRES = "revoked_at IS NULL AND replaced_at IS NULL AND expires_at > (SELECT now_ms())"
_PUT_OFF = rows.put("mail_preferences", "actor_urn, kinds_off", "actor_urn")


class SqlMails(SqlPart):
    @transaction
    async def add_mails(
        self, tx: Transaction, holder: str, seq: int, drafts: Sequence[MailDraft], rules: MailRules
    ) -> None:
        await move_cursor(tx, MAIL_CURSOR, holder, seq)
        if not drafts:
            return
        now = await tx.now()
        wanted = await _by_recipient(tx, [draft for draft in drafts if draft.item["at"] > now - RETRY_DAYS * DAY])
        addresses = await _addresses(tx, wanted, rules)
        for (kind, recipient), wished in wanted.items():
            items = wished
            if (address := addresses.get((kind, recipient))) is None:
                continue
            if kind is MailKind.TOKEN_EXPIRING:
                await _add_to_digest(tx, recipient, address, items, now)
                continue
            if kind is MailKind.TOKEN_CREATED:
                items = await _within_cap(tx, recipient, address, items, now)
            if items:
                values = [(kind.value, recipient, address, rows.json_text([item]), 0, now, now) for item in items]
                await tx.executemany(_ADD, values)

    async def claim_mails(self, most: int, millis: int) -> tuple[Mail, ...]:
        async def work(tx: Transaction) -> tuple[Mail, ...]:
            found = await tx.fetch(_CLAIM.format(skip_locked=tx.dialect.skip_locked), most, millis)
            mails = [
                Mail(number, KINDS[kind], recipient, address, orjson.loads(items), more, made_at, attempts)
                for number, kind, recipient, address, items, more, made_at, attempts in found
            ]
            return tuple(sorted([mail async for mail in _without_ended(tx, mails)], key=attrgetter("number")))

        # Looked for by a read first, so that an idle process writes nothing.
        if await self._db.row(f"{_DUE} LIMIT 1") is None:
            return ()
        return await self._db.write(work)

    @transaction
    async def settle_mail(
        self, tx: Transaction, mail: Mail, result: SendResult, words: str, jitter: float
    ) -> MailState:
        now = await tx.now()
        made = outcome(mail, result, words, now, jitter)
        await tx.execute(_SETTLE, mail.number, mail.attempts, made.state.value, made.error, made.next_at, now)
        return made.state

    @snapshot
    async def waiting_mails(self, tx: Transaction, most: int, *, late: bool = False) -> int:
        which = "AND (attempts > 0 OR next_at <= (SELECT now_ms()))" if late else ""
        waiting = f"SELECT 1 FROM mails WHERE state = '{MailState.WAITING.value}' {which} LIMIT $1"
        return int(await tx.fetchval(f"SELECT count(*) FROM ({waiting}) AS waiting", most))

    @transaction
    async def prune_mails(self, tx: Transaction, before: int, most: int) -> int:
        return await delete_oldest(tx, "mails", "number", "made_at", before, most)

    async def mail_kinds_off(self, actor: str) -> frozenset[MailKind]:
        row = await self._db.row("SELECT kinds_off FROM mail_preferences WHERE actor_urn = $1", actor)
        return frozenset() if row is None else _kinds(row[0])

    @transaction
    async def set_mail_kinds_off(
        self, tx: Transaction, precondition: WritePrecondition, kinds: frozenset[MailKind]
    ) -> None:
        actor = precondition.actor
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        before = await tx.fetchval("SELECT kinds_off FROM mail_preferences WHERE actor_urn = $1", actor)
        if kinds == (frozenset() if before is None else _kinds(before)):
            return
        off = [kind.value for kind in MailKind if kind in kinds]
        await tx.execute(_PUT_OFF, actor, rows.json_text(off))
        await write_events(tx, precondition, [Event(Action.ACTOR_MAIL_PREFERENCES_CHANGED, actor, {"off": off})], now)


async def _by_recipient(tx: Transaction, drafts: Iterable[MailDraft]) -> dict[tuple[MailKind, str], list[Item]]:
    """The owner of a service account gets its mail. An actor gets no mail about its own actions."""
    any_of = tx.dialect.any_of("$1")
    tokens = sorted({draft.token_id for draft in drafts if draft.token_id is not None})
    names = {row[0]: row[1] for row in await tx.fetch(f"SELECT id, name FROM tokens WHERE id {any_of}", tokens)}
    accounts = sorted({urn for draft in drafts for urn in draft.recipients if urn.startswith(ACCOUNT_PREFIX)})
    owned = f"SELECT urn, created_by FROM service_accounts WHERE urn {any_of}"
    owners = {row[0]: row[1] for row in await tx.fetch(owned, accounts)}
    wanted: dict[tuple[MailKind, str], list[Item]] = defaultdict(list)
    for draft in drafts:
        name = None if draft.token_id is None else names.get(draft.token_id)
        item = draft.item if name is None else {**draft.item, "name": name}
        for recipient in dict.fromkeys(owners.get(urn, urn) for urn in draft.recipients):
            if recipient != draft.sender or draft.kind is not MailKind.TOKEN_CREATED:
                wanted[draft.kind, recipient].append(item)
    return wanted


async def _addresses(
    tx: Transaction, wanted: Iterable[tuple[MailKind, str]], rules: MailRules
) -> dict[tuple[MailKind, str], str | None]:
    """None: no address is known, the person does not want this kind, or is suspended and learns only that."""
    people, any_of = sorted({recipient for _, recipient in wanted}), tx.dialect.any_of("$1")
    known = {
        urn: (email, status)
        for urn, email, status in await tx.fetch(f"SELECT urn, email, status FROM actors WHERE urn {any_of}", people)
    }
    off = {
        urn: _kinds(text)
        for urn, text in await tx.fetch(
            f"SELECT actor_urn, kinds_off FROM mail_preferences WHERE actor_urn {any_of}", people
        )
    }
    found: dict[tuple[MailKind, str], str | None] = {}
    for kind, recipient in wanted:
        email, status = known.get(recipient, (None, None))
        silent = status == ActorStatus.SUSPENDED.value and kind is not MailKind.ACCOUNT_SUSPENDED
        refused = silent or kind in off.get(recipient, ()) or recipient.startswith(ACCOUNT_PREFIX)
        found[kind, recipient] = None if refused else rules.address(recipient, email)
    return found


async def _add_to_digest(tx: Transaction, recipient: str, address: str, items: list[Item], now: int) -> None:
    """One digest a day: it begins a day after the last one ended, or when half of the time to an expiry is over."""
    kind = MailKind.TOKEN_EXPIRING.value
    latest = max(now, min((now + item["expiresAt"]) // 2 for item in items))
    if await _grew(tx, kind, recipient, address, items, latest):
        return
    last = await tx.fetchval(_LAST, recipient, kind)
    due = now + DIGEST_DELAY if last is None else max(now + DIGEST_DELAY, last + DAY)
    await tx.execute(_ADD, kind, recipient, address, *_shown(items), now, min(due, latest))


async def _within_cap(tx: Transaction, recipient: str, address: str, items: list[Item], now: int) -> list[Item]:
    """Those that get a mail each: MAX_CREATED an hour. The others share one mail, an hour later."""
    kind = MailKind.TOKEN_CREATED.value
    recent = await tx.fetchval(_RECENT, recipient, kind, now - HOUR)
    room = max(0, MAX_CREATED - recent)
    others = items[room:]
    if others and not await _grew(tx, kind, recipient, address, others):
        await tx.execute(_ADD, kind, recipient, address, *_shown(others), now, now + HOUR)
    return items[:room]


async def _grew(
    tx: Transaction, kind: str, recipient: str, address: str, items: list[Item], latest: int = sys.maxsize
) -> bool:
    """Add the items to the mail that may still grow, if there is one, and send it by then."""
    growing = await tx.fetchrow(_GROWING, recipient, kind)
    if growing is None:
        return False
    number, text, more, next_at = growing
    shown, surplus = _shown([*orjson.loads(text), *items])
    return bool(await tx.execute(_GROW, number, address, shown, more + surplus, min(next_at, latest)))


def _shown(items: list[Item]) -> tuple[str, int]:
    """The items that a mail names, and how many more there are."""
    return rows.json_text(items[:MAX_ITEMS]), max(0, len(items) - MAX_ITEMS)


async def _without_ended(tx: Transaction, mails: Sequence[Mail]) -> AsyncIterator[Mail]:
    """Digests name no token that is revoked, replaced or expired by now. Those that would say nothing are deleted."""
    digests = [mail for mail in mails if mail.kind is MailKind.TOKEN_EXPIRING]
    named = sorted({item["token"] for mail in digests for item in mail.items})
    expire = f"SELECT id FROM tokens WHERE id {tx.dialect.any_of('$1')} AND {_EXPIRES}"
    expiring = {row[0] for row in await tx.fetch(expire, named)} if named else set()
    for mail in mails:
        if mail.kind is not MailKind.TOKEN_EXPIRING:
            yield mail
        elif (items := [item for item in mail.items if item["token"] in expiring]) or mail.more:
            yield replace(mail, items=items)
        else:
            await tx.execute("DELETE FROM mails WHERE number = $1", mail.number)


def _kinds(text: str) -> frozenset[MailKind]:
    return frozenset(KINDS[word] for word in orjson.loads(text) if word in KINDS)
