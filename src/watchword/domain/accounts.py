"""Service accounts: actors that are made and deleted, for programs.

Their urns have a form that nobody else's may have, so that what is asked about one is decided by the privilege before
anybody learns whether it exists. A deleted one's urn stays dead: its row stays, and it is suspended for good.
"""

import re
from dataclasses import dataclass

from watchword.domain.errors import Fault, Reason, invalid

ACCOUNT_PREFIX = "urn:li:corpuser:service_"

_URN = re.compile(re.escape(ACCOUNT_PREFIX) + r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    urn: str
    name: str
    description: str | None
    created_at: int
    created_by: str
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class AccountPage:
    total: int
    rows: tuple[ServiceAccount, ...]


def is_account(urn: str) -> bool:
    """Whether this is the urn of a service account, of one that exists or not."""
    return _URN.fullmatch(urn) is not None


def check_account(urn: str, field: str) -> str:
    if not is_account(urn):
        raise invalid(field, f"{field} must be the urn of a service account: {ACCOUNT_PREFIX}<uuid>.")
    return urn


def no_account() -> Fault:
    return Fault(Reason.ACCOUNT_NOT_FOUND, "There is no service account with this urn.")
