"""The sequential model: one actor with its tokens, status and policies, answering one call at a time. It is written
from the contract and shares no code with the service. A call is one read or one write of the state at a single moment,
except a list with a bearer, which is two reads: the authorization, then the rows. Every mutation checks its
precondition in its transaction, so it is one moment."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.linear.history import NEVER, OK, Call, Kind, Outcome, Verdict, refused


class State(NamedTuple):
    suspended: bool = False
    live: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()
    policies: frozenset[str] = frozenset()


def respond(state: State, kind: Kind, name: str, bearer: str | None) -> tuple[Outcome, State]:
    """The answer in this state, and the next state."""
    if kind is Kind.VERIFY:
        return _credential(state, name) or OK, state
    refusal = None if bearer is None else _caller(state, kind, bearer)
    if refusal is not None:
        return refusal, state
    match kind:
        case Kind.CREATE:
            if state.suspended:
                return refused("actor_suspended"), state
            return OK, state._replace(live=state.live | {name})
        case Kind.REVOKE:
            if name in state.dead:
                return refused("already_revoked"), state
            if name not in state.live:
                return refused("token_not_found"), state
            return OK, state._replace(live=state.live - {name}, dead=state.dead | {name})
        case Kind.SUSPEND | Kind.RESUME:
            return OK, state._replace(suspended=kind is Kind.SUSPEND)
        case Kind.GRANT:
            return OK, state._replace(policies=state.policies | {name})
        case Kind.WITHDRAW:
            if name not in state.policies:
                return refused("policy_not_found"), state
            return OK, state._replace(policies=state.policies - {name})
        case Kind.PRIVILEGES:
            return Outcome(Verdict.OK, granted=bool(state.policies)), state
    return Outcome(Verdict.OK, names=state.live, total=len(state.live)), state


def _caller(state: State, kind: Kind, bearer: str) -> Outcome | None:
    refusal = _credential(state, bearer)
    if refusal is None and kind is not Kind.PRIVILEGES and not state.policies:
        return refused("missing_privilege")
    return refusal


def _credential(state: State, token: str) -> Outcome | None:
    if token in state.dead:
        return refused("token_revoked")
    if token not in state.live or state.suspended:
        return refused("invalid_token")
    return None


def agrees(heard: Outcome, told: Outcome) -> bool:
    """Whether the outcome matches the model; a list without rows did not ask for any."""
    return (
        heard.verdict is told.verdict
        and heard.reason == told.reason
        and heard.granted in (None, told.granted)
        and heard.total in (None, told.total)
        and heard.names in (None, told.names)
    )


# What a step reads and writes: its actor's status, one token, one policy, or all of them.
STATUS, TOKENS, POLICIES = "status", "tokens", "policies"


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A moment within a call. An optional one may never happen."""

    call: Call
    end: int
    optional: bool
    only_may: bool = False
    """Only whether the caller may: the first look of a list with a bearer."""

    @property
    def writes(self) -> bool:
        return self.call.kind.writes and (self.optional or self.call.outcome.verdict is Verdict.OK)

    def after(self, state: State) -> State | None:
        """The next state; None if the model would answer differently."""
        call = self.call
        told, new = respond(state, call.kind, call.name, call.bearer)
        if self.optional:
            return new if told.verdict is Verdict.OK and new != state else None
        if self.only_may:
            return state if told.verdict is Verdict.OK else None
        return new if agrees(call.outcome, told) else None

    def read_keys(self) -> set[str]:
        call, keys = self.call, set()
        if call.bearer is not None:
            keys |= {STATUS, f"t:{call.bearer}", POLICIES}
        match call.kind:
            case Kind.VERIFY:
                keys |= {STATUS, f"t:{call.name}"}
            case Kind.CREATE:
                keys |= {STATUS, f"t:{call.name}"}
            case Kind.REVOKE:
                keys |= {f"t:{call.name}"}
            case Kind.WITHDRAW:
                keys |= {f"p:{call.name}"}
            case Kind.PRIVILEGES:
                keys |= {POLICIES}
            case Kind.LIST:
                keys |= set() if self.only_may else {TOKENS}
        return keys

    def write_keys(self) -> set[str]:
        if not self.writes:
            return set()
        match self.call.kind:
            case Kind.CREATE | Kind.REVOKE:
                return {f"t:{self.call.name}", TOKENS}
            case Kind.SUSPEND | Kind.RESUME:
                return {STATUS}
        return {f"p:{self.call.name}", POLICIES}


def steps_of(calls: Iterable[Call]) -> list[Step]:
    """The moments to be ordered."""
    steps: list[Step] = []
    for call in calls:
        match call.outcome.verdict:
            case Verdict.NOTHING:
                continue
            case Verdict.UNKNOWN:
                steps.append(Step(call, NEVER, optional=True))
                if call.kind is Kind.CREATE:
                    # The service revokes an undelivered token when it notices.
                    undone = replace(call, kind=Kind.REVOKE, bearer=None)
                    steps.append(Step(undone, NEVER, optional=True))
            case _:
                if call.kind is Kind.LIST and call.bearer is not None and call.outcome.verdict is Verdict.OK:
                    steps.append(Step(call, call.end, optional=False, only_may=True))
                    steps.append(Step(replace(call, bearer=None), call.end, optional=False))
                else:
                    steps.append(Step(call, call.end, optional=False))
    return steps


def conflict(one: Step, other: Step) -> bool:
    """Whether their order can matter. Creating or revoking two tokens commutes."""
    mine, theirs = one.write_keys(), other.write_keys()
    both = {TOKENS, POLICIES}
    return bool(mine & other.read_keys() or theirs & one.read_keys() or (mine & theirs) - both)
