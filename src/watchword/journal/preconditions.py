"""What must still hold when a change is committed, and who makes it."""

from dataclasses import dataclass

from watchword.basics.names import SYSTEM_ACTOR


@dataclass(frozen=True, slots=True)
class WritePrecondition:
    """What must still hold when a write commits, and who made it, for its event."""

    actor: str
    bearer_id: str | None
    policy_version: int
    peer: str
    request_id: str
    by_possession: bool = False  # whether possession of the token is enough
    daily_changes: int = 0  # how many the actor may make; 0: any number

    @property
    def is_unconditional(self) -> bool:
        return self.by_possession or self.actor == SYSTEM_ACTOR


def system_precondition(origin: str, request_id: str = "") -> WritePrecondition:
    """For the service itself and for commands on the store: no condition."""
    return WritePrecondition(actor=SYSTEM_ACTOR, bearer_id=None, policy_version=0, peer=origin, request_id=request_id)


def possession_precondition(actor: str, token_id: str, peer: str, request_id: str) -> WritePrecondition:
    """For the holder of a token who revokes it."""
    return WritePrecondition(actor, token_id, 0, peer, request_id, by_possession=True)
