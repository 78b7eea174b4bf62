"""What hypothesis draws from: urns, token records, filters and searches that the rules call well-formed."""

import hashlib
from base64 import b64encode
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.support.search_reference import value_of
from watchword.authority.limits import Limits
from watchword.authority.policies import Policy, PolicySource, PolicyState
from watchword.authority.privileges import Privilege
from watchword.basics.names import GROUP_PREFIX, POLICY_PREFIX
from watchword.tokens.filters import Condition, Field, Filter, Search, Sort, SortField, Value
from watchword.tokens.rules import TokenRecord, TokenType

NOW = 1_767_225_600_000
ACTORS = tuple(f"urn:li:corpuser:{name}" for name in ("ann", "Ann", "bob", "b%b", "b_b", "eve"))
GROUPS = tuple(f"{GROUP_PREFIX}{name}" for name in ("ops", "dev", "none"))

SCOPES = ("repo:read", "repo:read:all", "repo:*", "repo", "repos:read", "repo:read:*", "*")

# Characters in whose handling languages differ: cases that change length, SQL's wildcards, beyond the 16-bit plane.
ODD = "aAbB%_'\"\\ éÉßẞİıſσςΣ\u0301\u00a0\ufeff\uffff😀\U0001d49c"

characters = st.characters(exclude_categories=["Cs", "Cc"])
text = st.text(characters | st.sampled_from(ODD), max_size=12)
# Names are one line, show something, and do not turn the direction of writing.
_plain = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]) | st.sampled_from(ODD)
_shown = st.characters(categories=["L", "M", "N", "P", "S"])
names = st.builds("{}{}{}".format, st.text(_plain, max_size=6), _shown, st.text(_plain, max_size=5))
visible = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
namespaces = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}", fullmatch=True)
urns = st.builds("urn:{}:{}".format, namespaces, st.text(visible, min_size=1, max_size=60))
networks = st.sampled_from(["10.1.2.0/24", "10.1.3.0/24", "2001:db8:a::/48", "2001:db8:B::/48", "unix"])
times = st.integers(NOW - 4, NOW + 4) | st.integers(0, 2**53)


def numbered_id(number: int) -> str:
    """An id of the true form, always the same for the same number."""
    return b64encode(hashlib.sha256(b"%d" % number).digest()).decode()


NAMED_SCOPES = ("repo:read", "repo:write", "VIEW_AUDIT_LOG")
words = st.lists(st.sampled_from(NAMED_SCOPES), max_size=2, unique=True).map(tuple)
allowed = st.lists(st.sampled_from(("10.0.0.0/8", "2001:db8::/32")), max_size=2, unique=True).map(tuple)
limits = st.builds(Limits, st.none() | words, st.none() | words, st.none() | allowed)


@st.composite
def records(draw: st.DrawFn) -> TokenRecord:
    last_used_at = draw(st.none() | times.filter(bool))
    return TokenRecord(
        id=numbered_id(draw(st.integers(0, 10_000))),
        type=TokenType.PERSONAL,
        name=draw(names),
        description=draw(st.none() | text),
        actor_urn=draw(st.sampled_from(ACTORS)),
        owner_urn=draw(st.sampled_from(ACTORS)),
        created_at=draw(times),
        expires_at=draw(st.none() | times),
        created_with=draw(st.none() | st.integers(0, 3).map(numbered_id)),
        last_used_at=last_used_at,
        revoked_at=draw(st.none() | times),
        limits=draw(limits),
        use_count=0 if last_used_at is None else draw(st.integers(1, 4)),
        last_network=None if last_used_at is None else draw(networks),
    )


@st.composite
def families(draw: st.DrawFn, min_size: int = 0) -> list[TokenRecord]:
    """Records of which some are derived from the first, which therefore never ends."""
    made = draw(st.lists(records(), min_size=min_size, max_size=12, unique_by=lambda record: record.id))
    if not made or draw(st.booleans()):
        return made
    first = made[0]._replace(expires_at=None, revoked_at=None)
    rest = [one._replace(parent=first.id, root=first.id) if draw(st.booleans()) else one for one in made[1:]]
    return [first, *rest]


record_lists = families()


def _near(value: Value, draw: st.DrawFn) -> Value:
    """The value itself, a part of it, or one beside it."""
    if isinstance(value, int):
        return value + draw(st.integers(-1, 1))
    start, end = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    part = value[start : len(value) - end]
    return draw(st.sampled_from([value, part, value.upper(), value.lower(), value.swapcase()]))


@st.composite
def filters(draw: st.DrawFn, among: list[TokenRecord] | None = None) -> Filter:
    """A filter as `parse_filter` would make it; its values are often those of one of the records, or near them."""
    field = draw(st.sampled_from(Field))
    condition = draw(st.sampled_from(field.kind.conditions))
    negated = draw(st.booleans())
    if condition is Condition.EXISTS:
        return Filter(field, condition, (), negated)
    if field.kind.words or field is Field.SCOPE:
        value: st.SearchStrategy[Value] = st.sampled_from(field.kind.words or NAMED_SCOPES)
    elif field.kind.numeric:
        value = times | st.sampled_from([-(2**63) + 1, -1, 0, 2**63 - 1])
    else:
        value = text
    values = draw(st.lists(value, min_size=1, max_size=4))
    known = [found for record in among or () if (found := value_of(record, field, NOW)) is not None]
    if field is Field.TEXT:
        known = [part for found in known for part in str(found).split("\n")]
    if known and not field.kind.words and field is not Field.SCOPE:
        values += [_near(found, draw) for found in draw(st.lists(st.sampled_from(known), max_size=3))]
    return Filter(field, condition, tuple(dict.fromkeys(values)), negated)


sorts = st.builds(Sort, st.sampled_from(SortField), st.booleans())
owns = st.tuples(st.sampled_from([Field.ACTOR_URN, Field.OWNER_URN]), st.sampled_from(ACTORS))


def searches(among: list[TokenRecord]) -> st.SearchStrategy[Search]:
    return st.builds(
        Search,
        start=st.integers(0, 4) | st.sampled_from([2**31 - 1, 2**63 - 1]),
        count=st.integers(0, 4) | st.just(1_000),
        filters=st.lists(filters(among), max_size=3).map(tuple),
        sort=sorts,
        own=st.none() | owns,
    )


def policies(users: tuple[str, ...] = ACTORS, groups: tuple[str, ...] = GROUPS) -> st.SearchStrategy[Policy]:
    return st.builds(
        Policy,
        urn=st.integers(0, 99).map(lambda number: f"{POLICY_PREFIX}{number}"),
        name=names,
        description=st.none() | text,
        state=st.sampled_from(PolicyState),
        privileges=st.frozensets(st.sampled_from(Privilege), min_size=1, max_size=3),
        scopes=st.frozensets(st.sampled_from(SCOPES), max_size=2),
        users=st.frozensets(st.sampled_from(users), max_size=2),
        groups=st.frozensets(st.sampled_from(groups), max_size=2),
        all_users=st.booleans(),
    )


def written_policy(policy: Policy) -> dict[str, Any]:
    """As a policy file declares it."""
    fields = {
        "id": policy.urn.removeprefix(POLICY_PREFIX),
        "name": policy.name,
        "description": policy.description,
        "state": policy.state.value,
        "privileges": sorted(privilege.name for privilege in policy.privileges),
        "scopes": sorted(policy.scopes),
        "actors": {"users": sorted(policy.users), "groups": sorted(policy.groups), "allUsers": policy.all_users},
    }
    return {name: value for name, value in fields.items() if value is not None}


def kept_policies() -> st.SearchStrategy[Policy]:
    """Made over the API, or declared by a set."""
    sets = st.sampled_from((None, "default", "team-a"))

    def keep(policy: Policy, name: str | None) -> Policy:
        return policy if name is None else replace(policy, source=PolicySource.FILE, set_name=name)

    return st.builds(keep, policies(), sets)
