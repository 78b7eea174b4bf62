"""The GraphQL documents of the stateful test, and how list inputs are generated."""

from typing import Any

from hypothesis import strategies as st

from tests.model.reference import CONDITIONS, FIELDS, NUMBERS, SORTS, WORDS, Filter, Token, conditions_of
from tests.support.strategies import numbered_id

NAMES = ("alpha", "Alpha", "ALPHA beta", "100%", "a_b", "naïve", "ß", "İx", "😀", "'; --", "\\")
HOUR = 3_600_000
LIFETIMES = (
    ({"duration": "ONE_HOUR"}, HOUR),
    ({"duration": "ONE_DAY"}, 24 * HOUR),
    ({"duration": "ONE_WEEK"}, 168 * HOUR),
    ({"durationIso": "PT90M"}, HOUR * 3 // 2),
)
NOBODYS = (numbered_id(1), "urn:li:serviceAccessToken:" + numbered_id(2))
GARBAGE = ("", "x", "1", "-1", "1.5", "99999999999999999999", "ACTIVE", "REVOKED", "EXPIRED", "PERSONAL", "urn:", "%")

METADATA = """fragment M on AccessTokenMetadata {
  urn id name description actorUrn ownerUrn tokenType status createdAt expiresAt lastUsedAt revokedAt }"""
CREATE = (
    "mutation ($input: GetAccessTokenInput!) { createAccessToken(input: $input) { accessToken metadata { ...M } } }"
    + METADATA
)
REVOKE = "mutation ($id: String!) { revokeAccessToken(tokenId: $id) }"
FIND = "query ($token: String!) { getAccessTokenMetadata(token: $token) { ...M } }" + METADATA
LIST = (
    """query ($a: ListAccessTokensInput, $b: ListAccessTokensInput, $c: ListAccessTokensInput) {
  a: listAccessTokens(input: $a) { ...L }
  b: listAccessTokens(input: $b) { ...L }
  c: listAccessTokens(input: $c) { ...L } }
fragment L on ListAccessTokenResult { start count total tokens { ...M } }
"""
    + METADATA
)
ADD_MEMBERS = "mutation ($i: GroupMembersInput!) { addGroupMembers(input: $i) }"
REMOVE_MEMBERS = "mutation ($i: GroupMembersInput!) { removeGroupMembers(input: $i) }"
CREATE_GROUP = "mutation ($i: CreateGroupInput!) { createGroup(input: $i) }"
REMOVE_GROUP = "mutation ($urn: String!) { removeGroup(urn: $urn) }"
UPDATE_POLICY = "mutation ($urn: String!, $i: PolicyUpdateInput!) { updatePolicy(urn: $urn, input: $i) }"

SORTED: list[tuple[str | None, str | None]] = [
    *[(None, None)] * 10,
    *((field, order) for field in SORTS for order in (None, "ASCENDING", "DESCENDING")),
    ("status", None),
]
STARTS = [None] * 8 + [0, 1, 2, 3, 2**31 - 1, -1]
COUNTS = [None] * 8 + [1, 2, 3, 0, 1_000, 1_001, -1]
EVERYTHING_USED = {
    "count": 1_000,
    "filters": [{"field": "lastUsedAt", "condition": "EXISTS"}, {"field": "status", "condition": "EXISTS"}],
}


def draw_list(
    data: st.DataObject, actor: str, tokens: list[Token], actors: list[str], *, sound: bool = False
) -> dict[str, Any]:
    """The input of a list. A valid one lists the caller's own tokens and is never rejected."""
    number = data.draw(st.integers(0, 2), label="filters")
    filters = [draw_filter(data, tokens, actors, sound=sound) for _ in range(number)]
    if sound or data.draw(st.integers(0, 4)) < 4:  # mostly own tokens, which most callers may list
        own = {"field": data.draw(st.sampled_from(["actorUrn", "ownerUrn"])), "value": actor}
        if not sound:
            own |= data.draw(st.sampled_from([{}] * 4 + twists(actor, actors)), label="twisted")
        filters.insert(data.draw(st.integers(0, len(filters))), own)
    wanted: dict[str, Any] = {"filters": filters}
    start = data.draw(st.sampled_from(STARTS[: -2 if sound else None]), label="start")
    count = data.draw(st.sampled_from(COUNTS[: -2 if sound else None]), label="count")
    field, order = data.draw(st.sampled_from(SORTED[: -1 if sound else None]), label="sort")
    if start is not None:
        wanted["start"] = start
    if count is not None:
        wanted["count"] = count
    if field is not None:
        wanted["sort"] = {"field": field} if order is None else {"field": field, "order": order}
    return wanted


def twists(actor: str, actors: list[str]) -> list[Filter]:
    """Changes that turn a filter for own tokens into one for others': each is rejected or finds only own tokens."""
    return [
        {"negated": True},
        {"negated": False, "condition": "EQUAL", "values": [actor]},
        {"values": actors},
        {"condition": "IN", "values": [actor, actors[0]]},
        {"condition": "IN", "negated": True},
        {"condition": "IEQUAL"},
        {"condition": "IEQUAL", "value": actor.upper()},
        {"condition": "START_WITH", "value": actor[:-1]},
        {"condition": "CONTAIN"},
        {"condition": "END_WITH", "negated": True},
        {"condition": "EXISTS", "value": None},
        {"value": actor + " "},
        {"value": actor.swapcase()},
    ]


def draw_filter(data: st.DataObject, tokens: list[Token], actors: list[str], *, sound: bool) -> Filter:
    names = [*FIELDS * 2, "actorUrn", "ownerUrn", *(() if sound else ("nonsense",))]
    name = data.draw(st.sampled_from(names), label="field")
    made: Filter = {"field": name}
    conditions = [None, *conditions_of(name) * 3, *(() if sound else CONDITIONS)]
    condition = data.draw(st.sampled_from(conditions), label="condition")
    if condition is not None:
        made["condition"] = condition
    negated = data.draw(st.sampled_from([None, True, False]), label="negated")
    if negated is not None:
        made["negated"] = negated
    odd = not sound and data.draw(st.integers(0, 9)) == 9
    if condition == "EXISTS" and not odd:
        return made
    known = known_values(name, tokens, actors)
    pool = known * 4 if sound else [*known * 4, *GARBAGE]
    values = data.draw(st.lists(st.sampled_from(pool), min_size=0 if odd else 1, max_size=3), label="values")
    if len(values) > 0 and data.draw(st.booleans(), label="one apart"):
        made["value"] = values.pop()
    if len(values) > 0 or "value" not in made:
        made["values"] = values
    return made


def known_values(name: str, tokens: list[Token], actors: list[str]) -> list[str]:
    """Existing values, and for text also parts and variants."""
    if name in WORDS:
        return [*WORDS[name]]
    # Draws must not depend on background work: use creation times instead of times of use.
    source = "createdAt" if name in {"lastUsedAt", "revokedAt"} else name
    known = [str(token[source]) for token in tokens if token.get(source) is not None]
    if name in NUMBERS:
        return [*known, "0", "-1", str(2**63 - 1)]
    parts = [part for text in known for part in (text.upper(), text[:4], text[-4:], text[:-1])]
    return [*known * 3, *parts, *actors]
