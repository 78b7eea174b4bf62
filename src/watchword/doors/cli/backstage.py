"""What commands ask of the wiring, which `__main__` hands in."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from watchword.domain.ports import Keys
from watchword.service.tokens import Tokens
from watchword.settings import Settings


class LocalService(Protocol):
    @property
    def tokens(self) -> Tokens: ...
    @property
    def keys(self) -> Keys: ...


class Backstage(Protocol):
    serve: Callable[[Settings], None]
    prepare_store: Callable[[Settings], tuple[int, int]]
    check_store: Callable[[Settings], Iterator[tuple[str, str | None]]]
    settle: Callable[[Settings], object]
    open_service: Callable[[Settings], AbstractAsyncContextManager[LocalService]]
