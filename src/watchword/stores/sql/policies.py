"""Policies, groups, actors and service accounts, and the groups and accounts that a policy file declares.

Every change that can alter a decision advances the policy version.
"""

import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson

from watchword.domain.actors import (
    MAX_GROUPS_SHOWN,
    MAX_LIVE_COUNTED,
    AccountGain,
    AccountPage,
    ActorHoldings,
    ActorPage,
    ActorSearch,
    ActorSnapshot,
    ActorState,
    ActorStatus,
    KnownActor,
    Profile,
    ProfileField,
    ServiceAccount,
    WritePrecondition,
    account_exists,
    gains,
    no_account,
    system_precondition,
)
from watchword.domain.declared_entities import NO_ENTITIES, Entity, EntityChange, plan_declaration
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event
from watchword.domain.filters import SEARCH_SECONDS
from watchword.domain.names import GROUP_PREFIX, NOTHING_STORED, SYSTEM_ACTOR, ShownActor, name_of
from watchword.domain.policies import (
    ChangeKind,
    Policy,
    PolicyChange,
    PolicyDeclaration,
    PolicyPlan,
    PolicySet,
    Require,
    deny,
)
from watchword.domain.ports import Group
from watchword.domain.sessions import sessions_ended
from watchword.domain.stores import LastStart
from watchword.stores import rows
from watchword.stores.sql.resources import apply_resources, find_resources, resources_of
from watchword.stores.sql.retention import apply_rules, find_rules
from watchword.stores.sql.token_lifecycle import MEMBER, revoke, revoked_together
from watchword.stores.sql.transaction import (
    POLICIES,
    RETENTION,
    TOKENS,
    Dialect,
    SqlPart,
    Transaction,
    actor_lock,
    check_precondition,
    groups_by_actor,
    long_transaction,
    page,
    snapshot,
    transaction,
    write_events,
)
from watchword.stores.sql.webhooks import WEBHOOKS, apply_webhooks, find_webhooks

MAX_ACCOUNTS = 1_000

_ALL = f"SELECT {rows.POLICY} FROM policies ORDER BY name, urn"
# The version comes with every row, and on a row of its own if there is no policy; the resources come with the first
# row: one statement, one snapshot.
_ALL_WITH_VERSION = """
SELECT s.policy_version, CASE WHEN row_number() OVER (ORDER BY p.name, p.urn) = 1 THEN (SELECT {resources}) END,
    {policy} FROM state AS s LEFT JOIN policies AS p ON true ORDER BY p.name, p.urn"""
_GET = f"SELECT {rows.POLICY} FROM policies WHERE urn = $1"
_PUT = rows.put("policies", rows.POLICY, "urn")
_GROUP = f"SELECT {rows.GROUP} FROM groups WHERE urn = $1"
_SET_STATUS = rows.put("actors", "urn, status, changed_at, changed_by", "urn")
_PUT_PROFILE = rows.put("actors", "urn, display_name, email", "urn")

_ACTIONS = {
    ChangeKind.CREATE: Action.POLICY_CREATED,
    ChangeKind.UPDATE: Action.POLICY_UPDATED,
    ChangeKind.DELETE: Action.POLICY_DELETED,
}


@asynccontextmanager
async def _change(
    tx: Transaction, precondition: WritePrecondition, declared: PolicyDeclaration | None = None
) -> AsyncIterator[list[Event]]:
    """Changes by one transaction at a time. If the block adds events, the policy version advances with them. Declared
    accounts, the retention rules and the webhooks are locked too.
    """
    entities = None if declared is None else declared.entities
    locks = [] if entities is None else [actor_lock(account.urn) for account in entities.accounts]
    if declared is not None:
        locks += [RETENTION, WEBHOOKS]
    now = await check_precondition(tx, precondition, exclusive=[POLICIES, *locks])
    events: list[Event] = []
    yield events
    if events:
        await tx.execute(tx.dialect.next_policy_version)
        await write_events(tx, precondition, events, now)


class SqlPolicies(SqlPart):
    async def policies(self) -> PolicySet:
        resources = f"{self._db.dialect.json_rows(rows.RESOURCE)} FROM resources"
        sql = _ALL_WITH_VERSION.format(resources=resources, policy=rows.columns("p", rows.POLICY))
        found = await self._db.fetch(sql)
        version, resources_text, *_ = found[0]
        policies = tuple(rows.policy_of(row[2:]) for row in found if row[2] is not None)
        return PolicySet(version, policies, resources_of(resources_text))

    @transaction
    async def add_policy(self, tx: Transaction, precondition: WritePrecondition, policy: Policy) -> None:
        async with _change(tx, precondition) as events:
            if await tx.fetchrow(_GET, policy.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "A policy with this urn already exists.")
            await tx.execute(_PUT, *_policy_values(policy))
            events.append(_policy_event(Action.POLICY_CREATED, policy))

    @transaction
    async def replace_policy(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        policy: Policy,
        *,
        create: bool = False,
        revision: str | None = None,
    ) -> None:
        async with _change(tx, precondition) as events:
            row = await tx.fetchrow(_GET, policy.urn)
            before = None
            if row is not None or not create:
                before = _editable(row)
                if revision not in (None, before.revision):
                    raise Fault(
                        Reason.POLICY_CHANGED, "The policy was changed meanwhile. Read it again. Nothing was changed."
                    )
                policy = replace(policy, source=before.source, set_name=before.set_name)
            await tx.execute(_PUT, *_policy_values(policy))
            kind = ChangeKind.CREATE if row is None else ChangeKind.UPDATE
            events.append(_change_event(PolicyChange(kind, policy.urn, before, policy)))

    @transaction
    async def delete_policy(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> None:
        async with _change(tx, precondition) as events:
            policy = _editable(await tx.fetchrow(_GET, urn))
            await tx.execute("DELETE FROM policies WHERE urn = $1", urn)
            events.append(Event(Action.POLICY_DELETED, urn, {"name": policy.name}))

    @transaction
    async def apply_policies(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        declared: PolicyDeclaration,
        *,
        prune: bool,
        require: Require = deny,
    ) -> PolicyPlan:
        async with _change(tx, precondition, declared) as events:
            plan = await _plan(tx, declared, prune=prune)
            events.extend(await _apply(tx, plan, precondition, require))
        return plan

    @snapshot
    async def entities(self, tx: Transaction, declared: PolicyDeclaration) -> tuple[Entity, ...]:
        return await find_entities(tx, declared)

    async def last_start(self) -> LastStart | None:
        row = await self._db.row("SELECT settings FROM state")
        return rows.last_start(None if row is None else row[0])

    @transaction
    async def apply_startup_policies(
        self,
        tx: Transaction,
        root: Policy,
        defaults: tuple[Policy, ...],
        declared: PolicyDeclaration | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> PolicyPlan:
        plan = PolicyPlan()
        precondition = system_precondition("start")
        async with _change(tx, precondition, declared) as events:
            added = () if await tx.fetchval("SELECT defaults_made FROM state") else defaults
            await tx.execute("UPDATE state SET defaults_made = 1 WHERE defaults_made <> 1")
            row = await tx.fetchrow(_GET, root.urn)
            events += [_policy_event(Action.POLICY_CREATED, policy) for policy in added]
            if row is None or rows.policy_of(row) != root:
                added = (*added, root)
                events.append(_policy_event(Action.POLICY_CREATED if row is None else Action.POLICY_UPDATED, root))
            await tx.executemany(_PUT, [_policy_values(policy) for policy in added])
            if declared is not None:
                plan = await _plan(tx, declared, prune=True)
            # The operator, who wrote the file, may do everything.
            events.extend(await _apply(tx, plan, precondition, lambda _: None))
            events.extend(await _changed_settings(tx, settings))
        return plan

    @transaction
    async def add_group(self, tx: Transaction, precondition: WritePrecondition, group: Group) -> None:
        async with _change(tx, precondition) as events:
            if await tx.fetchrow(_GROUP, group.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "A group with this id already exists.")
            if await tx.fetchval("SELECT 1 FROM group_members WHERE group_urn = $1 LIMIT 1", group.urn) is not None:
                raise Fault(Reason.ALREADY_EXISTS, "The identity provider has a group with this id. Choose another.")
            values = (group.urn, group.name, group.description)
            await tx.execute(rows.insert("groups", "urn, name, description"), *values)
            events.append(Event(Action.GROUP_CREATED, group.urn, {"name": group.name}))

    @transaction
    async def delete_group(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> None:
        async with _change(tx, precondition) as events:
            group = _group(await tx.fetchrow(_GROUP, urn))
            events.append(await _delete_group(tx, urn, group.name))

    @transaction
    async def change_members(
        self,
        tx: Transaction,
        precondition: WritePrecondition,
        group: str,
        *,
        add: Collection[str] = (),
        remove: Collection[str] = (),
    ) -> None:
        async with _change(tx, precondition) as events:
            name = _group(await tx.fetchrow(_GROUP, group)).name
            events.extend(await _change_members(tx, group, name, add, remove))

    @transaction
    async def leave_groups(self, tx: Transaction, precondition: WritePrecondition, actor: str) -> tuple[str, ...]:
        async with _change(tx, precondition) as events:
            sql = "DELETE FROM group_members WHERE actor_urn = $1 RETURNING group_urn, external"
            left = sorted((str(urn), bool(external)) for urn, external in await tx.fetch(sql, actor))
            made_here = [urn for urn, external in left if not external]
            sql = f"SELECT urn, name FROM groups WHERE urn {tx.dialect.any_of('$1')}"
            names: dict[str, str] = {row[0]: row[1] for row in await tx.fetch(sql, made_here)}
            events += [
                Event(Action.GROUP_MEMBERS_REMOVED, urn, {"name": names.get(urn), "members": [actor]})
                for urn in made_here
            ]
            if by_sign_in := [urn for urn, external in left if external]:
                events.append(Event(Action.ACTOR_GROUPS_CHANGED, actor, {"removed": by_sign_in}))
        return tuple(urn for urn, _ in left)

    @snapshot
    async def get_group(self, tx: Transaction, urn: str, *, external: bool = False) -> Group:
        return await _find_group(tx, urn) if external else _group(await tx.fetchrow(_GROUP, urn))

    @snapshot
    async def groups(self, tx: Transaction, start: int, count: int, query: str = "") -> tuple[int, tuple[Group, ...]]:
        source = f"groups WHERE {_found_by_name(tx.dialect)}"
        total, found = await page(tx, rows.GROUP, source, "name, urn", start, count, [query])
        return total, tuple(Group(*row) for row in found)

    @snapshot
    async def members(self, tx: Transaction, group: str, start: int, count: int) -> tuple[int, tuple[str, ...]]:
        total = (await _find_group(tx, group)).members
        if total is None:
            total = await tx.fetchval("SELECT count(*) FROM group_members WHERE group_urn = $1", group)
        sql = "SELECT actor_urn FROM group_members WHERE group_urn = $1 ORDER BY actor_urn LIMIT $2 OFFSET $3"
        return total, tuple(urn for (urn,) in await tx.fetch(sql, group, count, start))

    @snapshot
    async def memberships(
        self, tx: Transaction, actors: Collection[str], groups: Collection[str], most: int
    ) -> dict[str, tuple[str, ...]]:
        any_of = tx.dialect.any_of("$1")
        sql = f"SELECT DISTINCT actor_urn FROM group_members WHERE group_urn {any_of} ORDER BY actor_urn LIMIT $2"
        members = {actor for (actor,) in await tx.fetch(sql, list(groups), most + 1)}
        shown = sorted(members.union(actors))[: most + 1]
        found = await groups_by_actor(tx, shown)
        return {actor: tuple(found.get(actor, ())) for actor in shown}

    @snapshot
    async def groups_of(
        self, tx: Transaction, actor: str, start: int, count: int, *, external: bool
    ) -> tuple[int, tuple[Group, ...]]:
        own = "m.actor_urn = $1" if external else "m.actor_urn = $1 AND m.external = 0"
        total = await tx.fetchval(f"SELECT count(*) FROM group_members AS m WHERE {own}", actor)
        sql = f"""
        SELECT m.group_urn, m.external, {rows.columns("g", rows.GROUP)} FROM group_members AS m
        LEFT JOIN groups AS g ON g.urn = m.group_urn WHERE {own} ORDER BY m.group_urn LIMIT $2 OFFSET $3"""
        found = await tx.fetch(sql, actor, count, start)
        return total, tuple(_external_group(urn) if external else Group(*row) for urn, external, *row in found)


class SqlActors(SqlPart):
    async def actor_snapshot(self, actor: str) -> ActorSnapshot:
        groups = self._db.dialect.json_array("group_urn", "group_members WHERE actor_urn = $1::text")
        row = await self._db.row(
            f"""SELECT EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND status = 'SUSPENDED'), {groups},
                (SELECT policy_version FROM state WHERE one = 1)""",
            actor,
        )
        assert row is not None
        return ActorSnapshot(bool(row[0]), tuple(orjson.loads(row[1])), row[2])

    async def suspended_among(self, actors: Collection[str]) -> frozenset[str]:
        sql = f"SELECT urn FROM actors WHERE status = 'SUSPENDED' AND urn {self._db.dialect.any_of('$1')}"
        return frozenset(urn for (urn,) in await self.fetch_of(actors, sql))

    async def actor_state(self, actor: str) -> ActorState:
        row = await self._db.row("SELECT urn, status, changed_at, changed_by, email FROM actors WHERE urn = $1", actor)
        return ActorState(actor, ActorStatus.ACTIVE) if row is None else _actor_state(row)

    async def shown_actors(self, actors: Collection[str]) -> dict[str, ShownActor]:
        any_of = self._db.dialect.any_of("$1")
        sql = f"""
        SELECT urn, name, NULL, NULL FROM service_accounts WHERE urn {any_of}
        UNION ALL SELECT urn, display_name, email, status FROM actors WHERE urn {any_of}"""
        shown: dict[str, ShownActor] = {}
        for urn, name, email, status in await self.fetch_of(actors, sql):
            before = shown.get(urn, NOTHING_STORED)
            suspended = before.suspended or status == ActorStatus.SUSPENDED.value
            shown[urn] = ShownActor(name or before.name, email or before.email, suspended)
        return shown

    @transaction
    async def set_profile(self, tx: Transaction, precondition: WritePrecondition, actor: str, profile: Profile) -> None:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        await put_profile(tx, precondition, actor, profile, now)

    @transaction
    async def set_actor_status(
        self, tx: Transaction, precondition: WritePrecondition, actor: str, status: ActorStatus
    ) -> None:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(actor)])
        if await tx.fetchval("SELECT deleted_at FROM service_accounts WHERE urn = $1", actor) is not None:
            raise Fault(Reason.NOT_EDITABLE, "The service account was deleted. Create a new one.")
        row = await tx.fetchrow("SELECT status, changed_by FROM actors WHERE urn = $1", actor)
        before, by = row or (ActorStatus.ACTIVE.value, None)
        if before == status.value:
            if status is ActorStatus.SUSPENDED and by == SYSTEM_ACTOR != precondition.actor:
                # An import suspended it, and must not resume it any more.
                await put_status(tx, precondition, actor, status, now)
            return
        await put_status(tx, precondition, actor, status, now)
        if status is ActorStatus.SUSPENDED:
            await end_sessions(tx, precondition, actor, now)
        action = Action.ACTOR_SUSPENDED if status is ActorStatus.SUSPENDED else Action.ACTOR_RESUMED
        await write_events(tx, precondition, [Event(action, actor)], now)

    @snapshot
    async def actor_holdings(self, tx: Transaction, actor: str) -> ActorHoldings:
        row = await tx.fetchrow(
            f"""
            SELECT (SELECT count(*) FROM tokens WHERE actor_urn = $1::text AND revoked_at IS NULL
                    AND (expires_at IS NULL OR expires_at > (SELECT now_ms()))),
                EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND status = 'SUSPENDED'),
                (SELECT count(*) FROM sessions WHERE actor_urn = $1::text AND ends_at > (SELECT now_ms())),
                EXISTS (SELECT 1 FROM token_totals WHERE urn = $1::text)
                OR EXISTS (SELECT 1 FROM actors WHERE urn = $1::text AND coalesce(display_name, email) IS NOT NULL)
                OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = $1::text)
                OR EXISTS (SELECT 1 FROM sessions WHERE actor_urn = $1::text)
                OR EXISTS (SELECT 1 FROM service_accounts WHERE urn = $1::text)
                OR EXISTS (SELECT 1 FROM policies {tx.dialect.policy_users} WHERE named.value = $1::text)""",
            actor,
        )
        assert row is not None
        tokens, suspended, sessions, known = row
        live, stopped = (0, tokens) if suspended else (tokens, 0)
        return ActorHoldings(live, sessions, bool(known), stopped)

    async def known_actors(self, search: ActorSearch, seconds: float = SEARCH_SECONDS) -> ActorPage:
        sql, bound = known_actors_sql(search, self._db.dialect)

        async def work(tx: Transaction) -> ActorPage:
            found = [_known_actor(row) for row in await tx.fetch(sql, *bound)]
            return ActorPage(tuple(found[: search.count]), more=len(found) > search.count)

        return await self._db.scan(work, seconds)

    async def find_actors(
        self, query: str, start: int, count: int, seconds: float = SEARCH_SECONDS
    ) -> tuple[int, tuple[str, ...]]:
        matching = _matching(_known_urns(self._db.dialect), "$4::text", self._db.dialect)
        bound = ("", ActorSearch().bound, sys.maxsize, query.lower())

        async def work(tx: Transaction) -> tuple[int, tuple[str, ...]]:
            total, found = await page(tx, "known.urn", matching, "known.urn", start, count, bound)
            return total, tuple(urn for (urn,) in found)

        return await self._db.scan(work, seconds)


def _known_urns(dialect: Dialect) -> str:
    """From the first parameter on, before the second, and at most as many as the third. Each source gives its first
    ones, so that together they hold the first of all.
    """
    between = "urn >= $1::text AND urn < $2::text"
    page = "ORDER BY urn LIMIT $3"
    return f"""
        SELECT urn FROM (SELECT DISTINCT urn FROM token_totals WHERE kind = 'actor' AND {between} {page}) AS counted
        UNION SELECT urn FROM (SELECT urn FROM actors WHERE {between} {page}) AS with_row
        UNION SELECT urn FROM (SELECT DISTINCT actor_urn AS urn FROM group_members
            WHERE actor_urn >= $1::text AND actor_urn < $2::text ORDER BY actor_urn LIMIT $3) AS in_groups
        UNION SELECT named.value FROM policies {dialect.policy_users}
            WHERE named.value >= $1::text AND named.value < $2::text
        {page}"""


def _matching(urns: str, query: str, dialect: Dialect) -> str:
    """A source: `known`, those of the urns whose text, name or e-mail address contains the query, which is in
    lower case.
    """
    columns = ("known.urn", "actors.display_name", "actors.email", "service_accounts.name")
    texts = [f"{dialect.position(dialect.folded(column), query)} > 0" for column in columns]
    return f"""({urns}) AS known LEFT JOIN actors ON actors.urn = known.urn
        LEFT JOIN service_accounts ON service_accounts.urn = known.urn WHERE {query} = '' OR {" OR ".join(texts)}"""


def known_actors_sql(search: ActorSearch, dialect: Dialect) -> tuple[str, tuple[Any, ...]]:
    suspended = "urn >= $1::text AND urn < $2::text AND status = 'SUSPENDED' ORDER BY urn LIMIT $3"
    known = f"SELECT urn FROM actors WHERE {suspended}" if search.only_suspended else _known_urns(dialect)
    most: int = search.count + 1
    found: tuple[Any, ...] = ()
    if search.query:
        known = f"SELECT known.urn FROM {_matching(known, '$6::text', dialect)} ORDER BY known.urn LIMIT $7"
        most, found = sys.maxsize, (search.query.lower(), search.count + 1)
    groups = dialect.json_array(
        "group_urn", "group_members WHERE actor_urn = known.urn ORDER BY group_urn LIMIT $4::bigint"
    )
    # Two ranges of an index: expired tokens are not read.
    by_actor = dialect.by_index("tokens_actor")
    live = " + ".join(
        f"""(SELECT count(*) FROM (SELECT 1 FROM tokens {by_actor} WHERE actor_urn = known.urn AND revoked_at IS NULL
            AND {end} LIMIT $5::bigint) AS counted)"""
        for end in ("expires_at IS NULL", "expires_at > (SELECT now_ms())")
    )
    sql = f"""
    SELECT known.urn, coalesce(actors.status, 'ACTIVE'), actors.changed_at, actors.changed_by, actors.email,
        CASE WHEN actors.status = 'SUSPENDED' THEN 0 ELSE {live} END, {groups}
    FROM ({known}) AS known LEFT JOIN actors ON actors.urn = known.urn ORDER BY known.urn"""
    return sql, (search.least, search.bound, most, MAX_GROUPS_SHOWN, MAX_LIVE_COUNTED, *found)


async def account_gains(tx: Transaction) -> tuple[AccountGain, ...]:
    """What managers of service accounts gain by them, in the first MAX_ACCOUNTS that a policy names."""
    policies = await _all(tx)
    named = sorted({user for policy in policies for user in policy.users})
    any_of = tx.dialect.any_of("$1")
    # Accounts that a policy names, alone or by a group.
    found = await tx.fetch(
        f"""SELECT urn FROM service_accounts WHERE deleted_at IS NULL AND (
            urn {any_of} OR EXISTS (SELECT 1 FROM group_members WHERE actor_urn = urn)) ORDER BY urn LIMIT $2""",
        named,
        MAX_ACCOUNTS,
    )
    accounts = [urn for (urn,) in found]
    return tuple(gains(policies, await groups_by_actor(tx, [*named, *accounts]), accounts))


async def put_status(
    tx: Transaction, precondition: WritePrecondition, actor: str, status: ActorStatus, now: int
) -> None:
    await tx.execute(_SET_STATUS, actor, status.value, now, precondition.actor)


async def end_sessions(
    tx: Transaction, precondition: WritePrecondition, actor: str, now: int, *, by_provider: bool = False
) -> int:
    """With `by_provider`, only those that signed in at the identity provider. Returns how many were live."""
    which = " AND issuer IS NOT NULL" if by_provider else ""
    ends = await tx.fetch(f"DELETE FROM sessions WHERE actor_urn = $1{which} RETURNING ends_at", actor)
    live = sum(1 for (ends_at,) in ends if ends_at > now)
    if live:
        await write_events(tx, precondition, [sessions_ended(actor, live)], now)
    return live


async def put_profile(tx: Transaction, precondition: WritePrecondition, actor: str, profile: Profile, now: int) -> None:
    """Change the profile under the lock of the actor. The event names the fields that changed, without their text."""
    row = await tx.fetchrow("SELECT display_name, email FROM actors WHERE urn = $1", actor)
    before = dict(zip(ProfileField, row or (None, None), strict=True))
    after = before | dict(profile)
    changed: list[str] = [field.value for field in ProfileField if before[field] != after[field]]
    if changed:
        await tx.execute(_PUT_PROFILE, actor, *after.values())
        await write_events(tx, precondition, [Event(Action.ACTOR_UPDATED, actor, {"fields": changed})], now)


def _actor_state(row: rows.Row) -> ActorState:
    urn, status, *others = row
    return ActorState(urn, ActorStatus(status), *others)


def _known_actor(row: rows.Row) -> KnownActor:
    *state, tokens, groups = row
    return KnownActor(_actor_state(state), min(tokens, MAX_LIVE_COUNTED), tuple(orjson.loads(groups)))


async def _all(tx: Transaction) -> tuple[Policy, ...]:
    return tuple(rows.policy_of(row) for row in await tx.fetch(_ALL))


async def _plan(tx: Transaction, declared: PolicyDeclaration, *, prune: bool) -> PolicyPlan:
    found = await _all(tx), await find_entities(tx, declared), await find_rules(tx), await find_webhooks(tx)
    return plan_declaration(*found, await find_resources(tx), declared, prune=prune)


async def _apply(tx: Transaction, plan: PolicyPlan, precondition: WritePrecondition, require: Require) -> list[Event]:
    changes = plan.changes
    entities = [] if plan.entities is None else await apply_entities(tx, precondition.actor, plan.entities.changes)
    rules = await apply_rules(tx, precondition, plan.rule_changes, require, await tx.now())
    webhooks = await apply_webhooks(tx, precondition, plan.webhook_changes, require, await tx.now())
    resources = await apply_resources(tx, plan.resource_changes)
    await tx.executemany(_PUT, [_policy_values(change.after) for change in changes if change.after is not None])
    deleted = [change.urn for change in changes if change.kind is ChangeKind.DELETE]
    await tx.execute(f"DELETE FROM policies WHERE urn {tx.dialect.any_of('$1')}", deleted)
    return [*entities, *rules, *webhooks, *resources, *map(_change_event, changes)]


async def _changed_settings(tx: Transaction, settings: Mapping[str, str] | None) -> list[Event]:
    """An event for each setting that differs from the last start. Only settings known at both starts are compared:
    instances on one store have some settings of their own. Derived values, such as the issuer, are no settings.
    """
    if settings is None:
        return []
    stored = await tx.fetchval("SELECT settings FROM state")
    text = rows.json_text(dict(settings))
    if stored != text:
        await tx.execute("UPDATE state SET settings = $1", text)
    before: dict[str, str] = orjson.loads(stored) if stored else dict(settings)
    return [
        Event(Action.SETTING_CHANGED, name, {"before": before[name], "after": settings[name]})
        for name in sorted(before.keys() & settings.keys())
        if before[name] != settings[name] and name.isupper()
    ]


def _found_by_name(d: Dialect) -> str:
    """Those whose name or urn contains the query, $1."""
    by_name = f"{d.position(d.folded('name'), d.folded('$1::text'))} > 0"
    return f"($1::text = '' OR {by_name} OR {d.position('urn', '$1::text')} > 0)"


def _group(row: rows.Row | None) -> Group:
    if row is None:
        raise Fault(Reason.GROUP_NOT_FOUND, "There is no group with this urn.")
    return Group(*row)


async def _delete_group(tx: Transaction, urn: str, name: str | None) -> Event:
    await tx.execute("DELETE FROM group_members WHERE group_urn = $1", urn)
    await tx.execute("DELETE FROM groups WHERE urn = $1", urn)
    return Event(Action.GROUP_DELETED, urn, {"name": name})


async def _change_members(
    tx: Transaction, urn: str, name: str, add: Collection[str], remove: Collection[str]
) -> list[Event]:
    """Of what is as wanted already, nothing is written."""
    these = f"FROM group_members WHERE group_urn = $1 AND actor_urn {tx.dialect.any_of('$2')}"
    before = {actor for (actor,) in await tx.fetch(f"SELECT actor_urn {these}", urn, [*add, *remove])}
    added, removed = sorted({*add} - {*remove} - before), sorted({*remove} & before)
    await tx.executemany(_ADD_MEMBER, [(member, urn) for member in added])
    await tx.execute(f"DELETE {these}", urn, removed)
    changes = ((Action.GROUP_MEMBERS_ADDED, added), (Action.GROUP_MEMBERS_REMOVED, removed))
    return [Event(action, urn, {"name": name, "members": members}) for action, members in changes if members]


async def _find_group(tx: Transaction, urn: str) -> Group:
    """A group made here, or of the identity provider, which is known by its members."""
    row = await tx.fetchrow(_GROUP, urn)
    if row is None and await tx.fetchval("SELECT 1 FROM group_members WHERE group_urn = $1 LIMIT 1", urn) is not None:
        return _external_group(urn)
    return _group(row)


def _external_group(urn: str) -> Group:
    return Group(urn, name_of(urn), None, None, external=True)


def _policy_values(policy: Policy) -> tuple[Any, ...]:
    detail = _policy_detail(policy)
    privileges, users, groups, scopes = [
        rows.json_text(detail[name]) for name in ("privileges", "users", "groups", "scopes")
    ]
    plain = (policy.urn, policy.name, policy.description, policy.state.value)
    source = (policy.source.value, policy.set_name)
    return (*plain, privileges, users, groups, int(policy.all_users), scopes, *source)


def _policy_detail(policy: Policy) -> dict[str, Detail]:
    """The detail of an event."""
    detail: dict[str, Detail] = {
        "name": policy.name,
        "state": policy.state.value,
        "privileges": sorted(privilege.name for privilege in policy.privileges),
        "scopes": sorted(policy.scopes),
        "users": sorted(policy.users),
        "groups": sorted(policy.groups),
        "allUsers": policy.all_users,
        "source": policy.source.value,
    }
    return detail if policy.set_name is None else {**detail, "set": policy.set_name}


def _change_event(change: PolicyChange) -> Event:
    before, after = change.before, change.after
    detail: dict[str, Detail] = {"name": None if before is None else before.name}
    if after is not None:
        detail = _policy_detail(after)
        if before is not None and (removed := before.users - after.users):
            detail["removedUsers"] = sorted(removed)
    return Event(_ACTIONS[change.kind], change.urn, detail)


def _policy_event(action: Action, policy: Policy) -> Event:
    return Event(action, policy.urn, _policy_detail(policy))


def _editable(row: rows.Row | None) -> Policy:
    if row is None:
        raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")
    policy = rows.policy_of(row)
    if not policy.editable:
        raise Fault(Reason.NOT_EDITABLE, "The service keeps this policy itself. It cannot be changed or deleted.")
    return policy


_MEMBERS = "SELECT group_urn, actor_urn FROM group_members WHERE group_urn"
_ADD_MEMBER = "INSERT INTO group_members (actor_urn, group_urn) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_DECLARED = "name, description, set_name"
_PUT_GROUP = rows.put("groups", f"urn, {_DECLARED}", "urn")
_PUT_ACCOUNT = rows.put("service_accounts", f"urn, {_DECLARED}, created_at, created_by", "urn", _DECLARED)


async def find_entities(tx: Transaction, declared: PolicyDeclaration) -> tuple[Entity, ...]:
    """The groups and accounts that are declared or belong to the set, with the members that the file can change."""
    wanted, any_of = declared.entities or NO_ENTITIES, tx.dialect.any_of
    urns, accounts = [group.urn for group in wanted.groups], [account.urn for account in wanted.accounts]
    of_set = f"WHERE set_name = $1::text OR urn {any_of('$2')} ORDER BY urn"
    groups = await tx.fetch(f"SELECT urn, name, description, set_name FROM groups {of_set}", declared.set_name, urns)
    closed = [urn for urn in urns if urn not in wanted.open_groups]
    joined = [
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')}", closed),
        *await tx.fetch(f"{_MEMBERS} {any_of('$1')} AND actor_urn {any_of('$2')}", list(wanted.open_groups), accounts),
    ]
    members: dict[str, set[str]] = {}
    for group, actor in joined:
        members.setdefault(group, set()).add(actor)
    columns = "urn, name, description, set_name, deleted_at"
    known = await tx.fetch(f"SELECT {columns} FROM service_accounts {of_set}", declared.set_name, accounts)
    found = [
        Entity(urn, name, description, set_name, frozenset(members.get(urn, ())))
        for urn, name, description, set_name in groups
    ]
    for urn, name, description, set_name, deleted_at in known:
        found.append(Entity(urn, name, description, set_name, deleted=deleted_at is not None))
    return tuple(found)


async def apply_entities(tx: Transaction, actor: str, changes: Iterable[EntityChange]) -> list[Event]:
    events: list[Event] = []
    for change in changes:
        events += await (_apply_group if change.urn.startswith(GROUP_PREFIX) else _apply_account)(tx, actor, change)
    return events


async def _apply_account(tx: Transaction, actor: str, change: EntityChange) -> list[Event]:
    account = change.after
    assert account is not None  # an account is never deleted here
    values = (account.urn, account.name, account.description, account.set_name)
    await tx.execute(_PUT_ACCOUNT, *values, await tx.now(), actor)
    action = Action.ACCOUNT_CREATED if change.before is None else Action.ACCOUNT_UPDATED
    return [Event(action, account.urn, {"name": account.name, "set": account.set_name})]


async def _apply_group(tx: Transaction, _actor: str, change: EntityChange) -> list[Event]:
    before, group = change.before, change.after
    if group is None:
        return [await _delete_group(tx, change.urn, None if before is None else before.name)]
    events: list[Event] = []
    if before is None:
        # A group of the identity provider with this urn ends: one made here has the members that are chosen here.
        await tx.execute("DELETE FROM group_members WHERE group_urn = $1", group.urn)
    if before is None or replace(before, members=group.members) != group:
        await tx.execute(_PUT_GROUP, group.urn, group.name, group.description, group.set_name)
        action = Action.GROUP_CREATED if before is None else Action.GROUP_UPDATED
        events.append(Event(action, group.urn, {"name": group.name, "set": group.set_name}))
    was = frozenset[str]() if before is None else before.members
    added, removed = sorted(group.members - was), sorted(was - group.members)
    return events + await _change_members(tx, group.urn, group.name, added, removed)


_ACCOUNT_COLUMNS = """urn, name, description, created_at, created_by,
    EXISTS (SELECT 1 FROM actors WHERE actors.urn = service_accounts.urn AND status = 'SUSPENDED'), set_name"""
GET_ACCOUNT = f"SELECT {_ACCOUNT_COLUMNS} FROM service_accounts WHERE urn = $1 AND deleted_at IS NULL"
_ADD_ACCOUNT = rows.insert("service_accounts", "urn, name, description, created_at, created_by")
_CREATED_ACCOUNTS = f"""
SELECT {_ACCOUNT_COLUMNS} FROM service_accounts WHERE created_by = $1 AND deleted_at IS NULL ORDER BY urn LIMIT $2"""
_ACCOUNT_TOKENS = f"SELECT {MEMBER} FROM tokens WHERE actor_urn = $1 AND revoked_at IS NULL"


class SqlAccounts(SqlPart):
    @transaction
    async def add_account(self, tx: Transaction, precondition: WritePrecondition, account: ServiceAccount) -> None:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(account.urn)])
        row = await tx.fetchrow("SELECT deleted_at FROM service_accounts WHERE urn = $1", account.urn)
        if row is not None:
            raise account_exists(deleted=row[0] is not None)
        values = (account.urn, account.name, account.description, account.created_at, account.created_by)
        await tx.execute(_ADD_ACCOUNT, *values)
        event = Event(Action.ACCOUNT_CREATED, account.urn, {"name": account.name})
        await write_events(tx, precondition, [event], now)

    async def get_account(self, urn: str) -> ServiceAccount:
        return _account(await self._db.row(GET_ACCOUNT, urn))

    @snapshot
    async def accounts(self, tx: Transaction, start: int, count: int, query: str = "") -> AccountPage:
        source = f"service_accounts WHERE deleted_at IS NULL AND {_found_by_name(tx.dialect)}"
        total, found = await page(tx, _ACCOUNT_COLUMNS, source, "name, urn", start, count, [query])
        return AccountPage(total, tuple(_account(row) for row in found))

    @snapshot
    async def accounts_of(self, tx: Transaction, creator: str, most: int) -> tuple[ServiceAccount, ...]:
        return tuple(_account(row) for row in await tx.fetch(_CREATED_ACCOUNTS, creator, most))

    @long_transaction
    async def delete_account(self, tx: Transaction, precondition: WritePrecondition, urn: str) -> int:
        now = await check_precondition(tx, precondition, exclusive=[actor_lock(urn), TOKENS])
        account = _account(await tx.fetchrow(GET_ACCOUNT, urn))
        await tx.execute("UPDATE service_accounts SET deleted_at = $2 WHERE urn = $1", urn, now)
        await put_status(tx, precondition, urn, ActorStatus.SUSPENDED, now)
        tokens = await tx.fetch(_ACCOUNT_TOKENS, urn)
        ids = await revoked_together(tx, tokens, now, cascade=False, expired=True, most=sys.maxsize)
        revoked = await revoke(tx, precondition, list(ids), now, lock_rows=False)
        event = Event(Action.ACCOUNT_DELETED, urn, {"name": account.name, "tokens": revoked})
        await write_events(tx, precondition, [event], now)
        return revoked


def _account(row: rows.Row | None) -> ServiceAccount:
    if row is None:
        raise no_account()
    urn, name, description, created_at, created_by, suspended, set_name = row
    return ServiceAccount(urn, name, description, created_at, created_by, bool(suspended), set_name)
