from collections.abc import Iterator

import pytest

from tests.support.both_clients import KINDS, Clients


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Makes clients, synchronous in one run of the test and asynchronous in the other."""
    clients = Clients(request.param)
    yield clients
    clients.close()
