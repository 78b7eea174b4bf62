"""What a policy set declares: one part for each kind of thing, which the kind's own module gives.

A policy file, or the input of `applyPolicies`, has lists of entries. A part reads one list or more, validates them, and
says what a change of its things is. Applying a set creates and updates what it declares; what was made by the API joins
the set. With pruning, what the set no longer declares is deleted. What belongs to another set is a conflict.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Reason, check_length, invalid

MAX_DECLARED = 1_000
DEFAULT_SET = "default"
DATAHUB_SET = "datahub"
"""The groups, service accounts and policies that an import brought from DataHub."""

Json = Mapping[str, Any]


class FieldForm(Enum):
    """What a field of a policy file holds, where YAML leaves a choice."""

    TEXT = "text"
    FLAG = "true or false"
    DURATION = "a duration, in any form that commands take"
    PLAIN = "text, a whole number or nothing"


class FileField(NamedTuple):
    """How a policy file writes a field."""

    form: FieldForm = FieldForm.TEXT
    required: bool = False
    nullable: bool = False
    many: bool = False
    prefix: str = ""
    """A name alone is a urn with this prefix."""
    choices: Sequence[str] = ()
    allowed: str = ""
    """The choices, in words."""
    fields: "Mapping[str, FileField] | None" = None
    """Of a mapping."""


ListFields = Mapping[str, Mapping[str, FileField]]

NEEDED = FileField(required=True)
OPTIONAL = FileField(nullable=True)
TEXTS = FileField(many=True)


class Declarable(Protocol):
    @property
    def set_name(self) -> str | None:
        """The policy set that declares it; None: it was made by the API."""


T = TypeVar("T", bound=Declarable)


class ChangeKind(Enum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class Change(NamedTuple, Generic[T]):
    name: str
    """The urn, id or name of what changes, as people see it."""
    before: T | None
    after: T | None

    @property
    def kind(self) -> ChangeKind:
        if self.before is None:
            return ChangeKind.CREATE
        return ChangeKind.UPDATE if self.after is not None else ChangeKind.DELETE

    @property
    def newest(self) -> T:
        found = self.after or self.before
        assert found is not None
        return found


class PartPlan(NamedTuple, Generic[T]):
    """The changes to make, and what is no longer declared and stays in the set."""

    changes: tuple[Change[T], ...] = ()
    undeclared: tuple[T, ...] = ()


class Part(Generic[T]):
    """One kind of what a set declares."""

    lists: ClassVar[ListFields]
    """The lists that it reads, and the fields of their entries in a file."""
    privileges: ClassVar[tuple[Privilege, ...]] = ()
    """That a caller needs besides, to declare entries of this part."""
    most: ClassVar[int] = MAX_DECLARED
    key_field: ClassVar[str] = "id"
    unique: ClassVar[str] = "ids must be unique"
    title: ClassVar[str] = "{}"
    """What a conflict calls one of this name."""

    def parse(self, content: Mapping[str, Sequence[Json]], set_name: str) -> tuple[T, ...]:
        """Validate the entries of its lists. A fault names the entry and the field."""
        made: dict[str, T] = {}
        for name, entries in ((name, content[name]) for name in self.lists):
            check_length(entries, name, self.most)
            for index, entry in enumerate(entries):
                where = f"{name}[{index}]"
                try:
                    one = self.parse_entry(name, entry, set_name)
                except Fault as fault:
                    raise invalid(f"{where}.{fault.details['field']}", f"{where}.{fault.message}") from None
                if self.key(one) in made:
                    field = f"{where}.{self.key_field}"
                    raise invalid(field, f"{field} is declared twice; {self.unique}.")
                made[self.key(one)] = one
        return tuple(made.values())

    def parse_entry(self, name: str, given: Json, set_name: str) -> T:
        """Validate an entry of the list of this name. A fault names the field."""
        raise NotImplementedError

    def name(self, one: T) -> str:
        """The urn, id or name, as people see it."""
        raise NotImplementedError

    def key(self, one: T) -> str:
        """What is the same for the stored and the declared one."""
        return self.name(one)

    def written(self, one: T) -> dict[str, Any]:
        """The fields as a policy file has them, for a change that is shown."""
        raise NotImplementedError

    def is_same(self, before: T, after: T) -> bool:
        return (before.set_name, self.written(before)) == (after.set_name, self.written(after))

    def check(self, stored: Mapping[str, T], declared: Sequence[T], set_name: str, *, prune: bool) -> None:
        """Raise for conflicts other than with another set. The stored ones are by key."""

    def after_prune(self, one: T) -> T | None:
        """What pruning leaves of one that is not declared."""
        return None

    def needed(self, declared: Sequence[T]) -> tuple[Privilege, ...]:
        """The privileges that declaring these takes, beside Manage Policies."""
        return self.privileges if declared else ()

    def redacted(self, change: Change[T]) -> Change[T]:
        """A change as callers without the privileges may see it."""
        return change

    def plan(self, stored: Iterable[T], declared: Sequence[T], set_name: str, *, prune: bool) -> PartPlan[T]:
        """The changes that turn what is stored into what a set declares."""
        kept = {self.key(one): one for one in stored}
        self.check(kept, declared, set_name, prune=prune)
        changes: list[Change[T]] = []
        for one in declared:
            before = kept.pop(self.key(one), None)
            if before is not None and before.set_name not in (None, set_name):
                raise declared_elsewhere(self.title.format(self.name(one)), before.set_name, set_name)
            if before is None or not self.is_same(before, one):
                changes.append(Change(self.name(one), before, one))
        left = tuple(one for one in kept.values() if one.set_name == set_name)
        if not prune:
            return PartPlan(tuple(changes), left)
        return PartPlan((*changes, *(Change(self.name(one), one, self.after_prune(one)) for one in left)))


def declared_elsewhere(title: str, other: str | None, set_name: str) -> Fault:
    return Fault(
        Reason.POLICY_DECLARED_ELSEWHERE,
        f"{title} belongs to the policy set {other!r}; this is the set {set_name!r}. "
        "Nothing was changed. Choose another name or id, or remove it from that set first.",
        set=other,
    )


def summary(changes: Iterable[Change[Any]]) -> str:
    """For example: 2 created, 1 removed."""
    kinds = [change.kind for change in changes]
    words = {ChangeKind.CREATE: "created", ChangeKind.UPDATE: "updated", ChangeKind.DELETE: "removed"}
    counts = [f"{kinds.count(kind)} {word}" for kind, word in words.items() if kind in kinds]
    return ", ".join(counts) or "nothing to change"
