"""Rows: what is kept of each thing, the same in every store, and what it means. JSON is kept as text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from watchword.domain.declared import ChangeKind, PolicyChange
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event, KeptEvent
from watchword.domain.operations import ACTIVE, Operation, Plan, State, Work
from watchword.domain.policies import Policy, PolicySource, PolicyState, Privilege
from watchword.domain.tasks import TaskId
from watchword.domain.tokens import TokenRecord, TokenType

TOKEN = (
    "id, type, name, description, actor_urn, owner_urn, created_at, expires_at, minted_with, last_used_at, revoked_at"  # noqa: S105
)
POLICY = "urn, name, description, state, privileges, users, groups, all_users, source"
GROUP = "urn, name, description, members"
EVENT = "at, actor, bearer_id, action, target, peer, request_id, detail"
OPERATION = """number, plan, asked_by, asked_at, state, work, started_at, changed_at, finished_at, cancel_asked_at,
    cancel_asked_by, fence"""
# Word for word the condition of the partial index, which is used only where it is seen to hold.
OPERATION_ACTIVE = "state IN ('" + "', '".join(state.value for state in ACTIVE) + "')"
# Nobody holds an operation for as long as this: a later end is of a clock that was set back.
LONGEST_HOLD = 60_000

_TYPES = {kind.value: kind for kind in TokenType}
_ACTIONS = {
    ChangeKind.CREATE: Action.POLICY_CREATED,
    ChangeKind.UPDATE: Action.POLICY_UPDATED,
    ChangeKind.DELETE: Action.POLICY_DELETED,
}

Row = Sequence[Any]


def json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


def words(kinds: Iterable[str]) -> str:
    """Words of our own, as SQL lists them."""
    return ", ".join(f"'{word}'" for word in kinds)


def token_of(row: Row) -> TokenRecord:
    token_id, kind, *rest = row
    return TokenRecord(token_id, _TYPES[kind], *rest)


def token_values(record: TokenRecord) -> tuple[Any, ...]:
    """Of a new one: it was neither used nor revoked yet."""
    return (
        record.id,
        record.type.value,
        record.name,
        record.description,
        record.actor_urn,
        record.owner_urn,
        record.created_at,
        record.expires_at,
        record.minted_with,
    )


def created(record: TokenRecord) -> Event:
    detail: dict[str, Detail] = {"actorUrn": record.actor_urn, "expiresAt": record.expires_at}
    return Event(Action.TOKEN_CREATED, record.id, detail)


def no_token() -> Fault:
    return Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may revoke.")


def already_revoked(at: int) -> Fault:
    return Fault(Reason.ALREADY_REVOKED, "The token was revoked before.", revokedAt=at)


def actor_suspended() -> Fault:
    return Fault(Reason.ACTOR_SUSPENDED, "The actor is suspended; resume it before giving it a token.")


def no_room(max_live: int) -> Fault:
    return Fault(
        Reason.TOO_MANY_TOKENS, f"The actor holds {max_live:,} live tokens, the most it may; revoke some first."
    )


def policy_of(row: Row) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, source = row
    return Policy(
        urn=urn,
        name=name,
        description=description,
        state=PolicyState(state),
        privileges=frozenset(Privilege[word] for word in orjson.loads(privileges)),
        users=frozenset(orjson.loads(users)),
        groups=frozenset(orjson.loads(groups)),
        all_users=bool(all_users),
        source=PolicySource(source),
    )


def policy_values(policy: Policy) -> tuple[Any, ...]:
    return (
        policy.urn,
        policy.name,
        policy.description,
        policy.state.value,
        json_text(sorted(privilege.name for privilege in policy.privileges)),
        json_text(sorted(policy.users)),
        json_text(sorted(policy.groups)),
        int(policy.all_users),
        policy.source.value,
    )


def policy_event(action: Action, policy: Policy) -> Event:
    detail: dict[str, Detail] = {
        "name": policy.name,
        "state": policy.state.value,
        "privileges": sorted(privilege.name for privilege in policy.privileges),
        "users": sorted(policy.users),
        "groups": sorted(policy.groups),
        "allUsers": policy.all_users,
        "source": policy.source.value,
    }
    return Event(action, policy.urn, detail)


def change_events(changes: Iterable[PolicyChange]) -> list[Event]:
    return [
        Event(_ACTIONS[change.kind], change.urn)
        if change.after is None
        else policy_event(_ACTIONS[change.kind], change.after)
        for change in changes
    ]


def setting_events(kept: str | None, settings: Mapping[str, str]) -> list[Event]:
    """An event for each setting that is another than at the last start; the first start has nothing to compare, nor has
    a setting that was not told then, or is not now: of those that share a store each has some of its own.
    """
    before: dict[str, str] = orjson.loads(kept) if kept else dict(settings)
    return [
        Event(Action.SETTING_CHANGED, name, {"before": before[name], "after": settings[name]})
        for name in sorted(before.keys() & settings.keys())
        if before[name] != settings[name]
    ]


def editable(row: Row | None) -> Policy:
    """The policy, where there is one that others than the service may change."""
    if row is None:
        raise Fault(Reason.POLICY_NOT_FOUND, "There is no policy with this urn.")
    policy = policy_of(row)
    if not policy.editable:
        raise Fault(Reason.NOT_EDITABLE, "This policy is kept by the service and cannot be changed or deleted.")
    return policy


def policy_exists() -> Fault:
    return Fault(Reason.ALREADY_EXISTS, "There is a policy with this urn.")


def group_exists() -> Fault:
    return Fault(Reason.ALREADY_EXISTS, "There is a group of this id.")


def no_group() -> Fault:
    return Fault(Reason.GROUP_NOT_FOUND, "There is no group with this urn.")


def event_of(row: Row) -> KeptEvent:
    """A row of EVENT and its seq."""
    at, actor, bearer_id, action, target, peer, request_id, detail, seq = row
    return KeptEvent(at, actor, bearer_id, action, target, peer, request_id, orjson.loads(detail), seq)


def event_values(event: KeptEvent) -> tuple[Any, ...]:
    return (
        event.at,
        event.actor,
        event.bearer_id,
        event.action,
        event.target,
        event.peer,
        event.request_id,
        json_text(dict(event.detail)),
    )


def operation_of(row: Row) -> Operation:
    number, plan, asked_by, asked_at, state, work, *rest = row
    plan, work = Plan.unpacked(orjson.loads(plan)), Work.unpacked(orjson.loads(work))
    return Operation(number, plan, asked_by, asked_at, State(state), work, *rest)


def operation_running(task: TaskId) -> Fault:
    return Fault(
        Reason.OPERATION_RUNNING,
        f"The operation {task} on the same index is not over yet. Watch it or cancel it, then try again.",
        operationId=str(task),
    )


def no_operation() -> Fault:
    return Fault(Reason.OPERATION_NOT_FOUND, "There is no operation with this id.")


def too_late_to_cancel(operation: Operation) -> Fault:
    return Fault(
        Reason.TOO_LATE_TO_CANCEL,
        f"The operation is over: {operation.state.value}."
        if operation.state.is_over
        else "The copy is taking the place of the index: it is too late to cancel.",
        state=operation.state.value,
    )
