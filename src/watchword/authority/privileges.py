"""Privileges of this service, and scopes of others: what a policy grants and a request needs."""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum

from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.scopes import SCOPE_FORM, covering, is_scope


class Privilege(Enum):
    """Each privilege with the name people see and what it allows."""

    # By identity, which is faster than Enum's hash of the name.
    __hash__ = object.__hash__

    def __init__(self, display_name: str, allows: str) -> None:
        self.display_name = display_name
        self.allows = allows

    GENERATE_PERSONAL_ACCESS_TOKENS = (
        "Generate Personal Access Tokens",
        "Create, list and revoke own tokens: the minimum for the token API.",
    )
    MANAGE_ACCESS_TOKENS = (
        "Manage All Access Tokens",
        "Create tokens for others, list and revoke anyone's; as strong as the strongest actor.",
    )
    MANAGE_SERVICE_ACCOUNTS = (
        "Manage Service Accounts",
        "Manage service accounts and their tokens; as strong as the strongest service account.",
    )
    INTROSPECT_TOKENS = ("Introspect Tokens", "Introspect tokens of others.")
    MANAGE_POLICIES = ("Manage Policies", "Manage policies, groups and the status of actors.")
    VIEW_POLICIES = (
        "View Policies",
        "Read policies, groups, resources, who holds what, and what applying a policy file would change.",
    )
    GET_ES_TASK_STATUS_PRIVILEGE = ("Get search-index task status", "Read the status of a task in the search index.")
    GET_TIMESERIES_INDEX_SIZES_PRIVILEGE = ("Get time series index sizes", "Read the sizes of the time series indices.")
    TRUNCATE_TIMESERIES_INDEX_PRIVILEGE = ("Truncate time series index", "Remove old rows of a time series.")
    RELEASE_RETENTION_HOLDS = (
        "Release Retention Holds",
        "Release a hold that someone else set on a time series; with Truncate time series index.",
    )
    MANAGE_SYSTEM_OPERATIONS = ("Manage System Operations", "All three operations in the search index.")
    VIEW_AUDIT_LOG = ("View Audit Log", "Read the audit log.")
    MANAGE_WEBHOOKS = ("Manage Webhooks", "Manage webhooks, together with View Audit Log.")


Right = Privilege | str
"""A privilege, or a scope of another service."""
Require = Callable[[Privilege], None]
"""Raises the denial unless the caller has the privilege."""
EVERYTHING = frozenset(Privilege)
ESCALATING = frozenset({Privilege.MANAGE_ACCESS_TOKENS, Privilege.MANAGE_SERVICE_ACCOUNTS, Privilege.MANAGE_POLICIES})
"""Who holds one of these can get more privileges with it."""
PRIVILEGE_NAMES = ", ".join(privilege.name for privilege in Privilege)
PRIVILEGE_FIELDS = {
    "generatePersonalAccessTokens": Privilege.GENERATE_PERSONAL_ACCESS_TOKENS,
    "manageTokens": Privilege.MANAGE_ACCESS_TOKENS,
    "manageServiceAccounts": Privilege.MANAGE_SERVICE_ACCOUNTS,
    "introspectTokens": Privilege.INTROSPECT_TOKENS,
    "manageIdentities": Privilege.MANAGE_POLICIES,  # DataHub's word for users and groups
    "managePolicies": Privilege.MANAGE_POLICIES,
    "viewPolicies": Privilege.VIEW_POLICIES,
    "getTaskStatus": Privilege.GET_ES_TASK_STATUS_PRIVILEGE,
    "getIndexSizes": Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE,
    "truncateTimeseries": Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE,
    "releaseRetentionHolds": Privilege.RELEASE_RETENTION_HOLDS,
    "manageSystemOperations": Privilege.MANAGE_SYSTEM_OPERATIONS,
    "viewAuditLog": Privilege.VIEW_AUDIT_LOG,
    "manageWebhooks": Privilege.MANAGE_WEBHOOKS,
}
"""Under the names that `me` and the session of the console show, which are DataHub's where it has one."""
_INCLUDES = {
    Privilege.MANAGE_ACCESS_TOKENS: frozenset({Privilege.GENERATE_PERSONAL_ACCESS_TOKENS}),
    Privilege.MANAGE_POLICIES: frozenset({Privilege.VIEW_POLICIES}),
    Privilege.MANAGE_SYSTEM_OPERATIONS: frozenset(
        {
            Privilege.GET_ES_TASK_STATUS_PRIVILEGE,
            Privilege.GET_TIMESERIES_INDEX_SIZES_PRIVILEGE,
            Privilege.TRUNCATE_TIMESERIES_INDEX_PRIVILEGE,
        }
    ),
}


def privilege_of(word: str, field_name: str) -> Privilege:
    try:
        return Privilege[word]
    except KeyError:
        raise invalid(field_name, f"{field_name} must be among: {PRIVILEGE_NAMES}.") from None


def right_of(word: str, field_name: str) -> Right:
    if word in Privilege.__members__:
        return Privilege[word]
    if is_scope(word):
        return word
    raise invalid(field_name, f"{field_name} must be {SCOPE_FORM}; or one of the privileges {PRIVILEGE_NAMES}.")


def right_name(right: Right) -> str:
    return right if isinstance(right, str) else right.name


def denied(right: Right) -> Fault:
    return _lacking(right, f"You lack the {_described(right)}. Ask someone who manages policies.")


def deny(privilege: Privilege) -> None:
    """A `Require` for callers without privileges."""
    raise denied(privilege)


def out_of_scope(right: Right, scopes: Sequence[str]) -> Fault:
    named = ", ".join(scopes) or "(none)"
    without = right if isinstance(right, str) else f"{right.display_name!r} ({right.name})"
    return _lacking(right, f"This token is limited to the scopes {named}, without {without}. Use another token.")


def _described(right: Right) -> str:
    return f"scope {right}" if isinstance(right, str) else f"privilege {right.display_name!r} ({right.name})"


def _lacking(right: Right, message: str) -> Fault:
    if isinstance(right, str):
        return Fault(Reason.MISSING_SCOPE, message, scope=right)
    return Fault(Reason.MISSING_PRIVILEGE, message, privilege=right.name)


def included(privileges: Iterable[Privilege]) -> frozenset[Privilege]:
    """The privileges and those that they include."""
    named = frozenset(privileges)
    return named.union(*(_INCLUDES.get(privilege, frozenset()) for privilege in named))


def granting(privileges: Collection[Privilege], scopes: Collection[str], right: Right) -> Right | None:
    """The entry among those of a policy that grants the privilege or scope."""
    if isinstance(right, str):
        return covering(scopes, right)
    if right in privileges:
        return right
    return next((one for one in Privilege if one in privileges and right in included([one])), None)
