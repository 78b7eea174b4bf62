# Generated. Change asynchronous/namespace.py, then run: make reference
"""The base of `client.tokens` and the others: each sends by the client that it belongs to."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from watchword.client.records import Json, R
from watchword.client.requests import ApiRequest, ResultPage, ask_cursor, ask_page
from watchword.client.synchronous.lists import Results, pages_by_cursor, pages_by_offset

T = TypeVar("T")
PAGE_SIZE = 1_000


class Send(Protocol):
    def __call__(self, request: ApiRequest[T], /) -> T: ...


class Namespace:
    def __init__(self, send: Send) -> None:
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
    ) -> Results[R]:
        """List records that the fields of `key` identify."""

        def fetch(start: int, count: int) -> ResultPage[R]:
            return self._send(ask_page(call, items, kind, input_type, {"start": start, "count": count, **wanted}))

        return Results(
            pages_by_offset(fetch, lambda item: " ".join(str(getattr(item, name)) for name in key), page_size)
        )

    def _list_by_cursor(
        self, call: str, items: str, kind: type[R], input_type: str, page_size: int, wanted: Json
    ) -> Results[R]:
        def fetch(cursor: str | None) -> tuple[Sequence[R], str | None]:
            given = {**wanted, "count": page_size, "cursor": cursor}
            return self._send(ask_cursor(call, items, kind, input_type, given))

        return Results(pages_by_cursor(fetch))
