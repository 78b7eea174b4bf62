"""The context of a GraphQL request: what its resolvers use, and the limits on its searches."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from watchword.domain.actors import Caller
from watchword.domain.errors import Fault, Reason
from watchword.domain.filters import DEFAULT_COUNT, SEARCH_SECONDS, Search, check_effort, check_page, check_shown
from watchword.domain.idempotency import HEADER, IdempotentRequest
from watchword.http.graphql.budget import Meter
from watchword.service.actors import Accounts, Offboarding
from watchword.service.audit import AuditLog, RejectionLog
from watchword.service.operations import Operations
from watchword.service.policies import Policies
from watchword.service.tokens import Tokens

Json = dict[str, Any]
Resolvers = dict[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Services:
    tokens: Tokens
    accounts: Accounts
    policies: Policies
    audit: AuditLog
    operations: Operations
    rejections: RejectionLog
    offboarding: Offboarding


@dataclass(slots=True)
class Context:
    caller: Caller
    services: Services
    meter: Meter
    key: str | None = None
    """The Idempotency-Key of the request, which creates one token."""
    created: list[str] = field(default_factory=list)
    """Ids of created tokens. They are withdrawn if the client disconnects and sent no Idempotency-Key."""
    _searching: asyncio.Lock | None = None
    _began: float = field(default_factory=time.monotonic)
    max_row_fields: int = 1
    """The most fields of a row in a list of this document."""
    _shown: int = 0
    _effort: int = 0
    _pinned_effort: int = 0

    @property
    def searching(self) -> asyncio.Lock:
        """Lock that allows one search at a time per request."""
        if self._searching is None:
            self._searching = asyncio.Lock()
        return self._searching

    def idempotent_request(self, operation: str, content: Json) -> IdempotentRequest | None:
        """For a new token, if the request has a key. A key creates one token."""
        key, self.key = self.key, "" if self.key is not None else None
        if key == "":
            raise Fault(Reason.INVALID_HEADER, f"A request with an {HEADER} may create only one token.", field=HEADER)
        if key is None:
            return None
        return self.services.tokens.idempotent(self.caller, key, {"operation": operation, **content})

    def time_left(self) -> float:
        """Seconds left for searches."""
        return max(0.0, self._began + SEARCH_SECONDS - time.monotonic())

    def search(self, search: Search) -> None:
        """Charge a search before it runs."""
        if search.pinned is None:
            self._effort += search.effort
        else:
            self._pinned_effort += search.effort
        check_effort(self._effort, self._pinned_effort)
        if self._is_charged(search):
            self.meter.check()

    def searched(self, search: Search, seconds: float) -> None:
        """Charge the time that the search took."""
        if self._is_charged(search):
            self.meter.charge(seconds)

    def _is_charged(self, search: Search) -> bool:
        """Only searches of the caller's own tokens, which need the least privilege."""
        return search.pinned == self.caller.actor and search.effort > 0

    def show(self, rows: int) -> None:
        """Count the rows of a list before they are returned."""
        self._shown += rows * self.max_row_fields
        check_shown(self._shown)


class Info(Protocol):
    """The `info` argument of a resolver, from graphql-core or from the fast path."""

    @property
    def context(self) -> Context: ...


def page_of(input: Json) -> tuple[int, int]:  # noqa: A002 - the name in the schema
    """`start` and `count`; null means the default."""
    start, count = input.get("start"), input.get("count")
    start, count = 0 if start is None else start, DEFAULT_COUNT if count is None else count
    check_page(start, count)
    return start, count
