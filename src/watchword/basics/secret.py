"""A type for secrets: every printed form hides the value, and only `reveal` returns it."""

from typing import Generic, Protocol, TypeVar

T = TypeVar("T", str, bytes)


class Secret(Generic[T]):
    """A secret text or bytes. `repr`, `str` and `format` hide it, and it cannot be pickled. `reveal` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value: T = value

    def reveal(self) -> T:
        """Get the value."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


class Seal(Protocol):
    """Encrypts and signs. What was sealed opens only with the label it was sealed with."""

    def seal(self, plain: Secret[bytes], label: str) -> bytes: ...

    def open(self, sealed: bytes, label: str) -> Secret[bytes]:
        """OperatorError if it was not sealed here."""
