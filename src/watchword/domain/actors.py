"""Actors: who calls, how they stand, and by what right a write is done.

What a caller may do is decided before a write and proven again inside the transaction that writes: the warrant
names everything the decision rested on. If any of it has changed, the write does not happen.
"""

from dataclasses import dataclass
from enum import Enum

from watchword.domain.policies import Privilege, denied
from watchword.domain.tokens import TokenRecord
from watchword.domain.urns import SYSTEM_ACTOR


class ActorStatus(Enum):
    ACTIVE = "ACTIVE"
    SUSPENDED = "SUSPENDED"


@dataclass(frozen=True, slots=True)
class Standing:
    """How an actor stands at the moment of one read: the store's committed state."""

    suspended: bool
    groups: tuple[str, ...]
    policy_version: int


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token found by its digest, with the standing of its actor from the same read."""

    record: TokenRecord
    standing: Standing


@dataclass(frozen=True, slots=True)
class ActorState:
    """What is kept about an actor that has a state of its own; most have none."""

    urn: str
    status: ActorStatus
    changed_at: int | None = None
    changed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, from where. `bearer_id` is the token it came with; None for a believed actor header."""

    actor: str
    standing: Standing
    bearer_id: str | None
    peer: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Warrant:
    """What a write was allowed by, and who answers for it in the event it leaves."""

    actor: str
    bearer_id: str | None
    policy_version: int
    peer: str
    request_id: str

    @property
    def is_system(self) -> bool:
        return self.actor == SYSTEM_ACTOR


def system_warrant(origin: str, request_id: str = "") -> Warrant:
    """For the service itself and for commands that work on the store: nothing is left to prove."""
    return Warrant(actor=SYSTEM_ACTOR, bearer_id=None, policy_version=0, peer=origin, request_id=request_id)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may do under the version of the policies that its standing names."""

    caller: Caller
    privileges: frozenset[Privilege]

    def may(self, privilege: Privilege) -> bool:
        return privilege in self.privileges

    def require(self, privilege: Privilege) -> None:
        if privilege not in self.privileges:
            raise denied(privilege)

    @property
    def warrant(self) -> Warrant:
        caller = self.caller
        return Warrant(
            actor=caller.actor,
            bearer_id=caller.bearer_id,
            policy_version=caller.standing.policy_version,
            peer=caller.peer,
            request_id=caller.request_id,
        )
