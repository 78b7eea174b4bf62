"""How a piece of work was refused."""

from collections.abc import Callable

from watchword.domain.errors import Fault


def refusal_of(work: Callable[[], object]) -> Fault | None:
    """The fault the work raised; None when it was done."""
    try:
        work()
    except Fault as fault:
        return fault
    return None


def refused(work: Callable[[], object]) -> Fault:
    """The fault the work must raise."""
    fault = refusal_of(work)
    assert fault is not None, "nothing was refused"
    return fault
