"""Policies as rows."""

import orjson

from watchword.authority.policies import Policy, PolicySource, PolicyState
from watchword.authority.privileges import Privilege
from watchword.database.rows import Row

POLICY = "urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name"


def policy_of(row: Row) -> Policy:
    urn, name, description, state, privileges, users, groups, all_users, scopes, source, set_name = row
    named = frozenset(Privilege[word] for word in orjson.loads(privileges))
    users, groups, scopes = (frozenset(orjson.loads(text)) for text in (users, groups, scopes))
    plain = (urn, name, description, PolicyState(state))
    return Policy(*plain, named, users, groups, bool(all_users), scopes, PolicySource(source), set_name)
