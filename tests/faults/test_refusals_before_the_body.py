"""A refusal before the body was read ends the connection, and says so: no client is cut off unawares."""

import http.client
import json

import pytest

from tests.support.server import Server
from tests.support.waiting import SECONDS


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_connection_that_is_closed_after_a_refusal_was_announced_as_closing(server: Server, size: int) -> None:
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
