"""What can go wrong, as classes; the server's own words stay on them.

    WatchwordError
    ├── Unreachable              no answer came: refused, cut off, out of time, or a gateway that found nobody
    ├── UnexpectedAnswer         an answer came, and it is not one of Watchword's
    └── Refused                  Watchword said no: reason, code, message, details, request_id
        ├── BadRequest           400, `field` names what is wrong
        ├── Unauthenticated      401
        ├── Unauthorized         403, `privilege` names what is missing
        ├── NotFound             404
        ├── MethodNotAllowed     405
        ├── BodyTimeout          408
        ├── Conflict             409
        ├── TooLarge             413
        ├── AddressTooLong       414
        ├── UnsupportedMediaType 415
        ├── Throttled            429; `retry_after` in seconds, where it is only too early
        ├── ServerError          500
        └── Unavailable          503, nothing was changed; `retry_after` in seconds

A word that this version does not know arrives as `Refused` itself: a newer server is no reason to fail otherwise.
"""

from collections.abc import Mapping
from typing import Any

from watchword.domain import errors as words


class WatchwordError(Exception):
    """Everything this client raises on purpose, but for wrong arguments (`ValueError`)."""


class Unreachable(WatchwordError):
    """Whether a change was made is not known, unless the connection was refused."""


class UnexpectedAnswer(WatchwordError):
    pass


class Refused(WatchwordError):
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


class BadRequest(Refused):
    @property
    def field(self) -> str | None:
        return self._detail("field")


class Unauthenticated(Refused):
    pass


class Unauthorized(Refused):
    @property
    def privilege(self) -> str | None:
        return self._detail("privilege")


class NotFound(Refused):
    pass


class MethodNotAllowed(Refused):
    pass


class BodyTimeout(Refused):
    pass


class Conflict(Refused):
    pass


class TooLarge(Refused):
    pass


class AddressTooLong(Refused):
    pass


class UnsupportedMediaType(Refused):
    pass


class Throttled(Refused):
    pass


class ServerError(Refused):
    pass


class Unavailable(Refused):
    pass


BY_TYPE: dict[str, type[Refused]] = {
    words.BAD_REQUEST.type: BadRequest,
    words.UNAUTHENTICATED.type: Unauthenticated,
    words.UNAUTHORIZED.type: Unauthorized,
    words.NOT_FOUND.type: NotFound,
    words.METHOD_NOT_ALLOWED.type: MethodNotAllowed,
    words.TIMEOUT.type: BodyTimeout,
    words.CONFLICT.type: Conflict,
    words.TOO_LARGE.type: TooLarge,
    words.URI_TOO_LONG.type: AddressTooLong,
    words.UNSUPPORTED_MEDIA_TYPE.type: UnsupportedMediaType,
    words.THROTTLED.type: Throttled,
    words.SERVER_ERROR.type: ServerError,
    words.UNAVAILABLE.type: Unavailable,
}


def of_code(code: int) -> str:
    """The type that goes with a status, for an answer that does not name it."""
    kinds = (value for value in vars(words).values() if isinstance(value, words.Kind))
    return next((kind.type for kind in kinds if kind.code == code), "")
