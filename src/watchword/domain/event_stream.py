"""Events for a SIEM: their fields by the Elastic Common Schema (ECS), and where they are sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from ipaddress import ip_address
from typing import Any, Protocol

from watchword.domain.events import Action, KeptEvent

ECS_VERSION = "8.17.0"
SCHEMA = 1
"""The version of the fields under `watchword`."""

_REJECTIONS = frozenset({Action.ACCESS_DENIED.value, Action.AUTHENTICATION_FAILED.value})
_FAILURES = _REJECTIONS | {Action.OPERATION_FAILED.value}
# By the noun of an action: its ECS categories, and the type that names what was changed.
_CATEGORIES: dict[str, tuple[list[str], list[str]]] = {
    "token": (["iam"], ["user"]),
    "tokens": (["iam"], ["user"]),
    "account": (["iam"], ["user"]),
    "actor": (["iam"], ["user"]),
    "group": (["iam"], ["group"]),
    "policy": (["iam"], ["admin"]),
    "datahub": (["iam"], ["admin"]),
    "access": (["api"], []),
    "authentication": (["authentication"], []),
    "session": (["authentication", "session"], []),
    "device": (["authentication"], []),
    "operation": (["database"], []),
    "store": (["database"], []),
}
_OTHER_CATEGORY: tuple[list[str], list[str]] = (["configuration"], [])
_TYPES = {
    "created": "creation",
    "derived": "creation",
    "rotated": "creation",
    "imported": "creation",
    "revoked": "deletion",
    "deleted": "deletion",
    "denied": "denied",
    "expiring": "info",
    "new_network": "info",
    "found_by_scan": "info",
}
_SIGN_IN_TYPES = {"started": "start", "failed": "start", "ended": "end"}
_OPERATION_TYPES = {"failed": "error"}


def ecs_fields(event: KeptEvent) -> dict[str, Any]:
    """The event as nested ECS fields. What ECS has no field for is under `watchword`."""
    noun, _, verb = event.action.partition(".")
    categories, named = _CATEGORIES.get(noun, _OTHER_CATEGORY)
    user: dict[str, Any] = {"id": event.actor}
    fields: dict[str, Any] = {
        "@timestamp": datetime.fromtimestamp(event.at / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
        "ecs": {"version": ECS_VERSION},
        "event": {
            "kind": "event",
            "module": "watchword",
            "dataset": "watchword.audit",
            "id": str(event.seq),
            "sequence": event.seq,
            "action": event.action,
            "category": categories,
            "type": [*named, _type(categories, verb)],
            "outcome": "failure" if event.action in _FAILURES else "success",
        },
        "user": user,
        "watchword": {"schema": SCHEMA, "target": event.target, "detail": dict(event.detail)},
    }
    if noun in {"actor", "account"}:
        user["target"] = {"id": event.target}
    elif isinstance(event.detail.get("actorUrn"), str):
        user["target"] = {"id": event.detail["actorUrn"]}
    elif noun == "group":
        fields["group"] = {"id": event.target}
    if event.action in _REJECTIONS and "reason" in event.detail:
        fields["event"]["reason"] = event.detail["reason"]
    if event.bearer_id is not None:
        fields["watchword"]["token"] = {"id": event.bearer_id}
    if _is_address(event.peer):
        fields["source"] = {"ip": event.peer}
    elif event.peer:
        fields["watchword"]["peer"] = event.peer
    if event.request_id:
        fields["http"] = {"request": {"id": event.request_id}}
    return fields


def _type(categories: list[str], verb: str) -> str:
    if "authentication" in categories:
        return _SIGN_IN_TYPES.get(verb, "info")
    if "database" in categories:
        return _OPERATION_TYPES.get(verb, "change")
    return _TYPES.get(verb, "change")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


class Transport(Enum):
    STDOUT = "stdout"
    FILE = "file"
    UDP = "syslog"
    TCP = "syslog+tcp"
    UNIX = "unix"


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """Where events are sent: a path, or a host and a port, or neither for standard output."""

    transport: Transport
    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        match self.transport:
            case Transport.STDOUT:
                return "stdout"
            case Transport.FILE:
                return self.path
            case Transport.UNIX:
                return f"syslog:{self.path}"
            case _:
                host = f"[{self.host}]" if ":" in self.host else self.host
                return f"{self.transport.value}:{host}:{self.port}"


class EventSink(Protocol):
    def write(self, events: Sequence[KeptEvent]) -> None:
        """Write a line for each; when this returns they have arrived, as far as the target can tell. Blocks; raises
        OSError if it fails, and some of them may have arrived.
        """

    def close(self) -> None: ...
