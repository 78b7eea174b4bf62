"""People who sign in at an identity provider: a server that is its client, and a browser that goes there and back."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx

from tests.support.browsing import Browser
from tests.support.identity_providers import (
    IdentityProvider,
    ProviderUser,
    RegisteredClient,
    submit_login,
    submit_logout,
)
from tests.support.ports import free_port
from tests.support.server import Server

GROUPS = {"WATCHWORD_OIDC_GROUPS_CLAIM": "groups"}


@contextmanager
def signing_in_at(
    register: Callable[[str], RegisteredClient], folder: Path, env: Mapping[str, str] | None = None, *flags: str
) -> Iterator[Server]:
    """A server whose people sign in at this provider."""
    port = free_port()
    client = register(f"http://127.0.0.1:{port}")
    with Server(folder, *flags, port=port, env={**client.env, **GROUPS, **(env or {})}) as server:
        yield server


class SignInBrowser(Browser):
    """A browser that follows the redirects of a sign-in."""

    def go(self, path: str = "/sign-in", **query: str) -> httpx.Response:
        """Up to a page of the provider, or to what Watchword answers in the end."""
        return self.follow(self.http.get(path, params=query))

    def follow(self, answer: httpx.Response) -> httpx.Response:
        while answer.next_request is not None and not self._has_arrived(answer):
            answer = self.http.send(answer.next_request)
        return answer

    def _has_arrived(self, answer: httpx.Response) -> bool:
        return str(answer.url).startswith(f"{self.url}/sign-in/callback")

    def sign_in_as(self, user: ProviderUser, next_page: str = "/") -> httpx.Response:
        """What the callback answers."""
        page = self.go(next=next_page)
        return page if self._has_arrived(page) else self.follow(submit_login(self.http, page, user))

    def signed_in_as(self, user: ProviderUser) -> "SignInBrowser":
        answer = self.sign_in_as(user)
        assert answer.status_code == 303, answer.text
        return self

    def callback(self, **answer: str) -> httpx.Response:
        return self.http.get(f"/sign-in/callback?{urlencode(answer)}")

    def sign_out_at(self, provider: IdentityProvider) -> None:
        """On the provider's own page, while the session here goes on."""
        metadata = self.http.get(f"{provider.issuer}/.well-known/openid-configuration").json()
        submit_logout(self.http, self.http.get(metadata["end_session_endpoint"]))

    @property
    def session_cookie(self) -> str | None:
        return self.http.cookies.get("watchword", domain="127.0.0.1")


def urn(user: ProviderUser | str) -> str:
    return f"urn:li:corpuser:{user if isinstance(user, str) else user.name}"
