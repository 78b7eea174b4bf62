"""Import from DataHub, and follow it: the same run again brings what is new there and revokes what is gone there.

The order keeps every moment safe: people who are suspended there, then accounts and groups, then tokens, then policies.
Each step is a series of transactions that change nothing when they are done again, so a run that was killed is simply
run again.

Tokens come in the order of their ids, and the store has its imported tokens in the same order: both are read side by
side, in bounded memory, to find those that are gone.
"""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from watchword.accounts.declared_rules import ENTITY_PART, Entity
from watchword.authority.declared_parts import DATAHUB_SET, ChangeKind
from watchword.authority.policies import POLICY_PART, ROOT_POLICY, Policy
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import ESCALATING, included
from watchword.basics.errors import OperatorError
from watchword.basics.names import DATAHUB_POLICY_PREFIX, DATAHUB_TOKEN_PREFIX, GROUP_PREFIX, USER_PREFIX, is_account
from watchword.datahub import rules
from watchword.datahub.rules import LeftOut, Noun, Outcome, PersonChange, TokenMatch
from watchword.datahub.store import ImportStore
from watchword.declared.rules import DeclaredSet, SetPlan
from watchword.journal.events import Action, KeptEvent
from watchword.journal.preconditions import system_precondition
from watchword.stores.joined import Store
from watchword.tokens.rules import TokenRecord

BATCH = 500
ENTITIES_AT_ONCE = 200
ALL = 100
"""Percent."""
EVERY_MEMBER = 10_000_000
LAST = "\x7f"
"""After every token id."""
Progress = Callable[[int, int], None]
"""Called with how many tokens are done, and of how many."""

_KINDS = {ChangeKind.CREATE: Outcome.NEW, ChangeKind.UPDATE: Outcome.CHANGED, ChangeKind.DELETE: Outcome.REMOVED}
_PEOPLE = {
    PersonChange.SUSPENDED: (Outcome.SUSPENDED, ""),
    PersonChange.RESUMED: (Outcome.RESUMED, ""),
    PersonChange.NAMED: (Outcome.CHANGED, "name or e-mail address"),
    PersonChange.STAYS_SUSPENDED: (Outcome.CONFLICT, "active in DataHub, suspended here by a person: stays suspended"),
}
_TOKENS = {
    TokenMatch.NEW: Outcome.NEW,
    TokenMatch.UNCHANGED: Outcome.UNCHANGED,
    TokenMatch.SHORTENED: Outcome.CHANGED,
    TokenMatch.NO_ACCOUNT: Outcome.LEFT_OUT,
    TokenMatch.OWN: Outcome.LEFT_OUT,
}
"""What else a match is: a conflict."""
_UNTOUCHED = "Nothing was revoked, and groups and policies stay as they are."
_CREATED_HERE = "it exists here and did not come from DataHub: it stays as it is"


@dataclass(frozen=True, slots=True)
class ImportOptions:
    dry_run: bool = False
    allow_no_expiry: bool = False
    allow_root: bool = False
    tokens_only: bool = False
    """Leave groups and policies as they are."""
    at_most: int = 1
    """Percent of the imported live tokens that one run may revoke, but always one token, unless it is 0."""


@dataclass(slots=True)
class _People:
    """Who exists in DataHub, and what the later steps need of them."""

    actors: set[str] = field(default_factory=set)
    accounts: list[Entity] = field(default_factory=list)
    members: dict[str, set[str]] = field(default_factory=dict)


class DataHubImport:
    """One run. `progress` is called as it goes."""

    def __init__(
        self, store: Store, root_actor: str, source: rules.DataHubSource, options: ImportOptions, progress: Progress
    ) -> None:
        self._store = store
        self._imports = ImportStore(store)
        self._source = source
        self._options = options
        self._progress = progress
        self._precondition = system_precondition("command line")
        self._root_actors = {root_actor}
        self._other_groups: set[str] = set()
        """Groups that were created here and have the urn of a group in DataHub."""
        self._seen: set[Noun] = set()
        """The nouns of which the source has rows."""
        self._report = rules.Report()

    async def run(self, source_name: str) -> rules.Report:
        total, report = await self._check_source(), self._report
        current = (await self._store.policies()).policies
        self._root_actors.update(*(policy.users for policy in current if policy.urn == ROOT_POLICY))
        people = await self._import_people()
        entities, dead_accounts = await self._declared_entities(people)
        await self._apply_parts([one for one in entities if not one.is_group])
        escalating = await self._escalating(current, people)
        gone = await self._import_tokens(people, dead_accounts, escalating, total)
        policies = await self._declared_policies(current)
        report.refusal = report.refusal or await self._missing(current)
        if report.refusal is None:
            await self._revoke(gone)
            if not self._options.tokens_only:
                await self._apply_parts([one for one in entities if one.is_group])
                declared = _declaration(entities, policies)
                self._report_policies(declared, await self._apply(declared, prune=True))
        if report.changes and not self._options.dry_run:
            by, action = self._precondition, Action.DATAHUB_IMPORTED.value
            at = self._store.clock()
            await self._store.add_events(
                [KeptEvent(at, by.actor, None, action, source_name, by.peer, "", report.changes)]
            )
        return report

    async def _check_source(self) -> int:
        """Returns how many tokens DataHub has. An empty or partial source must not revoke anything."""
        counts = {
            rules.TOKEN_INFO: await self._source.count(DATAHUB_TOKEN_PREFIX, rules.TOKEN_INFO),
            rules.USER_KEY: await self._source.count(USER_PREFIX, rules.USER_KEY),
        }
        for aspect, number in counts.items():
            if not number:
                raise OperatorError(
                    f"The source has no row {aspect}: it is empty, incomplete or not DataHub's. Nothing was changed."
                )
        return counts[rules.TOKEN_INFO]

    async def _entities(self, prefix: str, noun: Noun) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Each urn with its aspects. What cannot be read is reported."""
        urn, aspects = "", dict[str, Any]()
        async for batch in self._source.rows(prefix):
            self._seen.add(noun)
            for row in batch:
                if row.urn != urn:
                    if aspects:
                        yield urn, aspects
                    urn, aspects = row.urn, {}
                try:
                    aspects[row.aspect] = rules.parsed(row.metadata)
                except LeftOut as left_out:
                    self._report.add(noun, Outcome.LEFT_OUT, f"{urn} {row.aspect}", str(left_out))
                    if row.aspect in rules.UNREADABLE:
                        aspects[row.aspect] = rules.UNREADABLE[row.aspect]
        if aspects:
            yield urn, aspects

    async def _import_people(self) -> _People:
        found, batch = _People(), list[rules.ImportedPerson]()
        async for urn, aspects in self._entities(USER_PREFIX, Noun.PEOPLE):
            try:
                person = rules.read_person(urn, aspects)
            except LeftOut as left_out:
                if len(aspects) > 1 or rules.USER_KEY in aspects:  # other aspects outlive a person
                    self._report.add(Noun.PEOPLE, Outcome.LEFT_OUT, urn, str(left_out))
                continue
            found.actors.add(urn)
            if is_account(urn):
                found.accounts.append(Entity(urn, person.account_name, person.description, DATAHUB_SET))
            for group in person.groups:
                found.members.setdefault(group, set()).add(urn)
            if urn in self._root_actors:
                if person.suspended:
                    reason = "the root actor cannot be suspended; change WATCHWORD_ROOT_ACTOR instead"
                    self._report.add(Noun.PEOPLE, Outcome.CONFLICT, urn, reason)
                continue
            batch.append(person)
            if len(batch) == BATCH:
                await self._write_people(batch)
                batch = []
        await self._write_people(batch)
        return found

    async def _write_people(self, batch: list[rules.ImportedPerson]) -> None:
        changes = await self._imports.import_people(self._precondition, batch, dry_run=self._options.dry_run)
        for person, change in changes:
            outcome, reason = _PEOPLE[change]
            self._report.add(Noun.PEOPLE, outcome, person.urn, reason)
        self._report.add(Noun.PEOPLE, Outcome.UNCHANGED, count=len(batch) - len({p.urn for p, _ in changes}))

    async def _declared_entities(self, people: _People) -> tuple[list[Entity], set[str]]:
        """The groups and the accounts to declare, and the accounts that were deleted here."""
        groups, kept, dead = list[Entity](), list[Entity](), set[str]()
        unknown = dict(people.members)
        async for urn, aspects in self._entities(GROUP_PREFIX, Noun.GROUPS):
            try:
                members = frozenset(people.members.get(urn, ()))
                groups.append(Entity(*rules.read_group(urn, aspects), DATAHUB_SET, members))
            except LeftOut as left_out:
                self._report.add(Noun.GROUPS, Outcome.LEFT_OUT, urn, str(left_out))
            unknown.pop(urn, None)
        for urn in sorted(unknown):
            self._report.add(Noun.GROUPS, Outcome.LEFT_OUT, urn, "it has members, but does not exist in DataHub")
        entities = [*groups, *people.accounts]
        here = {entity.urn: entity for entity in await self._store.entities(DATAHUB_SET, entities)}
        external = await self._imports.external_groups([group.urn for group in groups if group.urn not in here])
        for entity in entities:
            found, noun = here.get(entity.urn), _noun(entity.urn)
            if found is not None and found.deleted:
                dead.add(entity.urn)
                self._report.add(
                    noun, Outcome.LEFT_OUT, entity.urn, "it was deleted here, and its urn is never used again"
                )
            elif entity.urn in external or (found is not None and found.set_name != DATAHUB_SET):
                self._report.add(noun, Outcome.CONFLICT, entity.urn, _CREATED_HERE)
                self._other_groups |= {entity.urn} if entity.is_group else set()
            else:
                kept.append(entity)
        return kept, dead

    async def _missing(self, current: Iterable[Policy]) -> str | None:
        """Why the source cannot be whole: it has no row of a kind that came from it before."""
        known = {_noun(policy.urn) for policy in current if policy.set_name == DATAHUB_SET}
        entities = await self._store.entities(DATAHUB_SET, ())
        known |= {_noun(entity.urn) for entity in entities if entity.is_group and entity.set_name == DATAHUB_SET}
        missing = sorted(noun.value for noun in known - self._seen)
        if not missing or self._options.tokens_only or self._options.at_most == ALL:
            return None
        words = " and no ".join(missing)
        return f"The source has no {words}, although some came from it. {_UNTOUCHED} To accept it: --at-most {ALL}%."

    async def _apply_parts(self, entities: list[Entity]) -> None:
        """A few at a time, so that no transaction is long."""
        for start in range(0, len(entities), ENTITIES_AT_ONCE):
            declared = _declaration(entities[start : start + ENTITIES_AT_ONCE])
            self._report_changes(await self._apply(declared, prune=False))

    async def _apply(self, declared: DeclaredSet, *, prune: bool) -> SetPlan:
        """A run without changes takes no lock."""
        plan = await self._store.plan_set(declared, prune=prune)
        if self._options.dry_run or not plan.changes:
            return plan
        return await self._store.apply_set(self._precondition, declared, prune=prune)

    def _report_changes(self, plan: SetPlan, reported: Collection[str] = ()) -> None:
        for change in plan.changes:
            if change.name not in reported:
                self._report.add(_noun(change.name), _KINDS[change.kind], change.name)

    def _report_policies(self, declared: DeclaredSet, plan: SetPlan) -> None:
        """Report policies, and groups and accounts that DataHub no longer has. The others are already reported."""
        entities = declared[ENTITY_PART]
        self._report_changes(plan, {entity.urn for entity in entities})
        changed = {change.name for change in plan[POLICY_PART].changes}
        same = sum(policy.urn not in changed for policy in declared[POLICY_PART])
        self._report.add(Noun.POLICIES, Outcome.UNCHANGED, count=same)
        for noun, is_group in ((Noun.GROUPS, True), (Noun.ACCOUNTS, False)):
            new = self._report.count(noun, Outcome.NEW, Outcome.CHANGED)
            number = sum(one.is_group is is_group for one in entities)
            self._report.add(noun, Outcome.UNCHANGED, count=max(number - new, 0))

    async def _escalating(self, current: Iterable[Policy], people: _People) -> Callable[[str], set[str]]:
        """The privileges of an actor that can escalate, by the policies that were made here. Those of DataHub grant
        here what they grant there.
        """
        strong = tuple(
            policy
            for policy in current
            if policy.set_name != DATAHUB_SET and not ESCALATING.isdisjoint(included(policy.privileges))
        )
        groups = {group for policy in strong for group in policy.groups}
        found = await self._store.memberships((), groups, EVERY_MEMBER)
        memberships = {actor: set(urns) for actor, urns in found.items()}
        for group in groups - self._other_groups:
            for actor in people.members.get(group, ()):
                memberships.setdefault(actor, set()).add(group)
        policies = PolicySet(0, strong)
        return lambda actor: {
            privilege.name for privilege in policies.granted(actor, memberships.get(actor, ())) & ESCALATING
        }

    async def _import_tokens(
        self, people: _People, dead_accounts: set[str], escalating: Callable[[str], set[str]], total: int
    ) -> list[str]:
        """Returns the imported live tokens that are gone in DataHub."""
        options = self._options
        allowed = (options.allow_no_expiry, options.allow_root)
        existing = people.actors
        checks = rules.TokenRules(self._store.clock(), existing, dead_accounts, self._root_actors, escalating, *allowed)
        gone, live, done, last = list[str](), 0, 0, ""
        async for batch in self._source.rows(DATAHUB_TOKEN_PREFIX):
            records, present, until = self._read_tokens(batch, checks)
            async for here in self._imported(last, until):
                live += len(here)
                gone += [token_id for token_id in here if token_id not in present]
            if until and until <= last:
                raise OperatorError(
                    "The source does not return its rows in the order of their urns. Nothing was revoked."
                )
            last = until or last
            await self._write_tokens(records)
            self._progress(done := done + len(batch), total)
        async for here in self._imported(last, LAST):
            live += len(here)
            gone += here
        most = max(1, live * options.at_most // 100) if options.at_most else 0
        if len(gone) > most:
            self._report.refusal = (
                f"{len(gone):,} of {live:,} imported live tokens are gone in DataHub; --at-most {options.at_most}% "
                f"allows {most:,}. {_UNTOUCHED}"
            )
        return gone

    def _read_tokens(
        self, batch: list[rules.AspectRow], checks: rules.TokenRules
    ) -> tuple[list[TokenRecord], set[str], str]:
        """The tokens that come; the ids of those that DataHub accepts, or may accept; and the last id of all."""
        records, present, last = list[TokenRecord](), set[str](), ""
        for row in batch:
            try:
                last = rules.token_id_of(row.urn)
                present.add(last)
                records.append(rules.read_token(last, rules.parsed(row.metadata), checks))
            except LeftOut as left_out:
                self._report.add(
                    Noun.TOKENS, Outcome.LEFT_OUT, row.urn.removeprefix(DATAHUB_TOKEN_PREFIX), str(left_out)
                )
                if str(left_out) == rules.NO_ACTOR:
                    present.discard(last)
        return records, present, last

    async def _imported(self, after: str, until: str) -> AsyncIterator[list[str]]:
        while here := await self._imports.imported_tokens(after, until, BATCH):
            yield here
            after = here[-1]

    async def _write_tokens(self, records: list[TokenRecord]) -> None:
        matches = await self._imports.import_tokens(self._precondition, records, dry_run=self._options.dry_run)
        for record, match in zip(records, matches, strict=True):
            plain = match in (TokenMatch.NEW, TokenMatch.UNCHANGED)
            example, reason = ("", "") if plain else (record.id, match.value)
            self._report.add(Noun.TOKENS, _TOKENS.get(match, Outcome.CONFLICT), example, reason)

    async def _revoke(self, gone: list[str]) -> None:
        for start in range(0, len(gone), BATCH):
            part = gone[start : start + BATCH]
            number = len(part)
            if not self._options.dry_run:
                number = await self._imports.revoke_imported(self._precondition, part)
            self._report.add(Noun.TOKENS, Outcome.REVOKED, part[0], "gone in DataHub", number)

    async def _declared_policies(self, current: tuple[Policy, ...]) -> tuple[Policy, ...]:
        elsewhere = {policy.urn for policy in current if policy.set_name != DATAHUB_SET}
        policies = list[Policy]()
        if self._options.tokens_only:
            return ()
        async for urn, aspects in self._entities(DATAHUB_POLICY_PREFIX, Noun.POLICIES):
            try:
                policy, lost = rules.read_policy(urn, aspects[rules.POLICY_INFO], self._other_groups)
            except LeftOut as left_out:
                self._report.add(Noun.POLICIES, Outcome.LEFT_OUT, urn, str(left_out))
                continue
            if policy.urn in elsewhere:
                self._report.add(Noun.POLICIES, Outcome.CONFLICT, policy.urn, _CREATED_HERE)
                continue
            policies.append(policy)
            if lost:
                self._report.add(Noun.POLICIES, Outcome.NOTE, urn, f"comes without {'; '.join(lost)}")
        return tuple(policies)


def _declaration(entities: Sequence[Entity], policies: tuple[Policy, ...] = ()) -> DeclaredSet:
    groups_first = tuple(sorted(entities, key=lambda one: not one.is_group))
    return DeclaredSet(DATAHUB_SET, {POLICY_PART: policies, ENTITY_PART: groups_first})


def _noun(urn: str) -> Noun:
    if urn.startswith(GROUP_PREFIX):
        return Noun.GROUPS
    return Noun.ACCOUNTS if is_account(urn) else Noun.POLICIES
