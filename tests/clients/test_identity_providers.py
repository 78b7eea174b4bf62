"""The identity providers of the sign-in tests, tried alone by the authorization code flow."""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jwt
import pytest

from tests.support.forging_provider import AUTHORIZE, FORGERIES, TOKEN, ForgingProvider, Reply
from tests.support.identity_providers import (
    CALLBACK,
    LOGOUT,
    IdentityProvider,
    ProviderUser,
    RegisteredClient,
    browser_client,
    submit_login,
    submit_logout,
)

URL = "http://127.0.0.1:9"
"""Where a Watchword would be; nothing listens."""


class Flow:
    """A client and a browser in one: what each of them would get."""

    def __init__(self, client: RegisteredClient) -> None:
        self.client = client
        self.http = browser_client()
        self.metadata = self.http.get(f"{client.issuer}/.well-known/openid-configuration").json()
        self.nonce = secrets.token_hex(16)
        self._verifier = secrets.token_hex(32)

    def begin(self) -> httpx.Response:
        challenge = urlsafe_b64encode(sha256(self._verifier.encode()).digest()).rstrip(b"=").decode()
        sent = {
            "response_type": "code", "client_id": self.client.id, "redirect_uri": URL + CALLBACK, "state": "s",
            "scope": "openid profile email", "nonce": self.nonce, "code_challenge": challenge,
            "code_challenge_method": "S256",
        }  # fmt: skip
        return self.follow(self.http.get(f"{self.metadata['authorization_endpoint']}?{urlencode(sent)}"))

    def follow(self, answer: httpx.Response) -> httpx.Response:
        """Up to a page, or to the redirect to Watchword."""
        while answer.next_request is not None and not answer.headers["Location"].startswith(URL):
            answer = self.http.send(answer.next_request)
        return answer

    def log_in(self, user: ProviderUser) -> dict[str, str]:
        """The parameters with which the browser comes back."""
        page = self.begin()
        return self.came_back(page if page.is_redirect else self.follow(submit_login(self.http, page, user)))

    @staticmethod
    def came_back(answer: httpx.Response) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["Location"]).query).items()}

    def exchange(self, code: str) -> str:
        """The ID token."""
        sent = {"grant_type": "authorization_code", "code": code, "redirect_uri": URL + CALLBACK}
        sent |= {"code_verifier": self._verifier, "client_id": self.client.id}
        who = None if self.client.secret is None else httpx.BasicAuth(self.client.id, self.client.secret)
        answer = self.http.post(self.metadata["token_endpoint"], data=sent, auth=who or httpx.USE_CLIENT_DEFAULT)
        assert answer.is_success, answer.text
        given: str = answer.json()["id_token"]
        return given

    def verified(self, token: str) -> dict[str, Any]:
        """The claims, as the published keys prove them."""
        keys = jwt.PyJWKSet.from_dict(self.http.get(self.metadata["jwks_uri"]).json())
        key = keys[jwt.get_unverified_header(token)["kid"]]
        claims: dict[str, Any] = jwt.decode(token, key, ["RS256"], audience=self.client.id, issuer=self.client.issuer)
        assert claims["nonce"] == self.nonce
        return claims


@contextmanager
def flow(client: RegisteredClient) -> Iterator[Flow]:
    made = Flow(client)
    try:
        yield made
    finally:
        made.http.close()


@pytest.mark.parametrize("public", [False, True])
def test_oidc_provider_signs_in_with_the_claims_of_the_moment(
    identity_provider: IdentityProvider, *, public: bool
) -> None:
    alice = identity_provider.add_user(f"alice-{public}", "staff")
    with flow(identity_provider.register(URL, public=public)) as first:
        back = first.log_in(alice)
        assert back["iss"] == identity_provider.issuer
        claims = first.verified(first.exchange(back["code"]))
        assert (claims["preferred_username"], claims["email_verified"]) == (alice.name, True)
        assert claims["groups"] == ["staff"]
        assert "sid" in claims
        identity_provider.change_user(alice.name, groups=[])
        identity_provider.rotate_keys()
        again = first.log_in(alice)  # signed in there, so it is not asked
        assert first.verified(first.exchange(again["code"]))["groups"] == []


def test_oidc_provider_refuses_a_wrong_password_and_returns_a_cancelled_sign_in(
    identity_provider: IdentityProvider,
) -> None:
    bob = identity_provider.add_user("bob")
    with flow(identity_provider.register(URL)) as one:
        page = submit_login(one.http, one.begin(), ProviderUser(bob.name, "wrong"))
        assert "Wrong username or password." in page.text
        assert one.came_back(one.follow(submit_login(one.http, page, bob, cancel="yes")))["error"] == "access_denied"


def test_sign_out_at_oidc_provider_calls_the_back_channel(identity_provider: IdentityProvider) -> None:
    with ForgingProvider() as listener:
        listener.answers[LOGOUT] = Reply()
        client = identity_provider.register(URL, backchannel_logout_uri=listener.issuer + LOGOUT)
        with flow(client) as one:
            claims = one.verified(one.exchange(one.log_in(identity_provider.add_user("carol"))["code"]))
            submit_logout(one.http, one.http.get(one.metadata["end_session_endpoint"]))
            (called,) = listener.asked
            told = jwt.decode(called.fields["logout_token"], options={"verify_signature": False})
            assert (told["sid"], told["sub"]) == (claims["sid"], claims["sub"])
            assert not one.begin().is_redirect  # asked to sign in again


def test_two_oidc_providers_run_at_once(identity_provider: IdentityProvider, tmp_path: Path) -> None:
    with IdentityProvider(tmp_path, claims_in_id_token=False) as other, flow(other.register(URL)) as one:
        claims = one.verified(one.exchange(one.log_in(other.add_user("alice", "staff"))["code"]))
        assert claims["iss"] == other.issuer != identity_provider.issuer
        assert "groups" not in claims


def test_forging_provider_tells_the_truth_until_it_is_told_to_lie() -> None:
    with ForgingProvider() as forger, flow(forger.client) as one:
        claims = one.verified(one.exchange(one.came_back(one.begin())["code"]))
        assert claims["preferred_username"] == "mallory"
        for name, forge in FORGERIES.items():
            forger.id_token = forge
            forged = one.exchange(one.came_back(one.begin())["code"])
            assert forged != forger.signed(claims), name
        forger.answers[TOKEN] = Reply(500)
        with pytest.raises(AssertionError):
            one.exchange(one.came_back(one.begin())["code"])
        assert forger.times_asked(AUTHORIZE) == len(FORGERIES) + 2
