"""How a part of a policy set is read and changed. The tables of each kind have theirs beside them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from watchword.authority.declared_parts import Change, Declarable, Part
from watchword.authority.privileges import Require
from watchword.database.transaction import Transaction
from watchword.journal.events import Event
from watchword.journal.preconditions import WritePrecondition

T = TypeVar("T", bound=Declarable)


@dataclass(frozen=True, slots=True)
class StoredPart(Generic[T]):
    part: Part[T]
    find: Callable[[Transaction, str, Sequence[T]], Awaitable[Sequence[T]]]
    """What a set of this name has or declares; it may return more."""
    apply: Callable[[Transaction, WritePrecondition, Sequence[Change[T]], Require, int], Awaitable[list[Event]]]
    """Make the changes. `require` is for the privileges that each change needs. The caller has the locks and writes the
    events.
    """
    locks: Callable[[Sequence[T]], Sequence[str]] = lambda _: ()
    """Of what a set declares, beside POLICIES."""
