"""Resources: other services whose gateways verify tokens for an audience of their own, at `/resources/<name>/auth`.

A policy file declares them, with a name for the path and an id, which a token's audience must contain. Applying a set
creates and updates its resources; with pruning, those that it no longer declares are deleted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from watchword.authority.declared_parts import NEEDED, Json, ListFields, Part, declared_elsewhere
from watchword.authority.limits import AudienceLimit
from watchword.basics.errors import invalid
from watchword.basics.names import check_lower_id
from watchword.basics.networks import is_loopback


class Resource(NamedTuple):
    name: str
    id: str
    set_name: str | None = None


def _check_id(word: str, field: str) -> str:
    """An https URL, an http URL on loopback, or a word."""
    AudienceLimit.check(word, field)
    if "://" not in word:
        return word
    try:
        parts = urlsplit(word)
        host = parts.hostname or ""
        is_local = parts.scheme == "http" and (host == "localhost" or is_loopback(host))
        valid = (parts.scheme == "https" or is_local) and bool(host) and "#" not in word and "@" not in parts.netloc
    except ValueError:
        valid = False
    if not valid:
        raise invalid(
            field,
            f"{field} must be an https URL without user and fragment, such as https://orders.example.org, or a word. "
            "Only an address on loopback may begin with http.",
        )
    return word


class ResourcePart(Part[Resource]):
    lists: ClassVar[ListFields] = {"resources": {"name": NEEDED, "id": NEEDED}}

    key_field, unique = "name", "names must be unique"

    def parse(self, content: Mapping[str, Sequence[Json]], set_name: str) -> tuple[Resource, ...]:
        made = super().parse(content, set_name)
        for index, resource in enumerate(made):
            if any(resource.id == other.id for other in made[:index]):
                raise invalid(f"resources[{index}].id", f"resources[{index}].id is declared twice; ids must be unique.")
        return made

    def parse_entry(self, name: str, given: Json, set_name: str) -> Resource:
        return Resource(check_lower_id(given["name"], "name"), _check_id(given["id"], "id"), set_name)

    def name(self, one: Resource) -> str:
        return one.name

    def written(self, one: Resource) -> dict[str, Any]:
        return {"name": one.name, "id": one.id}

    def check(
        self, stored: Mapping[str, Resource], declared: Sequence[Resource], set_name: str, *, prune: bool
    ) -> None:
        """An id is of one resource. Without pruning, one that the file does not declare any more keeps its id."""
        others = {one.id: one for one in stored.values() if one.set_name != set_name}
        for resource in declared:
            found = stored.get(resource.name)
            other = found if found is not None and found.set_name != set_name else others.get(resource.id)
            if other is not None:
                raise declared_elsewhere(f"The resource {other.name} ({other.id})", other.set_name, set_name)
        names = {one.name for one in declared}
        left = {} if prune else {one.id: one for one in stored.values() if one.name not in names}
        for index, resource in enumerate(declared):
            if resource.id in left:
                field, other = f"resources[{index}].id", left[resource.id]
                raise invalid(field, f"{field} is that of the resource {other.name}, which --prune removes.")


RESOURCE_PART = ResourcePart()
