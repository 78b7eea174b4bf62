"""A function that makes a call, turned into a method that sends it, with its name, words and parameters kept."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

M = TypeVar("M", bound=Callable[..., Any])


def as_method(method: M, make: Callable[..., Any]) -> M:
    made: Any = method
    made.__name__, made.__qualname__, made.__doc__ = make.__name__, make.__qualname__, make.__doc__
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    asked = inspect.signature(make).parameters.values()
    made.__signature__ = inspect.Signature([own, *asked])
    return method
