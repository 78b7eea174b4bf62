"""Rows: what is kept of each thing, the same in every store, and what it means. JSON is kept as text."""

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import orjson

from watchword.domain.bulk_revocation import Receipt, Selection
from watchword.domain.errors import Fault, Reason
from watchword.domain.events import Action, Detail, Event, KeptEvent
from watchword.domain.operations import ACTIVE, Operation, Plan, State, Work
from watchword.domain.policies import Policy, PolicySource, PolicyState, Privilege
from watchword.domain.policy_sets import ChangeKind, PolicyChange
from watchword.domain.store_urls import LastStart
from watchword.domain.tasks import TaskId
from watchword.domain.token_limits import unpacked
from watchword.domain.tokens import TokenRecord, TokenType

ACCOUNT = "urn, name, description, created_at, created_by, deleted_at"
SESSION = "id, actor_urn, token_id, created_at, ends_at"
RETRY = "actor, digest, kid, token_id, created_at, expires_at"
POLICY = "urn, name, description, state, privileges, users, groups, all_users, source, set_name"
GROUP = "urn, name, description, members"
EVENT = "at, actor, bearer_id, action, target, peer, request_id, detail"
OPERATION = """number, plan, asked_by, asked_at, state, work, started_at, changed_at, finished_at, cancel_asked_at,
    cancel_asked_by, fence"""
# Word for word the condition of the partial index, which is used only where it is seen to hold.
OPERATION_ACTIVE = "state IN ('" + "', '".join(state.value for state in ACTIVE) + "')"
# Nobody holds an operation for as long as this: a later end is of a clock that was set back.
LONGEST_HOLD = 60_000

_MEANINGS: dict[str, Callable[[Any], Any]] = {
    "type": {kind.value: kind for kind in TokenType}.__getitem__,
    "limits": unpacked,
}
_ACTIONS = {
    ChangeKind.CREATE: Action.POLICY_CREATED,
    ChangeKind.UPDATE: Action.POLICY_UPDATED,
    ChangeKind.DELETE: Action.POLICY_DELETED,
}

Row = Sequence[Any]


def json_text(value: Any) -> str:
    return orjson.dumps(value).decode()


@lru_cache(64)
def token_reader(wanted: frozenset[str] | None) -> tuple[str, Callable[[Row], TokenRecord]]:
    """The columns to select, and the function that turns a row into a record. With `wanted` the record has only these
    fields and its id: that halves the cost of a long list. To read another field is an AttributeError.
    """
    fields = [name for name in TokenRecord._fields if wanted is None or name in wanted or name == "id"]
    record: type[TokenRecord] = TokenRecord
    if wanted is not None:
        make_class: Any = namedtuple  # noqa: PYI024 - its fields are known only here
        partial_record = make_class("PartialTokenRecord", fields)
        partial_record.status = TokenRecord.status
        partial_record.projection_of = TokenRecord
        record = partial_record
    read = [(fields.index(name), meaning) for name, meaning in _MEANINGS.items() if name in fields]

    def make(row: Row) -> TokenRecord:
        values = list(row)
        for index, meaning in read:
            values[index] = meaning(values[index])
        return record._make(values)

    columns = ", ".join("false" if name == "suspended" else name for name in fields)
    # A row without columns to convert needs no Python code.
    return columns, make if read else partial(tuple.__new__, record)


TOKEN, token_of = token_reader(None)
TOKEN_COLUMNS = TOKEN.removesuffix(", false")


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
        record.limits.packed(),
        record.parent,
        record.root,
        record.replaces,
        record.grace,
        record.full_end,
    )


def created(record: TokenRecord) -> Event:
    """The event of a new token, told by how it was made."""
    detail: dict[str, Detail] = {"actorUrn": record.actor_urn, "expiresAt": record.expires_at}
    limits = record.limits
    for word, values in (("scopes", limits.scopes), ("audience", limits.audience), ("networks", limits.networks)):
        if values is not None:
            detail[word] = list(values)
    if record.replaces is not None:
        return Event(Action.TOKEN_ROTATED, record.id, {**detail, "replaces": record.replaces})
    if record.parent is not None:
        return Event(Action.TOKEN_DERIVED, record.id, {**detail, "parent": record.parent})
    return Event(Action.TOKEN_CREATED, record.id, detail)


def replayed(record: TokenRecord) -> Event:
    return Event(Action.TOKEN_REPLAYED, record.id, {"actorUrn": record.actor_urn})


def no_token() -> Fault:
    return Fault(Reason.TOKEN_NOT_FOUND, "There is no such token among those you may revoke.")


def already_revoked(at: int) -> Fault:
    return Fault(Reason.ALREADY_REVOKED, "The token was revoked before.", revokedAt=at)


def replaced(successor: TokenRecord, end: int) -> Event:
    """The event of a successor's first use."""
    assert successor.replaces is not None
    return Event(Action.TOKEN_REPLACED, successor.replaces, {"successor": successor.id, "endsBy": end})


def many_revoked(selection: Selection, receipt: Receipt) -> Event:
    detail: dict[str, Detail] = {
        "count": receipt.count,
        "ids": None if selection.ids is None else len(selection.ids),
        "filters": [f"{f.field.word} {'not ' * f.negated}{f.condition.value}" for f in selection.filters],
        "cascade": selection.cascade,
    }
    return Event(Action.TOKENS_REVOKED, receipt.digest, detail)


def course(record: TokenRecord) -> tuple[Any, ...]:
    """What decides whether and how a token may be replaced."""
    return (record.expires_at, record.revoked_at, record.replaced_by, record.replaced_at, record.grace)


def deleted_account() -> Fault:
    return Fault(Reason.NOT_EDITABLE, "The service account was deleted, and stays so; make a new one.")


def actor_suspended() -> Fault:
    return Fault(Reason.ACTOR_SUSPENDED, "The actor is suspended; resume it before giving it a token.")


def no_room(max_live: int) -> Fault:
    return Fault(
        Reason.TOO_MANY_TOKENS, f"The actor holds {max_live:,} live tokens, the most it may; revoke some first."
    )


def policy_of(row: Row) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, source, set_name = row
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
        set_name=set_name,
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
        policy.set_name,
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
    if policy.set_name is not None:
        detail["set"] = policy.set_name
    return Event(action, policy.urn, detail)


def change_events(changes: Iterable[PolicyChange]) -> list[Event]:
    return [
        Event(_ACTIONS[change.kind], change.urn)
        if change.after is None
        else policy_event(_ACTIONS[change.kind], change.after)
        for change in changes
    ]


def last_start(kept: str | None) -> LastStart | None:
    """Of what a start told; None where none did yet."""
    told = orjson.loads(kept) if kept else {}
    return LastStart(told["issuer"], told["listensAt"]) if "issuer" in told else None


def setting_events(kept: str | None, settings: Mapping[str, str]) -> list[Event]:
    """An event for each setting that is another than at the last start; the first start has nothing to compare, nor has
    a setting that was not told then, or is not now: of those that share a store each has some of its own. What follows
    from settings, such as the issuer, is none itself.
    """
    before: dict[str, str] = orjson.loads(kept) if kept else dict(settings)
    return [
        Event(Action.SETTING_CHANGED, name, {"before": before[name], "after": settings[name]})
        for name in sorted(before.keys() & settings.keys())
        if before[name] != settings[name] and name.isupper()
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
