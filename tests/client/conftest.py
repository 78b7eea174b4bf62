from collections.abc import Iterator

import pytest

from tests.support.both_clients import KINDS, Clients


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Creates synchronous clients in one run of the test and asynchronous ones in the other."""
    clients = Clients(request.param)
    yield clients
    clients.close()
