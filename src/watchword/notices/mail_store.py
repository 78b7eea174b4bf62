"""Mails: written when their events are read, with the move of the cursor; claimed before they are sent."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import orjson

from watchword.authority.callers import ActorStatus
from watchword.authority.store import check_precondition
from watchword.basics.names import ACCOUNT_PREFIX
from watchword.basics.times import DAY, HOUR
from watchword.database import rows
from watchword.database.transaction import Transaction, actor_lock, delete_oldest, snapshot, transaction
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition
from watchword.journal.store import EventStore, move_cursor, write_events
from watchword.notices import mail_rules as rules
from watchword.notices.mail_rules import Item, Mail, MailDraft, MailKind, MailRules, MailState, SendResult

_ADD = """
INSERT INTO mails (kind, recipient, address, items, more, made_at, next_at, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'WAITING')"""
# Untried: it may still grow.
_GROWING = """
SELECT number, items, more, next_at FROM mails
WHERE recipient = $1 AND kind = $2 AND state = 'WAITING' AND attempts = 0 ORDER BY number LIMIT 1"""
_GROW = "UPDATE mails SET address = $2, items = $3, more = $4, next_at = $5 WHERE number = $1"
_LAST = f"SELECT coalesce(max(coalesce(done_at, next_at)) + {DAY}, 0) FROM mails WHERE recipient = $1 AND kind = $2"
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
_PEOPLE = """
SELECT value, email, status, kinds_off FROM {} LEFT JOIN actors ON urn = value
LEFT JOIN mail_preferences ON actor_urn = value"""
_PUT_OFF = rows.put("mail_preferences", "actor_urn, kinds_off", "actor_urn")


class MailStore(EventStore):
    @transaction
    async def add_mails(
        self, tx: Transaction, holder: str, seq: int, drafts: Sequence[MailDraft], sending: MailRules
    ) -> None:
        """Write the mails of the events up to this number, for people with an address who want them, and move the
        cursor of mail there, in one transaction. `CursorLost` as `move_cursor`.
        """
        await move_cursor(tx, rules.MAIL_CURSOR, holder, seq)
        if not drafts:
            return
        now = await tx.now()
        wanted = await _by_recipient(tx, [draft for draft in drafts if draft.item["at"] > now - rules.RETRY_DAYS * DAY])
        addresses = await _addresses(tx, wanted, sending)
        for (kind, recipient), items in wanted.items():
            if address := addresses.get((kind, recipient)):
                await _add(tx, kind, recipient, address, items, now)

    async def claim_mails(self, most: int, millis: int) -> tuple[Mail, ...]:
        """Return mails that are due. They are due again after `millis` milliseconds, unless they are settled."""

        async def work(tx: Transaction) -> tuple[Mail, ...]:
            found = await tx.fetch(_CLAIM.format(skip_locked=tx.dialect.skip_locked), most, millis)
            mails = [
                Mail(number, rules.KINDS[kind], recipient, address, orjson.loads(items), more, made_at, attempts)
                for number, kind, recipient, address, items, more, made_at, attempts in sorted(
                    found, key=lambda row: row[0]
                )
            ]
            return await _without_ended(tx, mails)

        # Looked for by a read first, so that an idle process writes nothing.
        if await self._db.row(f"{_DUE} LIMIT 1") is None:
            return ()
        return await self._db.write(work)

    @transaction
    async def settle_mail(
        self, tx: Transaction, mail: Mail, result: SendResult, words: str, jitter: float
    ) -> MailState:
        """Record the outcome of an attempt, unless there was a later one; `jitter` as in `mail.outcome`."""
        now = await tx.now()
        made = rules.outcome(mail, result, words, now, jitter)
        await tx.execute(_SETTLE, mail.number, mail.attempts, made.state.value, made.error, made.next_at, now)
        return made.state

    @snapshot
    async def waiting_mails(self, tx: Transaction, most: int, *, late: bool = False) -> int:
        """How many mails wait, counted up to `most`; with `late` only those that are due or were tried before."""
        which = "AND (attempts > 0 OR next_at <= (SELECT now_ms()))" if late else ""
        waiting = f"SELECT 1 FROM mails WHERE state = '{MailState.WAITING.value}' {which} LIMIT $1"
        return int(await tx.fetchval(f"SELECT count(*) FROM ({waiting}) AS waiting", most))

    @transaction
    async def prune_mails(self, tx: Transaction, before: int, most: int) -> int:
        """Delete at most `most` mails that were written before this time; returns how many."""
        return await delete_oldest(tx, "mails", "number", "made_at", before, most)

    async def mail_kinds_off(self, actor: str) -> frozenset[MailKind]:
        """The kinds that this person does not want."""
        row = await self._db.row("SELECT kinds_off FROM mail_preferences WHERE actor_urn = $1", actor)
        return _kinds(None if row is None else row[0])

    @transaction
    async def set_mail_kinds_off(
        self, tx: Transaction, precondition: WritePrecondition, kinds: frozenset[MailKind]
    ) -> None:
        """Of the actor of the precondition."""
        actor = precondition.actor
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        before = await tx.fetchval("SELECT kinds_off FROM mail_preferences WHERE actor_urn = $1", actor)
        if kinds == _kinds(before):
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
    tx: Transaction, wanted: Iterable[tuple[MailKind, str]], sending: MailRules
) -> dict[tuple[MailKind, str], str]:
    """Without those whose address is unknown, who do not want this kind, or who are suspended and learn only that."""
    people = sorted({recipient for _, recipient in wanted})
    known = {person: rest for person, *rest in await tx.fetch(_PEOPLE.format(tx.dialect.each_of("$1", "text")), people)}
    found: dict[tuple[MailKind, str], str] = {}
    for kind, recipient in wanted:
        email, status, off = known[recipient]
        silent = status == ActorStatus.SUSPENDED.value and kind is not MailKind.ACCOUNT_SUSPENDED
        refused = silent or kind in _kinds(off) or recipient.startswith(ACCOUNT_PREFIX)
        if not refused and (address := sending.address(recipient, email)):
            found[kind, recipient] = address
    return found


async def _add(tx: Transaction, kind: MailKind, recipient: str, address: str, items: list[Item], now: int) -> None:
    """A mail for each item, but of expiring tokens one digest a day, and of tokens that someone else created at most
    MAX_CREATED an hour: the others share one mail, an hour later.
    """
    alone = items
    if kind is MailKind.TOKEN_EXPIRING:
        # It begins a day after the last one ended, or when half of the time to an expiry is over.
        latest = max(now, min((now + item["expiresAt"]) // 2 for item in items))
        due = max(now + rules.DIGEST_DELAY, await tx.fetchval(_LAST, recipient, kind.value))
        await _add_to_digest(tx, kind, recipient, address, items, now, due, latest)
        return
    if kind is MailKind.TOKEN_CREATED:
        room = max(0, rules.MAX_CREATED - await tx.fetchval(_RECENT, recipient, kind.value, now - HOUR))
        alone, others = items[:room], items[room:]
        if others:
            await _add_to_digest(tx, kind, recipient, address, others, now, now + HOUR, now + HOUR)
    values = [(kind.value, recipient, address, rows.json_text([item]), 0, now, now) for item in alone]
    await tx.executemany(_ADD, values)


async def _add_to_digest(
    tx: Transaction, kind: MailKind, recipient: str, address: str, items: list[Item], now: int, due: int, latest: int
) -> None:
    """To the mail that may still grow, if there is one, or to one that is sent when it is due; by `latest` at last."""
    growing = await tx.fetchrow(f"{_GROWING} {tx.dialect.for_update}", recipient, kind.value)
    if growing is None:
        await tx.execute(_ADD, kind.value, recipient, address, *_shown(items), now, min(due, latest))
        return
    number, text, more, next_at = growing
    shown, surplus = _shown([*orjson.loads(text), *items])
    await tx.execute(_GROW, number, address, shown, more + surplus, min(next_at, latest))


def _shown(items: list[Item]) -> tuple[str, int]:
    """The items that a mail names, and how many more there are."""
    return rows.json_text(items[: rules.MAX_ITEMS]), max(0, len(items) - rules.MAX_ITEMS)


async def _without_ended(tx: Transaction, mails: Sequence[Mail]) -> tuple[Mail, ...]:
    """Digests name no token that is revoked, replaced or expired by now. Those that would say nothing are deleted."""
    digests = {mail.number: mail for mail in mails if mail.kind is MailKind.TOKEN_EXPIRING}
    if not digests:
        return tuple(mails)
    named = sorted({item["token"] for mail in digests.values() for item in mail.items})
    expire = f"SELECT id FROM tokens WHERE id {tx.dialect.any_of('$1')} AND {_EXPIRES}"
    expiring = {row[0] for row in await tx.fetch(expire, named)}
    left = [
        replace(mail, items=[item for item in mail.items if item["token"] in expiring])
        if mail.number in digests
        else mail
        for mail in mails
    ]
    empty = [(mail.number,) for mail in left if not mail.items and not mail.more]
    await tx.executemany("DELETE FROM mails WHERE number = $1", empty)
    return tuple(mail for mail in left if mail.items or mail.more)


def _kinds(text: str | None) -> frozenset[MailKind]:
    return frozenset(rules.KINDS[word] for word in orjson.loads(text or "[]") if word in rules.KINDS)
