"""A rejection before the body is read closes the connection and announces it."""

import http.client
import json

import pytest

from tests.support.server import Server
from tests.support.waiting import SECONDS


@pytest.mark.parametrize("size", [10, 100_000])
def test_connection_closed_after_a_rejection_is_announced(server: Server, size: int) -> None:
    body = json.dumps({"query": "{ me { corpUser { urn } } }" + " " * size}).encode()
    headers = {"Authorization": "Bearer none", "Content-Type": "application/json"}
    for _ in range(100):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        try:
            connection.request("POST", "/api/graphql", body, headers)
            first = connection.getresponse()
            assert (first.status, json.loads(first.read())["errors"][0]["extensions"]["code"]) == (401, 401)
            if not first.will_close:
                connection.request("GET", "/health/live")
                assert connection.getresponse().status == 200
        finally:
            connection.close()
