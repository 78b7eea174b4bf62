"""When a token was last used is written apart from the request, and at the latest when the server stops."""

from collections.abc import Callable

from tests.support.server import ADMIN, Server

USES = """query ($input: ListAccessTokensInput) {
  listAccessTokens(input: $input) { tokens { name createdAt lastUsedAt } } }"""


def test_use_at_auth_and_at_the_api_is_kept_and_no_use_is_none(make_server: Callable[..., Server]) -> None:
    server = make_server()
    tokens = {name: server.create(ADMIN, name=name)["accessToken"] for name in ("auth", "api", "idle")}
    server.verify(tokens["auth"])
    server.ask("{ me { corpUser { urn } } }", token=tokens["api"])
    server.stop()
    server.start()

    seen = server.ask(USES, {"input": {}}, actor=ADMIN)["listAccessTokens"]["tokens"]

    used = {token["name"]: token["lastUsedAt"] and token["lastUsedAt"] >= token["createdAt"] for token in seen}
    assert used == {"auth": True, "api": True, "idle": None}
