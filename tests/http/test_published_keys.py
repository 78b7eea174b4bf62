"""Published keys and metadata: the next key is included."""

from collections.abc import Callable

import jwt

from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store, look

JWKS = "/.well-known/jwks.json"
ROTATE = "mutation ($id: String!) { rotateAccessToken(tokenId: $id) { metadata { id } } }"
METADATA = "/.well-known/oauth-authorization-server"


def test_published_keys_include_the_next_signing_key(make_server: Callable[..., Server]) -> None:
    server = make_server()
    for _ in range(2):
        signing = jwt.get_unverified_header(server.create(ADMIN)["accessToken"])["kid"]
        known = {key["kid"]: key["x"] for key in server.http.get(JWKS).json()["keys"]}
        assert signing in known
        assert server.command_line("key", "rotate").returncode == 0
        token = server.create(ADMIN)["accessToken"]
        kid = jwt.get_unverified_header(token)["kid"]
        assert kid != signing
        assert kid in known
        key = jwt.PyJWK({"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": known[kid]})
        assert jwt.decode(token, key, ["EdDSA"], audience=server.url)["sub"] == ADMIN


def test_key_stays_published_until_an_unused_successor_expires(
    make_server: Callable[..., Server],
) -> None:
    server = make_server("--allow-no-expiry", "on")
    for duration in ("ONE_HOUR", "NO_EXPIRY"):
        old = server.create(ADMIN, duration=duration)
        new = server.ask(ROTATE, {"id": old["metadata"]["id"]}, actor=ADMIN)["rotateAccessToken"]["metadata"]
        change_store(server, "UPDATE tokens SET expires_at = created_at + 60000 WHERE id = ?", old["metadata"]["id"])
        assert server.command_line("key", "rotate").returncode == 0
        ((end,),) = look(server, "SELECT full_end FROM tokens WHERE id = ?", new["id"])
        ((until,),) = look(server, "SELECT published_until FROM keys ORDER BY retired_at DESC LIMIT 1")
        assert until == end


def test_published_keys_are_cacheable_for_five_minutes(server: Server) -> None:
    assert server.http.get(JWKS).headers["Cache-Control"] == "public, max-age=300"


class TestMetadata:
    def test_metadata_names_only_existing_endpoints(self, server: Server) -> None:
        answer = server.http.get(METADATA)
        assert answer.headers["Cache-Control"] == "public, max-age=3600"
        assert answer.json() == {
            "issuer": server.url,
            "jwks_uri": server.url + JWKS,
            "introspection_endpoint": server.url + "/oauth2/introspect",
            "introspection_endpoint_auth_methods_supported": ["Bearer"],
            "revocation_endpoint": server.url + "/oauth2/revoke",
            "revocation_endpoint_auth_methods_supported": ["none"],
            "response_types_supported": [],
            "grant_types_supported": ["urn:ietf:params:oauth:grant-type:device_code"],
            "device_authorization_endpoint": server.url + "/oauth2/device_authorization",
            "token_endpoint": server.url + "/oauth2/token",
            "token_endpoint_auth_methods_supported": ["none"],
        }

    def test_metadata_of_an_issuer_with_a_path_is_at_the_rfc_8414_address(
        self, make_server: Callable[..., Server]
    ) -> None:
        issuer = "https://platform.example/tokens"
        server = make_server("--public-url", issuer + "/", "--local-mode", "on")
        there, plain = server.http.get(METADATA + "/tokens"), server.http.get(METADATA)
        assert there.json() == plain.json()
        assert there.json()["issuer"] == issuer
        assert there.json()["jwks_uri"] == f"{issuer}/.well-known/jwks.json"
        assert server.http.get(METADATA + "/other").status_code == 404
