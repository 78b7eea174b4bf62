"""The errors that a client gets when the store does not answer."""

from watchword.basics.errors import Fault, Reason


def stopping() -> Fault:
    return Fault(Reason.STOPPING, "The service is stopping.")


def unknown_outcome(cause: str) -> Fault:
    return Fault(
        Reason.OUTCOME_UNKNOWN,
        "The store did not confirm in time. The change may have been made: check before you retry.",
        cause=cause,
    )


def too_slow() -> Fault:
    return Fault(Reason.DEADLINE, "The search took too long. Filter by actorUrn or ownerUrn, or request fewer rows.")
