"""Policies: the file that a start reads, and what those in the store amount to."""

from collections.abc import Iterator, Sequence

from watchword.domain.accounts import AccountGain
from watchword.domain.diagnostics import Diagnostic, bad, ok, warn
from watchword.policyfile import PolicyFileError, read_policy_file
from watchword.settings import Settings

MOST_TOLD = 5


def account_managers(found: Sequence[AccountGain]) -> Iterator[Diagnostic]:
    """Managers of service accounts can make tokens of every account, and so do what any of them may."""
    fix = (
        "Grant the manager these privileges too, or take them from the account, or MANAGE_SERVICE_ACCOUNTS from the "
        "manager: watchword policy list"
    )
    for manager, account, privileges in found[:MOST_TOLD]:
        names = ", ".join(privilege.name for privilege in privileges)
        yield warn("policies", f"{manager} can use {names} with tokens of the service account {account}", fix)
    if len(found) > MOST_TOLD:
        yield warn("policies", f"there are {len(found) - MOST_TOLD:,} more like these", fix)


def policy_file(settings: Settings) -> Iterator[Diagnostic]:
    if settings.policy_file is None:
        yield ok("policy file", "none is named (WATCHWORD_POLICY_FILE)")
        return
    try:
        declared = read_policy_file(settings.policy_file)
    except PolicyFileError as error:
        yield bad("policy file", str(error).rstrip("."), "Mend it: a start with it is refused.")
    else:
        yield ok(
            "policy file",
            f"{settings.policy_file} declares {len(declared.policies)} policies of the set {declared.set_name}",
        )
