"""Resources: other services whose gateways verify tokens for an audience of their own, at `/resources/<name>/auth`.

A policy file declares them, with a name for the path and an id, which a token's audience must contain. Applying a set
creates and updates its resources; with pruning, those that it no longer declares are deleted.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from watchword.domain.errors import check_length, invalid
from watchword.domain.names import check_lower_id
from watchword.domain.policies import ChangeKind, PartPlan, declared_elsewhere
from watchword.domain.token_limits import check_audience

MAX_RESOURCES = 1_000


class Resource(NamedTuple):
    name: str
    id: str
    set_name: str | None = None

    def written(self) -> dict[str, str]:
        """The fields as a policy file declares them."""
        return {"name": self.name, "id": self.id}


class ResourceChange(NamedTuple):
    kind: ChangeKind
    name: str
    before: Resource | None
    after: Resource | None


ResourcePlan = PartPlan[Resource, ResourceChange]


def check_resources(given: Sequence[Mapping[str, Any]], set_name: str) -> tuple[Resource, ...]:
    """The resources that a set declares; the fault names the resource and the field."""
    check_length(given, "resources", MAX_RESOURCES)
    made: dict[str, Resource] = {}
    for index, one in enumerate(given):
        where = f"resources[{index}]"
        name = check_lower_id(one["name"], f"{where}.name")
        resource = Resource(name, _check_id(one["id"], f"{where}.id"), set_name)
        if name in made:
            raise invalid(f"{where}.name", f"{where}.name is declared twice; names must be unique.")
        if any(resource.id == other.id for other in made.values()):
            raise invalid(f"{where}.id", f"{where}.id is declared twice; ids must be unique.")
        made[name] = resource
    return tuple(made.values())


def _check_id(word: str, field: str) -> str:
    """An https URL, an http URL on loopback, or a word."""
    check_audience(word, field)
    if "://" not in word:
        return word
    try:
        parts = urlsplit(word)
        secure = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or ""))
        valid = secure and bool(parts.hostname) and "#" not in word and "@" not in parts.netloc
    except ValueError:
        valid = False
    if not valid:
        raise invalid(
            field,
            f"{field} must be an https URL without user and fragment, such as https://orders.example.org, or a word. "
            "Only an address on loopback may begin with http.",
        )
    return word


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plan_resources(
    current: Iterable[Resource], declared: Sequence[Resource], set_name: str, *, prune: bool
) -> ResourcePlan:
    """The plan that turns the current resources into those that a set declares."""
    kept = {one.name: one for one in current}
    ids = {one.id: one for one in kept.values() if one.set_name != set_name}
    changes: list[ResourceChange] = []
    for resource in declared:
        before = kept.pop(resource.name, None)
        other = before if before is not None and before.set_name != set_name else ids.get(resource.id)
        if other is not None:
            raise declared_elsewhere(f"The resource {other.name} ({other.id})", other.set_name, set_name)
        if before != resource:
            kind = ChangeKind.CREATE if before is None else ChangeKind.UPDATE
            changes.append(ResourceChange(kind, resource.name, before, resource))
    left = tuple(one for one in kept.values() if one.set_name == set_name)
    if prune:
        changes += [ResourceChange(ChangeKind.DELETE, one.name, one, None) for one in left]
        return ResourcePlan(tuple(changes))
    _check_kept(declared, left)
    return ResourcePlan(tuple(changes), left)


def _check_kept(declared: Sequence[Resource], left: Sequence[Resource]) -> None:
    """Without pruning, a resource that the file does not declare any more keeps its id."""
    ids = {one.id: one for one in left}
    for index, resource in enumerate(declared):
        other = ids.get(resource.id)
        if other is not None:
            field = f"resources[{index}].id"
            raise invalid(field, f"{field} is that of the resource {other.name}, which --prune removes.")
