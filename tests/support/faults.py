"""The fault that a call raises."""

from collections.abc import Callable

from watchword.basics.errors import Fault


def fault_or_none(work: Callable[[], object]) -> Fault | None:
    try:
        work()
    except Fault as fault:
        return fault
    return None


def fault_of(work: Callable[[], object]) -> Fault:
    fault = fault_or_none(work)
    assert fault is not None, "no fault was raised"
    return fault
