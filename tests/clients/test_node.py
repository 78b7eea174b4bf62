"""JavaScript clients, unmodified, on node; graphql-http audits the endpoint."""

from typing import Any

import pytest

from tests.support.clients import run_node
from tests.support.server import Server

# Rules that say MAY and that we ignore: GET returns 405, so no link or image can send a query.
BY_GET = {"5A70", "D6D5", "6A70"}


@pytest.fixture
def told(server: Server, actor: str) -> dict[str, Any]:
    server.grant(actor)
    token = server.create(actor)["accessToken"]
    return {"url": f"{server.url}/api/graphql", "token": token, "actor": actor, "name": "made over node"}


@pytest.mark.parametrize("program", ["apollo.mjs", "urql.mjs", "request.mjs"])
def test_client_makes_lists_and_revokes_a_token_and_reads_a_denial(told: dict[str, Any], program: str) -> None:
    saw = run_node(program, told)
    assert saw["id"] in saw["before"]
    assert saw["revoked"] is True
    assert saw["id"] not in saw["after"]
    assert len(saw["after"]) == 1
    (error,) = saw["errors"]
    assert error["extensions"]["code"] == 403
    assert error["extensions"]["reason"] == "missing_privilege"


def test_urql_get_request_gets_405(told: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="This address answers POST"):
        run_node("urql.mjs", told | {"preferGetMethod": "within-url-limit"})


@pytest.mark.parametrize("address", ["/api/graphql", "/api/v2/graphql", "/gms/api/graphql"])
def test_audit_of_graphql_http_finds_nothing_but_what_we_leave_alone(
    server: Server, told: dict[str, Any], address: str
) -> None:
    audited = run_node("audit.mjs", told | {"url": server.url + address})
    found = {rule["id"]: (rule["status"], rule["name"], rule["reason"]) for rule in audited if rule["status"] != "ok"}
    assert {rule: what for rule, what in found.items() if rule not in BY_GET} == {}
    assert {status for status, _, _ in found.values()} == {"notice"}
    assert len(audited) > 60
