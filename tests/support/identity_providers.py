"""Real OpenID providers: oidc-provider on Node, in a second, and what a person does on the pages of any of them.

`tests/support/keycloak.py` has Keycloak, `tests/support/forging_provider.py` one that lies.
"""

import itertools
import re
import secrets
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx

from tests.support.clients import NODE, ClientProgram, node_program
from tests.support.ports import free_port
from tests.support.server import plain_client

CALLBACK, LOGOUT = "/sign-in/callback", "/sign-in/logout"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class RegisteredClient:
    """Watchword, as the provider knows it."""

    issuer: str
    id: str
    secret: str | None
    """None for a public client."""

    @property
    def env(self) -> dict[str, str]:
        """The settings with which a server is this client."""
        named = {"ISSUER": self.issuer, "CLIENT_ID": self.id, "CLIENT_SECRET": self.secret}
        return {f"WATCHWORD_OIDC_{name}": value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ProviderUser:
    name: str
    password: str


class IdentityProvider(ClientProgram):
    """oidc-provider, until the end of the block. Its issuer is `localhost`, another site than Watchword's 127.0.0.1, as
    a company's provider is.
    """

    def __init__(self, home: Path, *, port: int | None = None, claims_in_id_token: bool = True) -> None:
        super().__init__([node_program(), NODE / "identity_provider.mjs"], home)
        self.port = port or free_port()
        self.issuer: str = self.say(
            call="start", issuer=f"http://localhost:{self.port}", port=self.port, inIdToken=claims_in_id_token
        )
        self._claims: dict[str, dict[str, Any]] = {}

    def register(self, url: str, *, public: bool = False, **metadata: Any) -> RegisteredClient:
        """A client for the Watchword at this address; `metadata` as in OpenID Connect Dynamic Client Registration."""
        secret = None if public else secrets.token_urlsafe(32)
        wanted = {
            "client_id": f"watchword-{next(_numbers)}",
            "redirect_uris": [url + CALLBACK],
            "post_logout_redirect_uris": [f"{url}/"],
            "backchannel_logout_uri": url + LOGOUT,
            "backchannel_logout_session_required": True,
            **({"token_endpoint_auth_method": "none"} if secret is None else {"client_secret": secret}),
            **metadata,
        }
        return RegisteredClient(self.issuer, self.say(call="client", **wanted), secret)

    def add_user(self, name: str, *groups: str, password: str | None = None, **claims: Any) -> ProviderUser:
        """Somebody with the usual claims; those given here replace them, and None removes one."""
        usual = {
            "sub": f"subject-of-{name}",
            "preferred_username": name,
            "name": name.capitalize(),
            "email": f"{name}@example.com",
            "email_verified": True,
            "groups": list(groups),
        }
        user = ProviderUser(name, password or f"password of {name}")
        self._set(user.name, usual | claims, user.password)
        return user

    def change_user(self, name: str, **claims: Any) -> None:
        """What a later sign-in says; `groups=["staff"]` replaces all groups."""
        self._set(name, self._claims[name] | claims, None)

    def _set(self, name: str, claims: dict[str, Any], password: str | None) -> None:
        self._claims[name] = {claim: value for claim, value in claims.items() if value is not None}
        self.say(call="user", name=name, password=password, claims=self._claims[name])

    def rotate_keys(self, *, keep_old: bool = False) -> None:
        """Sign with new keys; the old ones are published only if they are kept. Sessions stay."""
        self.say(call="rotate", keepOld=keep_old)


def browser_client() -> httpx.Client:
    """Sends cookies that are marked `Secure` to loopback without TLS, as browsers do."""
    made = plain_client()

    def trust_loopback(_: httpx.Response) -> None:
        for cookie in made.cookies.jar:
            cookie.secure = False

    made.event_hooks = {"response": [trust_loopback]}
    return made


def submit_login(browser: httpx.Client, page: httpx.Response, user: ProviderUser, **fields: str) -> httpx.Response:
    """Send the sign-in page of a provider, as a browser does."""
    return _submit(browser, page, {"username": user.name, "password": user.password, **fields})


def submit_logout(browser: httpx.Client, page: httpx.Response) -> httpx.Response:
    """Confirm, on the page of the provider's end-session address, to sign out."""
    return _submit(browser, page, {"logout": "yes", "confirmLogout": "yes"})


def _submit(browser: httpx.Client, page: httpx.Response, fields: dict[str, str]) -> httpx.Response:
    (action,) = re.findall(r'<form [^>]*action="([^"]+)"', page.text)
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text))
    return browser.post(urljoin(str(page.url), unescape(action)), data=hidden | fields)
