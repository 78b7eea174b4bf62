"""Browser sessions, and the sign-ins of people: their identities, groups and names."""

from abc import abstractmethod
from collections.abc import Sequence

from watchword.access.actor_store import put_profile
from watchword.authority.callers import ActorStatus
from watchword.authority.store import check_precondition
from watchword.basics.errors import Fault, Reason
from watchword.basics.times import HOUR
from watchword.database import rows
from watchword.database.transaction import (
    POLICIES,
    SqlPart,
    Transaction,
    actor_lock,
    delete_oldest,
    page,
    snapshot,
    transaction,
)
from watchword.journal.events import Action, Event
from watchword.journal.preconditions import WritePrecondition, system_precondition
from watchword.journal.store import write_events
from watchword.signin import session_rules as rules
from watchword.signin.session_rules import Session

_ADD = rows.insert("sessions", rows.SESSION)
# The limit is none: only the offset counts.
_SURPLUS = """
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE {of} ORDER BY created_at DESC, id LIMIT 1000000000 OFFSET $2)"""
# The nth most recent sign-in. By the index on targets: the action must not choose another.
_EARLIER = """
SELECT at FROM events WHERE target = $1 AND at > $2 AND action || '' = 'session.started'
ORDER BY at DESC LIMIT 1 OFFSET $3"""

_IDENTITY = "issuer, subject, actor_urn, linked_at, signed_in_at"
_PUT_IDENTITY = rows.put("identities", _IDENTITY, "issuer, subject", "signed_in_at")
_IDENTITY_OF = f"SELECT {_IDENTITY} FROM identities WHERE actor_urn = $1"
_LINKED_TO = "SELECT actor_urn FROM identities WHERE issuer = $1 AND subject = $2"
_EXTERNAL = "SELECT group_urn FROM group_members WHERE actor_urn = $1 AND external = 1"


class SessionStore(SqlPart):
    @transaction
    async def add_session(
        self, tx: Transaction, precondition: WritePrecondition, session: Session, most: int, an_hour: int
    ) -> None:
        """Add a session. Beyond `most` for one token, or for one actor without a token, the oldest end. More than
        `an_hour` within an hour: TOO_MANY_SIGN_INS.
        """
        now = await check_precondition(tx, precondition, exclusive=[_session_lock(session)])
        await _add(tx, precondition, session, most, an_hour, now)

    @transaction
    async def sign_in(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        person: rules.Person,
        session: Session,
        most: int,
        an_hour: int,
    ) -> None:
        """Add the session of a person as above, and in the same transaction store what the sign-in says: identity,
        groups, display name and e-mail. SIGN_IN_REFUSED if the actor is suspended, or linked to another person, or the
        person to another actor. Groups whose urn is that of a group made here are left out.
        """
        locks = [POLICIES, actor_lock(person.actor), _session_lock(session)]
        now = await check_precondition(tx, precondition, exclusive=locks)
        if await tx.fetchval("SELECT status FROM actors WHERE urn = $1", person.actor) == ActorStatus.SUSPENDED.value:
            raise Fault(Reason.SIGN_IN_REFUSED, "This actor is suspended.")
        events = await _link_first(tx, person, now)
        events += await _replace_groups(tx, person)
        await write_events(tx, precondition, events, now)
        await put_profile(tx, precondition, person.actor, person.profile, now)
        await _add(tx, precondition, session, most, an_hour, now)

    @abstractmethod
    async def find_session(self, session_id: str) -> rules.FoundSession | None:
        """The session with this digest, if it has not ended, and its token, in one read."""

    @transaction
    async def touch_session(self, tx: Transaction, session_id: str, at: int) -> None:
        await tx.execute("UPDATE sessions SET seen_at = $2 WHERE id = $1 AND seen_at < $2", session_id, at)

    @snapshot
    async def sessions(
        self, tx: Transaction, actor: str | None, seen_after: int, start: int, count: int
    ) -> rules.SessionPage:
        """The live sessions of an actor, or of all, that were used after this time, the last used first."""
        live = "sessions WHERE ends_at > $1 AND seen_at > $2" + ("" if actor is None else " AND actor_urn = $3")
        bound = [await tx.now(), seen_after, *([] if actor is None else [actor])]
        total, found = await page(tx, rows.SESSION, live, "seen_at DESC, id", start, count, bound)
        return rules.SessionPage(total, tuple(Session(*row) for row in found))

    @transaction
    async def end_session(
        self, tx: Transaction, precondition: WritePrecondition, session_id: str, actor: str | None = None
    ) -> None:
        """SESSION_NOT_FOUND if there is none, or it is not the actor's."""
        now = await check_precondition(tx, precondition)
        mine = "id = $1 AND ($2::text IS NULL OR actor_urn = $2::text)"
        ended = await tx.fetch(f"DELETE FROM sessions WHERE {mine} RETURNING {rows.SESSION}", session_id, actor)
        if not ended:
            raise Fault(Reason.SESSION_NOT_FOUND, "There is no session with this id.")
        await write_events(tx, precondition, [Session(*ended[0]).event(Action.SESSION_ENDED)], now)

    @transaction
    async def end_sessions_of(self, tx: Transaction, precondition: WritePrecondition, actor: str) -> int:
        """End all sessions of an actor; returns how many were live. There is one event for all."""
        now = await check_precondition(tx, precondition)
        return await end_sessions(tx, precondition, actor, now)

    @transaction
    async def end_sessions_by_notice(
        self, tx: Transaction, precondition: WritePrecondition, notice: rules.LogoutNotice
    ) -> int:
        """End the sessions that the notice names, unless they began after it; returns how many."""
        now = await check_precondition(tx, precondition)
        sql = f"""DELETE FROM sessions WHERE issuer = $1 AND ($2::text IS NULL OR subject = $2::text)
            AND ($3::text IS NULL OR sid = $3::text) AND created_at <= $4 RETURNING {rows.SESSION}"""
        ended = await tx.fetch(sql, notice.issuer, notice.subject, notice.sid, notice.at)
        await write_events(tx, precondition, [Session(*row).event(Action.SESSION_ENDED) for row in ended], now)
        return len(ended)

    @transaction
    async def purge_sessions(self, tx: Transaction, most: int) -> int:
        """Delete at most `most` sessions that have ended; returns how many."""
        return await delete_oldest(tx, "sessions", "id", "ends_at", await tx.now() + 1, most)

    @snapshot
    async def membership(self, tx: Transaction, actor: str) -> rules.Membership:
        row = await tx.fetchrow(_IDENTITY_OF, actor)
        groups = await tx.fetch(
            "SELECT group_urn, external FROM group_members WHERE actor_urn = $1 ORDER BY group_urn", actor
        )
        return rules.Membership(
            tuple(urn for urn, external in groups if not external),
            tuple(urn for urn, external in groups if external),
            None if row is None else rules.LinkedIdentity(rules.Identity(*row[:2]), *row[3:]),
        )

    @transaction
    async def link_actor(
        self, tx: Transaction, precondition: WritePrecondition, actor: str, identity: rules.Identity | None
    ) -> None:
        """Link an actor to a person, or to none; its groups and sessions by sign-in end. IDENTITY_LINKED if the person
        is linked to another actor.
        """
        now = await check_precondition(tx, precondition, exclusive=[POLICIES, actor_lock(actor)])
        before = await tx.fetchrow(_IDENTITY_OF, actor)
        if (None if before is None else rules.Identity(*before[:2])) == identity:
            return
        if identity is not None and (other := await tx.fetchval(_LINKED_TO, *identity)) is not None:
            raise Fault(Reason.IDENTITY_LINKED, f"This person is linked to {other}. Unlink that first.", actorUrn=other)
        await tx.execute("DELETE FROM identities WHERE actor_urn = $1", actor)
        # The sessions, approvals and groups belong to the person who was linked before.
        ended = await end_sessions(tx, precondition, actor, now, by_provider=True)
        approvals = await tx.execute("DELETE FROM devices WHERE actor_urn = $1 AND status = 'APPROVED'", actor)
        events = await _set_groups(tx, actor, frozenset(), frozenset())
        if identity is not None:
            await tx.execute(_PUT_IDENTITY, *identity, actor, now, None)
        events.append(_linked(actor, identity, sessions=ended, approvals=approvals))
        await write_events(tx, precondition, events, now)

    @transaction
    async def drop_external_groups(self, tx: Transaction, before: int, most: int) -> int:
        """Drop the groups of at most `most` actors whose last sign-in was before this time; returns of how many."""
        by = system_precondition("groups")
        now = await check_precondition(tx, by, exclusive=[POLICIES])
        old = await tx.fetch(
            """SELECT actor_urn FROM identities AS i WHERE signed_in_at < $1 AND EXISTS (
                SELECT 1 FROM group_members AS m WHERE m.actor_urn = i.actor_urn AND external = 1) LIMIT $2""",
            before,
            most,
        )
        events = [event for (actor,) in old for event in await _set_groups(tx, actor, frozenset(), frozenset())]
        await write_events(tx, by, events, now)
        return len(old)


async def end_sessions(
    tx: Transaction, precondition: WritePrecondition, actor: str, now: int, *, by_provider: bool = False
) -> int:
    """With `by_provider`, only those that signed in at the identity provider. Returns how many were live."""
    which = " AND issuer IS NOT NULL" if by_provider else ""
    ends = await tx.fetch(f"DELETE FROM sessions WHERE actor_urn = $1{which} RETURNING ends_at", actor)
    live = sum(1 for (ends_at,) in ends if ends_at > now)
    if live:
        event = Event(Action.SESSION_ENDED, actor, {"actorUrn": actor, "sessions": live})
        await write_events(tx, precondition, [event], now)
    return live


def _session_lock(session: Session) -> str:
    return f"sessions:{session.holder}"


async def _add(
    tx: Transaction, precondition: WritePrecondition, session: Session, most: int, an_hour: int, now: int
) -> None:
    earlier = await tx.fetchval(_EARLIER, session.holder, now - HOUR, an_hour - 1)
    if earlier is not None:
        raise rules.signed_in_too_often(earlier + HOUR - now, session.whose)
    # Before the new session is added: its time may not be later than the others'.
    of = "token_id = $1" if session.token_id is not None else "actor_urn = $1 AND token_id IS NULL"
    await tx.execute(_SURPLUS.format(of=of), session.holder, most - 1)
    await tx.execute(_ADD, *session)
    await write_events(tx, precondition, [session.event(Action.SESSION_STARTED)], now)


async def _link_first(tx: Transaction, person: rules.Person, now: int) -> list[Event]:
    """The first sign-in links the person and the actor; later ones must be of the same two."""
    row = await tx.fetchrow(_IDENTITY_OF, person.actor)
    linked_to = await tx.fetchval(_LINKED_TO, *person.identity)
    if (row is not None and rules.Identity(*row[:2]) != person.identity) or linked_to not in (None, person.actor):
        # The same in both directions, so that the response does not reveal the other identity.
        raise rules.refused(
            "This person and this actor do not belong together: one of them is linked to another. "
            "Ask someone who manages policies to link them: watchword actor link"
        )
    await tx.execute(_PUT_IDENTITY, *person.identity, person.actor, now, now)
    return [] if row is not None else [_linked(person.actor, person.identity)]


async def _replace_groups(tx: Transaction, person: rules.Person) -> list[Event]:
    made_here = f"SELECT urn FROM groups WHERE urn {tx.dialect.any_of('$1')}"
    refused = {urn for (urn,) in await tx.fetch(made_here, sorted(person.groups))}
    return await _set_groups(tx, person.actor, person.groups - refused, frozenset(refused))


async def _set_groups(tx: Transaction, actor: str, groups: frozenset[str], refused: frozenset[str]) -> list[Event]:
    before = {urn for (urn,) in await tx.fetch(_EXTERNAL, actor)}
    added, removed = sorted(groups - before), sorted(before - groups)
    if not added and not removed and not refused:
        return []
    if added or removed:
        gone = (
            f"DELETE FROM group_members WHERE actor_urn = $1 AND external = 1 AND group_urn {tx.dialect.any_of('$2')}"
        )
        await tx.execute(gone, actor, removed)
        sql = "INSERT INTO group_members (actor_urn, group_urn, external) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING"
        await tx.executemany(sql, [(actor, group) for group in added])
        await tx.execute(tx.dialect.next_policy_version)
    detail: dict[str, Sequence[str]] = {"added": added, "removed": removed, "refused": sorted(refused)}
    return [Event(Action.ACTOR_GROUPS_CHANGED, actor, {name: list(urns) for name, urns in detail.items() if urns})]


def _linked(actor: str, identity: rules.Identity | None, **ended: int) -> Event:
    """Without the subject, which is personal. With how much of the person before ended."""
    return Event(Action.ACTOR_LINKED, actor, {"issuer": None if identity is None else identity.issuer, **ended})
