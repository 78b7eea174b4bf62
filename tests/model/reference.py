"""A small model of the service, written from the contract. Tokens have the form of their metadata in a response. It
shares no code with the service."""

from dataclasses import dataclass, field
from typing import Any

Token = dict[str, Any]
Filter = dict[str, Any]

ADMIN = "urn:li:corpuser:admin"
GENERATE = "GENERATE_PERSONAL_ACCESS_TOKENS"
MANAGE_ALL = "MANAGE_ACCESS_TOKENS"

TEXT = ("id", "urn", "name", "description", "actorUrn", "ownerUrn")
WORDS = {"tokenType": ("PERSONAL",), "status": ("ACTIVE", "EXPIRED", "REVOKED")}
NUMBERS = ("createdAt", "expiresAt", "lastUsedAt", "revokedAt")
FIELDS = (*TEXT, *WORDS, *NUMBERS)
MAX_EFFORT = 8
SORTS = ("expiresAt", "createdAt", "lastUsedAt", "name", "actorUrn", "ownerUrn", "id")

ANY_CONDITIONS = ("EQUAL", "IN", "EXISTS")
TEXT_CONDITIONS = ("IEQUAL", "CONTAIN", "START_WITH", "END_WITH")
NUMBER_CONDITIONS = ("GREATER_THAN", "GREATER_THAN_OR_EQUAL_TO", "LESS_THAN", "LESS_THAN_OR_EQUAL_TO")
CONDITIONS = (*ANY_CONDITIONS, *TEXT_CONDITIONS, *NUMBER_CONDITIONS)


@dataclass(frozen=True)
class Refused:
    """An error as a client sees it."""

    code: int
    reason: str
    about: Any = None


@dataclass(frozen=True)
class Listed:
    total: int
    rows: list[Token]


@dataclass
class Policy:
    privileges: set[str]
    users: set[str]
    groups: set[str]
    active: bool = True


@dataclass
class World:
    """All data of one server."""

    tokens: list[Token] = field(default_factory=list)
    policies: dict[str, Policy] = field(default_factory=dict)
    groups: dict[str, set[str]] = field(default_factory=dict)
    suspended: set[str] = field(default_factory=set)

    def privileges(self, actor: str) -> set[str]:
        held: set[str] = {GENERATE, MANAGE_ALL} if actor == ADMIN else set()
        for policy in self.policies.values():
            in_group = any(actor in self.groups.get(group, ()) for group in policy.groups)
            if policy.active and (actor in policy.users or in_group):
                held |= policy.privileges
        return held | ({GENERATE} if MANAGE_ALL in held else set())

    def identity(self, actor: str, bearer: Token | None) -> Refused | None:
        """Why the caller is rejected; None if it is accepted."""
        if bearer is not None and bearer["status"] == "REVOKED":
            return Refused(401, "token_revoked", bearer["revokedAt"])
        return Refused(401, "invalid_token") if actor in self.suspended else None

    def lacks(self, actor: str, privilege: str) -> Refused | None:
        return None if privilege in self.privileges(actor) else Refused(403, "missing_privilege", privilege)

    def create(self, actor: str, bearer: Token | None, target: str) -> Refused | None:
        refused = self.identity(actor, bearer) or self.lacks(actor, GENERATE)
        if refused is None and target != actor:
            refused = self.lacks(actor, MANAGE_ALL)
        if refused is None and target in self.suspended:
            refused = Refused(409, "actor_suspended")
        return refused

    def may_know(self, actor: str, token: Token) -> bool:
        return MANAGE_ALL in self.privileges(actor) or actor in (token["actorUrn"], token["ownerUrn"])

    def revoke(self, actor: str, bearer: Token | None, token: Token | None) -> Refused | None:
        refused = self.identity(actor, bearer) or self.lacks(actor, GENERATE)
        if refused is None and (token is None or not self.may_know(actor, token)):
            refused = Refused(404, "token_not_found")
        if refused is None and token is not None and token["status"] == "REVOKED":
            refused = Refused(409, "already_revoked", token["revokedAt"])
        return refused

    def metadata(self, actor: str, bearer: Token | None, token: Token | None) -> Refused | Token:
        refused = self.identity(actor, bearer) or self.lacks(actor, GENERATE)
        if refused is not None:
            return refused
        return token if token is not None and self.may_know(actor, token) else Refused(404, "token_not_found")

    def listing(self, actor: str, wanted: dict[str, Any]) -> Refused | Listed:
        """One list, for an accepted caller."""
        refused = self.lacks(actor, GENERATE) or invalid_field(wanted)
        filters = wanted.get("filters") or []
        if refused is None and not any(pins(f, actor) for f in filters):
            refused = self.lacks(actor, MANAGE_ALL)
        if refused is not None:
            return refused
        shows_revoked = any(f["field"] == "status" for f in filters)
        found = [
            token
            for token in self.tokens
            if (shows_revoked or token["status"] != "REVOKED") and all(matches(f, token) for f in filters)
        ]
        start = wanted.get("start") or 0
        count = 20 if wanted.get("count") is None else wanted["count"]
        return Listed(len(found), ordered(found, wanted.get("sort"))[start : start + count])


def given_values(f: Filter) -> list[str]:
    return [*([f["value"]] if f.get("value") is not None else []), *(f.get("values") or [])]


def pins(f: Filter, actor: str) -> bool:
    """Whether this filter alone selects the tokens of, or by, exactly this actor."""
    return (
        f["field"] in {"actorUrn", "ownerUrn"}
        and not f.get("negated")
        and (f.get("condition") or "EQUAL") in {"EQUAL", "IN"}
        and set(given_values(f)) == {actor}
    )


def invalid_field(wanted: dict[str, Any]) -> Refused | None:
    """The first invalid field of a list input."""
    if (wanted.get("start") or 0) < 0:
        return Refused(400, "invalid_field", "start")
    if not 0 <= (wanted.get("count") or 0) <= 1_000:
        return Refused(400, "invalid_field", "count")
    for index, f in enumerate(wanted.get("filters") or []):
        part = invalid_filter_part(f)
        if part is not None:
            return Refused(400, "invalid_field", f"filters[{index}].{part}")
    sort = wanted.get("sort")
    if sort and sort["field"] not in SORTS:
        return Refused(400, "invalid_field", "sort.field")
    return None


def conditions_of(name: str) -> tuple[str, ...]:
    more = TEXT_CONDITIONS if name in TEXT else NUMBER_CONDITIONS if name in NUMBERS else ()
    return (*ANY_CONDITIONS, *more)


def effort(wanted: dict[str, Any]) -> int:
    """The maximum number of passes over all tokens."""
    tested = [f for f in wanted["filters"] if (f.get("condition") or "EQUAL") not in {"EQUAL", "IN"}]
    return max(1, sum(len(given_values(f)) for f in tested))


def invalid_filter_part(f: Filter) -> str | None:
    name, condition, values = f["field"], f.get("condition") or "EQUAL", given_values(f)
    if name not in FIELDS:
        return "field"
    if condition not in conditions_of(name):
        return "condition"
    if condition == "EXISTS":
        return "values" if values else None
    if not values:
        return "value"
    if name in WORDS and not set(values) <= set(WORDS[name]):
        return "values"
    if name in NUMBERS and not all(is_number(value) for value in values):
        return "values"
    return None


def is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits != "" and set(digits) <= set("0123456789") and abs(int(digits)) < 2**63


def matches(f: Filter, token: Token) -> bool:
    condition, negated, found = f.get("condition") or "EQUAL", bool(f.get("negated")), token[f["field"]]
    if condition == "EXISTS":
        return (found is None) == negated
    if found is None:
        return False
    values: list[Any] = [int(v) if f["field"] in NUMBERS else v for v in given_values(f)]
    return any(holds(condition, found, value) for value in values) != negated


def holds(condition: str, found: Any, value: Any) -> bool:
    match condition:
        case "IEQUAL":
            held = found.lower() == value.lower()
        case "CONTAIN":
            held = found.find(value) >= 0
        case "START_WITH":
            held = found[: len(value)] == value
        case "END_WITH":
            held = value == "" or found[-len(value) :] == value
        case "GREATER_THAN":
            held = found > value
        case "GREATER_THAN_OR_EQUAL_TO":
            held = found >= value
        case "LESS_THAN":
            held = found < value
        case "LESS_THAN_OR_EQUAL_TO":
            held = found <= value
        case _:
            held = found == value
    return bool(held)


def ordered(tokens: list[Token], sort: dict[str, Any] | None) -> list[Token]:
    """Sorted by the field, missing values last, ties by id."""
    name = sort["field"] if sort else "expiresAt"
    descending = not sort or sort.get("order") != "ASCENDING"
    by_id = sorted(tokens, key=lambda token: token["id"], reverse=name == "id" and descending)
    present = [token for token in by_id if token[name] is not None]
    absent = [token for token in by_id if token[name] is None]
    return sorted(present, key=lambda token: token[name], reverse=descending) + absent
