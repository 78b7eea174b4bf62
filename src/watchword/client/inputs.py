"""What a caller gives: conditions on tokens, what a policy file declares, and how they are sent."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from watchword.basics.secret import Secret
from watchword.basics.times import Duration
from watchword.client.records import Json, PolicyActors, R, Record, to_millis
from watchword.client.requests import ApiRequest, as_list, ask, iso, word_lists

Lifetime = Duration | timedelta | str
DEVICE_CLIENT = "watchword-cli"


@dataclass(frozen=True, slots=True)
class TokenFilter:
    """A condition on tokens, such as `TokenFilter("name", "nightly", condition="CONTAIN")`. One of the values must
    match. For a time the value is a datetime.
    """

    field: str
    values: str | datetime | Sequence[str | datetime] = ()
    condition: str = "EQUAL"
    negated: bool = False

    def as_input(self) -> dict[str, Any]:
        """The condition as the API takes it."""
        given = [self.values] if isinstance(self.values, str | datetime) else self.values
        values = [str(to_millis("values", value)) if isinstance(value, datetime) else value for value in given]
        sent = {"field": self.field, "condition": self.condition, "negated": self.negated}
        return {**sent, "values": values} if values else sent


class DeclaredPolicyInfo(Record):
    """A policy to apply. Its urn ends with `id`."""

    id: str
    name: str
    privileges: tuple[str, ...]
    actors: PolicyActors
    description: str | None = None
    state: str = "ACTIVE"
    scopes: tuple[str, ...] = ()


class DeclaredGroupInfo(Record):
    """A group to apply. Its urn ends with `id`. `members` has the urns of all members; None: they stay as they are."""

    id: str
    name: str
    description: str | None = None
    members: tuple[str, ...] | None = None


class DeclaredAccountInfo(Record):
    """A service account to apply. Its urn ends with `id`. `groups` are urns of groups that are declared with it."""

    id: str
    name: str
    description: str | None = None
    groups: tuple[str, ...] = ()


def lifetime(duration: Lifetime) -> dict[str, str | None]:
    if isinstance(duration, Duration):
        return {"duration": duration.name}
    if isinstance(duration, str) and duration.upper() in Duration.__members__:
        return {"duration": duration.upper()}
    return {"durationIso": iso("duration", duration)}


def token_list(filters: Sequence[TokenFilter], sort: str, *, descending: bool) -> dict[str, Any]:
    order = {"field": sort, "order": "DESCENDING" if descending else "ASCENDING"}
    return {"filters": [condition.as_input() for condition in filters], "sort": order}


def selected_tokens(filters: Sequence[TokenFilter], ids: Iterable[str] | None) -> dict[str, Any]:
    chosen = [condition.as_input() for condition in filters]
    return {"ids": None if ids is None else as_list("ids", ids), "filters": chosen}


def reveal(token: str | Secret[str]) -> str:
    return token.reveal() if isinstance(token, Secret) else token


def policy_input(name: str, privileges: Iterable[str], actors: PolicyActors, scopes: Iterable[str], **how: Any) -> Json:
    lists = word_lists(privileges=privileges, scopes=scopes)
    return {"type": "PLATFORM", "name": name, **how, **lists, "actors": policy_actors(actors)}


def declared_policy(policy: DeclaredPolicyInfo | Json) -> dict[str, Any]:
    """Without empty parts: the server limits how many parts a body has."""
    sent = {name: value for name, value in plain(policy).items() if value}
    if isinstance(policy, DeclaredPolicyInfo):
        return sent | {"actors": policy_actors(policy.actors)}
    return sent | {"actors": {name: value for name, value in policy["actors"].items() if value}}


def plain(declared: Record | Json) -> dict[str, Any]:
    return asdict(declared) if isinstance(declared, Record) else dict(declared)


def policy_actors(actors: PolicyActors) -> dict[str, Any]:
    """Without empty parts, too."""
    users, groups = as_list("actors.users", actors.users), as_list("actors.groups", actors.groups)
    sent = {"users": users, "groups": groups, "allUsers": actors.all_users}
    return {name: value for name, value in sent.items() if value}


def truncation(kind: type[R], part: str, end_time: datetime, given: Json) -> ApiRequest[R]:
    """`part` is what the server answers with: the plan of a dry run, or the operation that it started."""
    if given["forceDeleteByQuery"] and given["forceReindex"]:
        raise ValueError("force_delete_by_query and force_reindex must not both be True.")
    is_plan = part == "plan"
    wanted = {**given, "endTimeMillis": to_millis("end_time", end_time), "dryRun": is_plan}
    variables = {"input: TruncateTimeseriesAspectInput!": wanted}
    return ask("truncateTimeseriesAspect", kind, variables, part=part, mutation=True, changes=not is_plan)
