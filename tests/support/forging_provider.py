"""An OpenID provider that lies: its discovery, keys and answers are what a test tells it to say. For refusals only:
what must work is tried with real providers.
"""

import hmac
import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.identity_providers import RegisteredClient
from tests.support.waiting import SECONDS

DISCOVERY, KEYS, AUTHORIZE, TOKEN, USERINFO, END_SESSION = (
    "/.well-known/openid-configuration", "/keys", "/authorize", "/token", "/userinfo", "/end",
)  # fmt: skip
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
KID = "key-1"
PIECE = 65_536

Claims = dict[str, Any]


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    fields: dict[str, str]
    """Of the query, or of the form."""
    port: int
    """Of the client."""


@dataclass
class Reply:
    """What an address answers instead of what it should."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    until: threading.Event | None = None
    """Nothing is answered before it is set."""
    endless: bytes = b""
    """Sent again and again, instead of an answer."""

    @classmethod
    def of(cls, content: Any, status: int = 200) -> Self:
        return cls(status, json.dumps(content).encode())


class ForgingProvider:
    """`forger.answers[TOKEN] = Reply(500)`, `forger.discovery["issuer"] = ...`, `forger.id_token = FORGERIES[name]`."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.issuer = f"http://localhost:{self._server.server_address[1]}"
        self.client = RegisteredClient(self.issuer, "watchword", "a client secret that this provider knows")
        self.reset()

    def reset(self) -> None:
        """Honest again."""
        self.asked: list[Asked] = []
        self.answers: dict[str, Reply] = {}
        self.claims: Claims = {"sub": "mallory", "preferred_username": "mallory", "name": "Mallory"}
        self.id_token: Callable[[ForgingProvider, Claims], str] = ForgingProvider.signed
        self.authorization: dict[str, str | None] = {}
        """Changes to the parameters with which the browser comes back; None removes one."""
        self.discovery: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": self.issuer + AUTHORIZE,
            "token_endpoint": self.issuer + TOKEN,
            "userinfo_endpoint": self.issuer + USERINFO,
            "end_session_endpoint": self.issuer + END_SESSION,
            "jwks_uri": self.issuer + KEYS,
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "backchannel_logout_supported": True,
            "backchannel_logout_session_supported": True,
        }
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.keys: dict[str, Any] = {"keys": [{**public, "kid": KID, "use": "sig", "alg": "RS256"}]}
        self._nonces: dict[str, Claims] = {}

    def times_asked(self, path: str) -> int:
        return sum(one.path == path for one in self.asked)

    # Tokens.

    def signed(self, claims: Claims, key: Any = None, algorithm: str = "RS256", **headers: Any) -> str:
        """With the published key and its id, unless told otherwise."""
        return jwt.encode(claims, key or self._key, algorithm, headers={"kid": KID, **headers})

    def signed_with_public_key(self, claims: Claims) -> str:
        """HS256, for which a careless client takes the published key."""
        public = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        parts = ({"alg": "HS256", "typ": "JWT", "kid": KID}, claims)
        unsigned = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        # By hand: PyJWT refuses to take a public key for a secret, as a client should.
        return f"{unsigned}.{_encoded(hmac.digest(public, unsigned.encode(), 'sha256'))}"

    def logout_claims(self, **changes: Any) -> Claims:
        """Of a logout token as it should be, with changes; None removes a claim."""
        now = int(time.time())
        usual = {
            "iss": self.issuer, "aud": self.client.id, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8),
            "sub": self.claims["sub"], "events": {LOGOUT_EVENT: {}},
        }  # fmt: skip
        return {claim: value for claim, value in (usual | changes).items() if value is not None}

    # What it answers if it is not told otherwise.

    def honest(self, asked: Asked) -> Reply:
        if asked.path == AUTHORIZE:
            return self._authorize(asked.fields)
        if asked.path == TOKEN:
            return self._token(asked.fields)
        known = {DISCOVERY: self.discovery, KEYS: self.keys, USERINFO: self.claims}
        return Reply.of(known[asked.path]) if asked.path in known else Reply(404)

    def _authorize(self, fields: dict[str, str]) -> Reply:
        """Everybody is signed in already."""
        code = secrets.token_hex(16)
        self._nonces[code] = {"nonce": fields["nonce"]} if "nonce" in fields else {}
        usual: dict[str, str | None] = {"code": code, "state": fields.get("state"), "iss": self.issuer}
        back = {name: value for name, value in (usual | self.authorization).items() if value is not None}
        return Reply(302, b"", {"Location": f"{fields['redirect_uri']}?{urlencode(back)}"})

    def _token(self, fields: dict[str, str]) -> Reply:
        nonce = self._nonces.pop(fields.get("code", ""), None)
        if nonce is None:
            return Reply.of({"error": "invalid_grant"}, 400)
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": self.client.id, "iat": now, "exp": now + 300, "auth_time": now, "sid": "s"}
        given = {"access_token": secrets.token_hex(16), "token_type": "Bearer", "expires_in": 300}
        return Reply.of(given | {"id_token": self.id_token(self, usual | nonce | self.claims)})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _changed(**changes: Any) -> Callable[[ForgingProvider, Claims], str]:
    """Signed well, with other claims; None removes one, and a function is given the old value."""

    def forge(forger: ForgingProvider, claims: Claims) -> str:
        said = {name: new(claims[name]) if callable(new) else new for name, new in changes.items()}
        return forger.signed({name: value for name, value in (claims | said).items() if value is not None})

    return forge


FORGERIES: dict[str, Callable[[ForgingProvider, Claims], str]] = {
    "another nonce": _changed(nonce="another"),
    "no nonce": _changed(nonce=None),
    "alg none": lambda _, claims: jwt.encode(claims, "", "none", headers={"kid": KID}),
    "HS256 with the public key": ForgingProvider.signed_with_public_key,
    "HS256 with the client secret": lambda forger, claims: forger.signed(claims, forger.client.secret, "HS256"),
    "unknown kid": lambda forger, claims: forger.signed(claims, kid="unknown"),
    "another key under a known kid": lambda forger, claims: forger.signed(
        claims, rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    ),
    "a broken signature": lambda forger, claims: forger.signed(claims)[:-8] + "AAAAAAAA",
    "another issuer": _changed(iss="https://other.example"),
    "the issuer with a slash": _changed(iss=lambda iss: f"{iss}/"),
    "no issuer": _changed(iss=None),
    "another audience": _changed(aud="other"),
    "no audience": _changed(aud=None),
    "several audiences without azp": _changed(aud=lambda aud: [aud, "other"]),
    "azp of another client": _changed(aud=lambda aud: [aud, "other"], azp="other"),
    "azp of another client, one audience": _changed(azp="other"),
    "expired": _changed(iat=lambda now: now - 7200, exp=lambda exp: exp - 7200),
    "of the future": _changed(iat=lambda now: now + 7200, exp=lambda exp: exp + 7200),
    "not yet valid": _changed(nbf=int(time.time()) + 7200),
    "no expiry": _changed(exp=None),
    "no time of issue": _changed(iat=None),
    "an expiry that is a text": _changed(exp="tomorrow"),
    "no subject": _changed(sub=None),
    "a subject that is a number": lambda forger, claims: forger.signed(claims | {"sub": 7}),
    "no token at all": lambda *_: "",
    "three dots": lambda *_: "...",
}
"""ID tokens that must be refused, by what is wrong with each."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler(forger: ForgingProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())

        def _answer(self, encoded: str) -> None:
            fields = {name: values[-1] for name, values in parse_qs(encoded).items()}
            asked = Asked(self.command, urlsplit(self.path).path, dict(self.headers), fields, self.client_address[1])
            forger.asked.append(asked)
            reply = forger.answers.get(asked.path) or forger.honest(asked)
            if reply.until is not None:
                reply.until.wait(SECONDS)
            try:
                while reply.endless:
                    self.wfile.write(reply.endless)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                for start in range(0, len(reply.body), PIECE):
                    self.wfile.write(reply.body[start : start + PIECE])
            except ConnectionError:  # a client that has read enough
                self.close_connection = True

    return Handler


def _encoded(part: bytes) -> str:
    return urlsafe_b64encode(part).rstrip(b"=").decode()
