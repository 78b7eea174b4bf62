"""Groups and service accounts that a policy file declares beside its policies. They are one part, because an account
names groups of the same file.

Accounts are never deleted by pruning, because that would revoke their tokens: they leave the set.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from watchword.authority.declared_parts import NEEDED, OPTIONAL, FileField, Json, ListFields, Part
from watchword.authority.policies import MAX_ENTRIES
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Reason, check_length, invalid
from watchword.basics.names import (
    ACCOUNT_PREFIX,
    GROUP_PREFIX,
    USER_PREFIX,
    check_actor,
    check_description,
    check_lower_id,
    check_name,
    check_short_id,
)


@dataclass(frozen=True, slots=True)
class Entity:
    """A group or a service account, as far as a file can declare it."""

    urn: str
    name: str
    description: str | None = None
    set_name: str | None = None  # None too if it is deleted
    members: frozenset[str] = frozenset()  # Of a group. Of an open group, only those that are declared accounts.
    deleted: bool = False  # of an account
    is_open: bool = field(default=False, compare=False)  # of a group whose members are not declared: they stay

    @property
    def is_group(self) -> bool:
        return self.urn.startswith(GROUP_PREFIX)


class EntityPart(Part[Entity]):
    lists: ClassVar[ListFields] = {
        "groups": {
            "id": NEEDED,
            "name": NEEDED,
            "description": OPTIONAL,
            "members": FileField(many=True, prefix=USER_PREFIX),
        },
        "accounts": {
            "id": NEEDED,
            "name": NEEDED,
            "description": OPTIONAL,
            "groups": FileField(many=True, prefix=GROUP_PREFIX),
        },
    }
    privileges = (Privilege.MANAGE_SERVICE_ACCOUNTS,)
    """For accounts."""

    def parse(self, content: Mapping[str, Sequence[Json]], set_name: str) -> tuple[Entity, ...]:
        """Accounts are members of the groups that they name."""
        made = {one.urn: one for one in super().parse(content, set_name)}
        for index, account in enumerate(content["accounts"]):
            for urn in account.get("groups") or ():
                if not urn.startswith(GROUP_PREFIX) or urn not in made:
                    field = f"accounts[{index}].groups"
                    raise invalid(field, f"{field} must be urns of groups that the same file declares.")
                made[urn] = replace(made[urn], members=made[urn].members | {ACCOUNT_PREFIX + account["id"]})
        return tuple(made.values())

    def parse_entry(self, name: str, given: Json, set_name: str) -> Entity:
        if name == "groups":
            urn, members = GROUP_PREFIX + check_short_id(given["id"], "id"), given.get("members")
        else:
            urn, members = ACCOUNT_PREFIX + check_lower_id(given["id"], "id"), None
        called, description = check_name(given["name"]), check_description(given.get("description"))
        check_length(members or (), "members", MAX_ENTRIES)
        actors = frozenset(check_actor(member, "members") for member in members or ())
        return Entity(urn, called, description, set_name, actors, is_open=members is None)

    def name(self, one: Entity) -> str:
        return one.urn

    def written(self, one: Entity) -> dict[str, Any]:
        members = {"members": sorted(one.members)} if one.is_group else {}
        return {"name": one.name, "description": one.description, **members}

    def check(self, stored: Mapping[str, Entity], declared: Sequence[Entity], set_name: str, *, prune: bool) -> None:
        for entity in declared:
            if entity.urn in stored and stored[entity.urn].deleted:
                message = f"{entity.urn} was deleted, and its id is never used again. Nothing was changed."
                raise Fault(Reason.ALREADY_EXISTS, f"{message} Choose another id.", field="accounts")

    def after_prune(self, one: Entity) -> Entity | None:
        return None if one.is_group else replace(one, set_name=None)

    def needed(self, declared: Sequence[Entity]) -> tuple[Privilege, ...]:
        return () if all(one.is_group for one in declared) else self.privileges


ENTITY_PART = EntityPart()
