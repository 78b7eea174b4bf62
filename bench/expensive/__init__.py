"""Requests built to be expensive: documents, bodies, filters, headers and addresses."""

from collections.abc import Iterator

from bench.expensive.bodies import bodies
from bench.expensive.documents import documents, executions
from bench.expensive.filters import searches
from bench.expensive.headers import addresses, headers
from bench.expensive.shape import Shape


def shapes() -> Iterator[Shape]:
    for some in (documents, executions, bodies, searches, headers, addresses):
        yield from some()
