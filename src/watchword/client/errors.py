"""The errors that the client raises.

    WatchwordError
    ├── Unreachable              no answer: connection refused or lost, timeout, or a gateway without a server behind it
    ├── UnexpectedAnswer         an answer that is not Watchword's
    ├── ProfileError             a profile is missing, unreadable, or not private
    └── RequestRejected          the server rejected the request: reason, code, message, details, request_id
        ├── BadRequest           400, `argument` names the Python argument, `field` the GraphQL field
        ├── Unauthenticated      401
        ├── Unauthorized         403, `privilege` or `scope` names what is missing
        ├── NotFound             404
        ├── Conflict             409
        ├── Throttled            429, `retry_after` in seconds, if retrying later helps
        ├── ServerError          500
        └── Unavailable          503, nothing was changed; `retry_after` in seconds

Other errors, such as 405, 413 and those of a newer server, are raised as `RequestRejected` with their `code`.
"""

import re
from collections.abc import Mapping
from typing import Any

from watchword.basics.errors import OperatorError


class WatchwordError(Exception):
    """The base of all errors of this client, except for wrong arguments, which are a `ValueError` or a `TypeError`."""


class Unreachable(WatchwordError):
    """No answer came. The server may have made a change, unless the connection was refused. `use_url` is set where the
    port speaks TLS and the address says http, or the reverse: it is the address with the other scheme.
    """

    def __init__(self, message: str, *, use_url: str | None = None, is_garbled: bool = False) -> None:
        super().__init__(message)
        self.use_url = use_url
        self.is_garbled = is_garbled
        """Bytes came that are not HTTP."""


class UnexpectedAnswer(WatchwordError):
    """An answer came that is not Watchword's. The address is probably wrong."""


class ProfileError(WatchwordError, OperatorError):
    """A profile cannot be used: it is missing, unreadable, or other users can read it."""


class ProfileChoiceError(ProfileError):
    """No profile fits, or more than one does."""


class RequestRejected(WatchwordError):
    """The server rejected the request. `message` is its sentence, `reason` its stable code word."""

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: int,
        details: Mapping[str, Any],
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.code = code
        self.details = dict(details)
        self.request_id = request_id
        self.retry_after = retry_after

    def _detail(self, name: str) -> str | None:
        value = self.details.get(name)
        return value if isinstance(value, str) else None


class BadRequest(RequestRejected):
    """The request is invalid. `str()` of the error names the Python argument, `message` the GraphQL field."""

    def __init__(self, message: str, **about: Any) -> None:
        super().__init__(message, **about)
        if self.field is not None and self.argument is not None:
            self.args = (re.sub(rf"(?<![\w.])(input\.)?{re.escape(self.field)}(?!\w)", self.argument, message),)

    @property
    def field(self) -> str | None:
        """The GraphQL field that is wrong."""
        return self._detail("field")

    @property
    def argument(self) -> str | None:
        """The Python argument that is wrong: the field in snake case, without a unit."""
        if self.field is None:
            return None
        name = snake_case(self.field.removeprefix("input.").replace("-", "_")).lower()
        return "page_size" if name == "count" else re.sub(r"_(iso|millis)$", "", name)


class UnknownFields(BadRequest):
    """The server does not know fields of the request: it is older than this client."""

    columns: tuple[int, ...] = ()


class Unauthenticated(RequestRejected):
    """The credential is missing, invalid, expired or revoked."""


class Unauthorized(RequestRejected):
    """The caller lacks a privilege, the token is limited, or its actor lacks a scope."""

    @property
    def privilege(self) -> str | None:
        """The missing privilege."""
        return self._detail("privilege")

    @property
    def scope(self) -> str | None:
        """The missing scope."""
        return self._detail("scope")


class NotFound(RequestRejected):
    """There is nothing of that id or urn."""


class Conflict(RequestRejected):
    """The request conflicts with the current state."""


class Throttled(RequestRejected):
    """A limit is reached. Retry after `retry_after` seconds, if that is given."""


class ServerError(RequestRejected):
    """The server failed. A change may have been made."""


class Unavailable(RequestRejected):
    """The server cannot answer now, and changed nothing."""


BY_CODE: dict[int, type[RequestRejected]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Unauthorized,
    404: NotFound,
    409: Conflict,
    429: Throttled,
    500: ServerError,
    503: Unavailable,
}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])[A-Z]", lambda capital: f"_{capital[0].lower()}", name)
