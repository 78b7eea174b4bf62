"""Processor time of a request, whose actor has a budget: on the event loop, step by step, because other requests run
between the steps; in the tasks that it starts; and in the threads that read for it.
"""

import time
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Account(Protocol):
    def add(self, seconds: float) -> None: ...


_running: Account | None = None
"""The account of the step that the event loop runs."""


def running() -> Account | None:
    return _running


class Steps(Awaitable[T]):
    """Awaits a coroutine and measures each of its steps."""

    __slots__ = ("_account", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], account: Account) -> None:
        self._coroutine, self._account = coroutine, account

    def __await__(self) -> Generator[Any, None, T]:
        global _running  # noqa: PLW0603 - as the event loop has one running task
        coroutine, account = self._coroutine, self._account
        error: BaseException | None = None
        while True:
            outer, _running = _running, account
            began = time.thread_time()
            try:
                pending = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                # A step within a step of the same account is part of it.
                if outer is not account:
                    account.add(time.thread_time() - began)
                _running = outer
            error = None
            try:
                yield pending
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - goes on to the coroutine
                error = thrown


def measured(coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """A coroutine that a request starts as a task: on the same account."""
    return coroutine if _running is None else Steps(coroutine, _running)
