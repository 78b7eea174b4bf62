"""The base of `client.tokens` and the others: each sends by the client that it belongs to."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from watchword.client.asynchronous.lists import AsyncResults, pages_by_cursor, pages_by_offset
from watchword.client.records import Json, R
from watchword.client.requests import ApiRequest, ResultPage, ask_cursor, ask_page

T = TypeVar("T")
PAGE_SIZE = 1_000


class AsyncSend(Protocol):
    async def __call__(self, request: ApiRequest[T], /) -> T: ...


class AsyncNamespace:
    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    def _list(
        self,
        call: str,
        items: str,
        kind: type[R],
        input_type: str,
        page_size: int,
        *,
        key: Sequence[str] = ("urn",),
        **wanted: Any,
    ) -> AsyncResults[R]:
        """List records that the fields of `key` identify."""

        async def fetch(start: int, count: int) -> ResultPage[R]:
            return await self._send(ask_page(call, items, kind, input_type, {"start": start, "count": count, **wanted}))

        return AsyncResults(
            pages_by_offset(fetch, lambda item: " ".join(str(getattr(item, name)) for name in key), page_size)
        )

    def _list_by_cursor(
        self, call: str, items: str, kind: type[R], input_type: str, page_size: int, wanted: Json
    ) -> AsyncResults[R]:
        async def fetch(cursor: str | None) -> tuple[Sequence[R], str | None]:
            given = {**wanted, "count": page_size, "cursor": cursor}
            return await self._send(ask_cursor(call, items, kind, input_type, given))

        return AsyncResults(pages_by_cursor(fetch))
