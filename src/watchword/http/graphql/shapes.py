"""How records become objects of the schema: a table of fields in place of a function for each kind of record."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Any

Json = dict[str, Any]
Show = Callable[[Any], Any]
NO_NAMES: Mapping[str, str] = {}


class Shape:
    """The fields of an object, as words:

    - `created_at`: this attribute, as `createdAt`;
    - `createdAt=made_at`, `state=state.value`: another attribute, null if something on the way to it is None;
    - `actorName@actor`: the display name of the actor that this attribute names.

    The other arguments show the value of the field of their name: a function, a shape, or `[shape]` for each item of a
    list. Where no word has that field, the function shows the whole record.
    """

    def __init__(self, fields: str, **shown: "Show | Shape | list[Shape]") -> None:
        self._plain: list[tuple[str, Show]] = []
        self._names: list[tuple[str, Show]] = []
        self._nested: list[tuple[str, Show, Shape, bool]] = []
        for word in fields.split():
            name, sign, path = word.partition("@" if "@" in word else "=")
            field = camel_case(name)
            read, show = _reader(path or name), shown.pop(field, None)
            if sign == "@":
                self._names.append((field, read))
            elif isinstance(show, list):
                self._nested.append((field, read, show[0], True))
            elif isinstance(show, Shape):
                self._nested.append((field, read, show, False))
            else:
                self._plain.append((field, read if show is None else _unless_none(read, show)))
        self._plain += [(field, show) for field, show in shown.items() if callable(show)]

    def __call__(self, record: Any, names: Mapping[str, str] = NO_NAMES) -> Json:
        json = {field: read(record) for field, read in self._plain}
        for field, read in self._names:
            json[field] = names.get(read(record))
        for field, read, shape, each in self._nested:
            found = read(record)
            json[field] = found and [shape(one, names) for one in found] if each else found and shape(found, names)
        return json

    def actors(self, *records: Any) -> Iterator[str]:
        """The actors whose names these records show."""
        for record in records:
            yield from filter(None, [read(record) for _, read in self._names])
            for _, read, shape, each in self._nested:
                if found := read(record):
                    yield from shape.actors(*(found if each else (found,)))


def _reader(path: str) -> Show:
    first, *rest = map(attrgetter, path.split("."))
    return _unless_none(first, _reader(path.partition(".")[2])) if rest else first


def _unless_none(read: Show, show: Show) -> Show:
    def shown(record: Any) -> Any:
        value = read(record)
        return None if value is None else show(value)

    return shown


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
