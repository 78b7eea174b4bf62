"""The basic token flow over HTTP."""

from tests.support.server import ADMIN, Server


def test_token_is_created_used_listed_revoked_and_rejected(server: Server) -> None:
    made = server.create(ADMIN, name="flow")
    token, token_id = made["accessToken"], made["metadata"]["id"]

    assert server.verify(token).status_code == 204
    mine = [{"field": "ownerUrn", "value": ADMIN}, {"field": "id", "value": token_id}]
    assert [entry["id"] for entry in server.tokens(filters=mine)["tokens"]] == [token_id]
    assert server.revoke(token_id, token=token) is True
    refused = server.verify(token)
    assert refused.status_code == 401
    assert "revoked at" in refused.headers["WWW-Authenticate"]
