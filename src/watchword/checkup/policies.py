"""What a start reads besides the store: the policy file."""

from collections.abc import Iterator

from watchword.domain.findings import Finding, bad, ok
from watchword.policyfile import PolicyFileError, read_policy_file
from watchword.settings import Settings


def policy_file(settings: Settings) -> Iterator[Finding]:
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
