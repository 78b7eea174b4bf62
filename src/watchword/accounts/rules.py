"""Service accounts, and what their managers gain by them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from watchword.authority.policies import Policy, PolicyState
from watchword.authority.policy_set import PolicySet
from watchword.authority.privileges import Privilege
from watchword.basics.errors import Fault, Reason
from watchword.basics.scopes import covering


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """An actor for programs, created and deleted by the API. Its id is chosen, or a uuid. A deleted account stays
    suspended for good, and its urn is never used again.
    """

    urn: str
    name: str
    description: str | None
    created_at: int
    created_by: str
    suspended: bool = False
    set_name: str | None = None  # the set that declares it; None: made by the API


@dataclass(frozen=True, slots=True)
class AccountPage:
    total: int
    rows: tuple[ServiceAccount, ...]


class AccountGain(NamedTuple):
    """Privileges and scopes that a holder of MANAGE_SERVICE_ACCOUNTS gains by creating a token for an account."""

    manager: str  # a user, a group, or ALL_USERS
    account: str
    rights: tuple[str, ...]


ALL_USERS = "all users"
# Holders of these already have access to everything.
_BOUNDLESS = {Privilege.MANAGE_ACCESS_TOKENS, Privilege.MANAGE_POLICIES}


def gains(policies: tuple[Policy, ...], groups: Mapping[str, list[str]], accounts: list[str]) -> Iterator[AccountGain]:
    """Yield every user or group that gains privileges or scopes through these accounts. `groups` maps the accounts and
    the users that policies name to their groups.
    """
    known = PolicySet(0, policies)

    def rights(actor: str, memberships: Iterable[str]) -> tuple[frozenset[Privilege], frozenset[str]]:
        return known.granted(actor, memberships), known.scopes(actor, memberships)

    manage = Privilege.MANAGE_SERVICE_ACCOUNTS
    managing = [policy for policy in policies if policy.state is PolicyState.ACTIVE and manage in policy.privileges]
    held = {user: rights(user, groups.get(user, ())) for user in sorted({u for p in managing for u in p.users})}
    held |= {group: rights("", (group,)) for group in sorted({g for p in managing for g in p.groups})}
    if any(policy.all_users for policy in managing):
        held[ALL_USERS] = rights("", ())
    for manager, (own, scopes) in held.items():
        for account in accounts if not own & _BOUNDLESS else ():
            granted, covered = rights(account, groups.get(account, ()))
            more = [privilege.name for privilege in Privilege if privilege in granted - own]
            more += [scope for scope in sorted(covered) if covering(scopes, scope) is None]
            if more and manager != account:
                yield AccountGain(manager, account, tuple(more))


def account_exists(*, deleted: bool) -> Fault:
    why = "It belonged to a service account that was deleted" if deleted else "A service account has it"
    return Fault(Reason.ALREADY_EXISTS, f"id is already in use. {why}. Choose another.", field="id")
