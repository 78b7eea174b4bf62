"""No secret is written: the tests provoke every error with a token in every place, then search all output."""

import asyncio
import base64
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.server import ADMIN, CREATE, CREATE_POLICY, LIST, REVOKE, Server
from tests.support.wire import AS_ADMIN, JSON_TYPE, send, send_chunked
from watchword.app.wiring import open_service
from watchword.authority.service import Authority
from watchword.basics.errors import Fault, Reason
from watchword.basics.secret import Secret
from watchword.settings import Settings, load
from watchword.tokens.issue_service import CreatedToken
from watchword.tokens.keys import Claims
from watchword.tokens.keys_service import KeyRing, MasterKeyError, Sealer, load_master_key

WINDOW = 20
FORM_TYPE = "Content-Type: application/x-www-form-urlencoded"
ME = "{ me { corpUser { urn } } }"
FIND = "query ($t: String!) { getAccessTokenMetadata(token: $t) { id } }"

HEADERS = [
    "X-Request-Id", "Origin", "X-Service-Actor", "X-DataHub-Actor", "X-Forwarded-For", "Forwarded", "Cookie", "Via",
    "User-Agent", "Referer", "Content-Type", "Accept", "Content-Encoding", "X-Anything", "Proxy-Authorization",
]  # fmt: skip
AUTHORIZATIONS = [
    "TOKEN", "Basic TOKEN", "Bearer  TOKENx", "Bearer TOKEN,", "Bearer TOKEN TOKEN", "Token TOKEN", "Bearer CUT",
    "Bearer PAYLOAD", "Bearer TOKEN" + "x" * 9_000, "BearerTOKEN",
]  # fmt: skip
BODIES = [
    '"TOKEN"', "TOKEN", '{"query": "TOKEN"', '{"query": "TOKEN"}', '{"query": TOKEN}', '["TOKEN"]', '{"TOKEN": 1}',
    '{"query": "{ me }", "variables": "TOKEN"}', '{"query": "{ me }", "operationName": ["TOKEN"]}',
    '{"query": "x", "variables": ["TOKEN"]}', '{"query": "{ me }", "extensions": "TOKEN"}',
]  # fmt: skip
FORMS = [
    "token=TOKENx", "token=TOKEN&token=TOKEN", "TOKEN", "TOKEN=1", "token=TOKEN%FF", "token=x&token_type_hint=TOKEN",
    "token=CUT", "token=%0ATOKEN",
]  # fmt: skip
QUERIES = [
    "{ TOKEN }",
    "{ HEAD }",
    "query HEAD { nothing }",
    '{ me(a: "TOKEN") { corpUser { urn } } }',
    "{ me(HEAD: 1) { corpUser { urn } } }",
    "{ me @HEAD { corpUser { urn } } }",
    'query ($a: String = "TOKEN") { nothing }',
    "query ($a: HEAD) { me { corpUser { urn } } }",
    "{ ...HEAD }",
    "# TOKEN\n{",
    "{ me { corpUser { urn } } } # TOKEN",
    '{ "TOKEN',
    '{ listAccessTokens(input: "TOKEN") { total } }',
    '{ listAccessTokens(input: {start: "TOKEN"}) { total } }',
    '{ listAccessTokens(input: {filters: {field: "name", condition: HEAD}}) { total } }',
    '{ listAccessTokens(input: {filters: {field: "TOKEN", value: "x"}}) { total } }',
    '{ getGrantedPrivileges(input: {actorUrn: "TOKEN"}) { privileges } }',
    '{ getActor(urn: "TOKEN") { urn } }',
    "mutation { revokeAccessToken(tokenId: TOKEN) }",
    'mutation { revokeAccessToken(tokenId: "TOKEN") }',
    'mutation { revokeAccessToken(tokenId: ["TOKEN"]) }',
    'mutation { updateUserStatus(urn: "TOKEN", status: SUSPENDED) }',
    'mutation { deletePolicy(urn: "TOKEN") }',
    'mutation { createGroup(input: {name: "g", id: "TOKEN"}) }',
]


@dataclass
class Provoked:
    """A server with full logging, its tokens, and every response except those that return a token."""

    server: Server
    tokens: list[str] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)

    def send_request(self, *headers: str | bytes, **how: Any) -> None:
        answer = send(self.server, headers=[AS_ADMIN, JSON_TYPE, *headers], **how)
        self.answers += [answer.body, repr(answer.headers).encode()]

    def ask(self, query: Any, variables: Any = None, *headers: str | bytes, **more: Any) -> None:
        self.send_request(*headers, body=orjson.dumps({"query": query, "variables": variables, **more}))


@pytest.fixture(scope="module")
def provoked(tmp_path_factory: pytest.TempPathFactory) -> Provoked:
    """Run the server, misuse it in every way and stop it, so its output is complete."""
    server = Server(tmp_path_factory.mktemp("loud"), "--log-level", "debug", "--access-log", "all")
    with server:
        said = Provoked(server)
        first = server.create(ADMIN)
        by_bearer = server.create(ADMIN, token=first["accessToken"])
        revoked = server.create(ADMIN)
        server.revoke(revoked["metadata"]["id"], token=first["accessToken"])
        said.tokens += [made["accessToken"] for made in (first, by_bearer, revoked)]
        for token in said.tokens:
            server.verify(token)
            misplace(said, token)
        said.answers.append(server.metrics().encode())
        server.http.get("/health")
    return said


def misplace(said: Provoked, token: str) -> None:
    """Send the token in every wrong place."""
    for path in ("/{}", "/api/{}", "/auth/{}", "/gms/{}/x", "/config?t={}", "/api/graphql?access_token={}"):
        dots = (token.replace(".", dot) for dot in (".", "%2E", "%252E", "%2525252e"))
        for target in map(path.format, (f"%65{token[1:]}", *dots)):
            said.send_request(method="GET", target=target, body=None)
            said.send_request(method="POST", target=target)
            said.send_request(f"Authorization: Bearer {token}", target=target)
    for name in HEADERS:
        said.send_request(f"{name}: {token}")
        send(said.server, headers=[f"{name}: {token}", JSON_TYPE])
    for form in AUTHORIZATIONS:
        value = form.replace("TOKEN", token).replace("CUT", token[:-4]).replace("PAYLOAD", token.split(".")[1])
        said.send_request(f"Authorization: {value}")
        said.send_request(f"Authorization: {value}", target="/auth")
    said.send_request(f"Authorization: Bearer {token}", f"Authorization: Bearer {token}")
    said.send_request(host=f"{token}.example.com")
    for body in BODIES:
        said.send_request(body=body.replace("TOKEN", token).encode())
    for form in FORMS:
        sent = form.replace("TOKEN", token).replace("CUT", token[:-4]).encode()
        for address in ("/oauth2/introspect", "/oauth2/revoke"):
            for bearer in (token, said.tokens[0]):
                headers = [FORM_TYPE, f"Authorization: Bearer {bearer}"]
                answer = send(said.server, headers=headers, target=f"{address}?token={token}", body=sent)
                said.answers += [answer.body, repr(answer.headers).encode()]
            said.send_request(f"Authorization: Bearer {token}", target=address, body=sent)
    said.answers.append(send_chunked(said.server, [token.encode() * 100] * 30).body)
    for query in QUERIES:
        said.ask(query.replace("TOKEN", token).replace("HEAD", token.split(".", maxsplit=1)[0]))
    misplace_in_variables(said, token)


def misplace_in_variables(said: Provoked, token: str) -> None:
    for given in (token, "urn:li:serviceAccessToken:" + token):
        said.ask(REVOKE, {"id": given})
    for wrong in ([token], {token: token}, {"a": [token]}, [[token]]):
        for query in (REVOKE, FIND, LIST, CREATE, CREATE_POLICY):
            said.ask(query, {"id": wrong, "t": wrong, "input": wrong})
    for name in ("field", "value", "values", "condition", "negated", token):
        said.ask(LIST, {"input": {"filters": [{"field": "expiresAt", "value": "x", name: token}]}})
    said.ask(LIST, {"input": {"filters": [{"field": "name", "value": token}, {"field": "id", "values": [token]}]}})
    said.ask(LIST, {"input": {"start": token, "count": token, "sort": {"field": token}, token: 1}})
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "x"}
    for name in ("type", "actorUrn", "duration", "durationIso", token):
        said.ask(CREATE, {"input": wanted | {name: token}})
    said.ask(CREATE, {"input": wanted | {"name": [token]}})
    for name in ("name", "description"):
        said.ask(CREATE, {"input": wanted | {name: f"for {token}"}})
    policy = {"type": "PLATFORM", "name": "p", "state": "ACTIVE", "privileges": [token], "actors": {"users": [token]}}
    for change in ({}, {"type": token}, {"state": token}, {"privileges": token}, {"actors": token}, {token: 1}):
        said.ask(CREATE_POLICY, {"input": policy | change})
    said.ask(FIND, {"t": token + "x"})
    said.ask(FIND, {"t": token}, f"X-Service-Actor: {token}")
    said.ask(ME, operationName=token)
    said.ask({"a": token})


def settings_of(server: Server) -> Settings:
    return load({"data_dir": str(server.data_dir), "port": str(server.port)}, {})


def spellings(secret: bytes) -> set[bytes]:
    """Return the encodings in which raw bytes may be written."""
    plain = base64.b64encode(secret)
    return {
        secret,
        secret.hex().encode(),
        secret.hex().upper().encode(),
        plain.rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
        repr(secret)[2:-1].encode(),
    }


@pytest.fixture(scope="module")
def keys(provoked: Provoked) -> dict[str, bytes]:
    """Decrypt the master key, salt and private keys of that server."""
    settings = settings_of(provoked.server)
    master = load_master_key(settings.master_key_path, create=False)
    sealer = Sealer(master)

    async def opened() -> dict[str, bytes]:
        async with open_service(settings) as service:
            kept = (*await service.keys.all(), await service.store.next_key())
            private = {k.kid: sealer.open(k.sealed_private, f"key:{k.kid}").reveal() for k in kept if k is not None}
            return {"salt": service.salt.reveal(), "master key": master.reveal(), **private}

    return asyncio.run(opened())


@pytest.fixture(scope="module")
def written(provoked: Provoked) -> dict[str, bytes]:
    """Return all output of the process, by source."""
    server = provoked.server
    files = [path for path in server.data_dir.rglob("*") if path.is_file() and path.name != "master.key"]
    assert {path.name for path in files} >= {"watchword.db"}
    return {
        "stdout": server.out.read_bytes(),
        "stderr": server.err.read_bytes(),
        "answers": b"\n".join(provoked.answers),
        **{path.name: path.read_bytes() for path in files},
    }


def test_provoked_errors_are_logged_and_returned(provoked: Provoked, written: dict[str, bytes]) -> None:
    """The control: the searches below have something to search."""
    assert written["stderr"].count(b'"event":"request"') > 400
    assert len(provoked.answers) > 800
    assert {int(code) for code in re.findall(rb'"code":(\d+)', written["answers"])} >= {400, 401, 404, 405, 413, 415}
    assert b"watchword_http_requests_total" in written["answers"]
    assert not re.search(rb'"code":5\d\d', written["answers"])


def test_output_contains_no_token_and_no_part_of_one(provoked: Provoked, written: dict[str, bytes]) -> None:
    for token in provoked.tokens:
        head, payload, signature = token.split(".")
        shared = provoked.tokens[0].split(".")[1]
        for part in (payload, signature):
            for start in range(len(part) - WINDOW + 1):
                piece = part[start : start + WINDOW]
                if part is payload and token is not provoked.tokens[0] and piece in shared:
                    continue  # seen with the first token
                found = [where for where, content in written.items() if piece.encode() in content]
                assert not found, f"{part[: start + WINDOW]} is in {found}"
        assert not [where for where, content in written.items() if head.encode() in content]


def test_output_contains_no_key(keys: dict[str, bytes], written: dict[str, bytes]) -> None:
    assert len(keys) == 4
    for name, secret in keys.items():
        assert len(secret) == 32
        for spelling in spellings(secret):
            assert not [where for where, content in written.items() if spelling in content], name


def test_events_name_tokens_only_by_id(provoked: Provoked) -> None:
    with closing(sqlite3.connect(provoked.server.data_dir / "watchword.db")) as store:
        events = store.execute("SELECT * FROM events").fetchall()
    assert len([event for event in events if "token.created" in event]) == 3
    for token in provoked.tokens:
        assert not [event for event in events if any(part in repr(event) for part in token.split(".")[1:])]


def test_stored_salt_and_keys_are_sealed(provoked: Provoked, keys: dict[str, bytes]) -> None:
    with closing(sqlite3.connect(provoked.server.data_dir / "watchword.db")) as store:
        (salt,) = store.execute("SELECT sealed_salt FROM state").fetchone()
        kept = store.execute("SELECT sealed_private FROM keys UNION ALL SELECT sealed_private FROM next_key").fetchall()
    assert len(kept) == 2
    for sealed in (salt, *(private for (private,) in kept)):
        assert len(sealed) == 12 + 32 + 16
        assert sealed not in keys.values()


def printed(thing: object) -> str:
    return f"{thing!r} {thing!s} {thing} {[thing]} {({'a': thing},)} %s %r" % (thing, thing)


def test_printed_objects_hide_their_secrets(provoked: Provoked, keys: dict[str, bytes]) -> None:
    settings = settings_of(provoked.server)
    master = load_master_key(settings.master_key_path, create=False)

    async def things() -> list[object]:
        async with open_service(settings) as service:
            held = [service, service.keys, service.authority, service.issuer, service.policies, service.usage]
            keys = service.keys
            assert isinstance(keys, KeyRing)
            return [*held, service.salt, keys.sign(Claims(ADMIN, 0, None))]

    found = asyncio.run(things())
    signed: Any = found[-1]
    record: Any = None
    created = CreatedToken(signed.token, record)
    assert isinstance(found[1], KeyRing)
    assert isinstance(found[2], Authority)
    shown = "".join(printed(thing) for thing in (*found, created, master, Sealer(master), settings, [created]))
    assert "Secret(…)" in shown
    token = signed.token.reveal()
    assert not [part for part in token.split(".") if part in shown]
    for secret in keys.values():
        assert not [spelling for spelling in spellings(secret) if spelling.decode("latin-1") in shown]


def test_exceptions_contain_no_secrets(provoked: Provoked, tmp_path: Path) -> None:
    master = load_master_key(settings_of(provoked.server).master_key_path, create=False)
    other = tmp_path / "other.key"
    other.write_text("c2hvcnQgc2VjcmV0")
    other.chmod(0o600)
    tries: list[Callable[[], object]] = [
        lambda: load_master_key(other, create=False),
        lambda: Sealer(Secret(b"k" * 32)).open(Sealer(master).seal(Secret(b"plain-secret"), "a"), "a"),
        lambda: Sealer(master).open(Sealer(master).seal(Secret(b"plain-secret"), "a"), "b"),
    ]
    for attempt in tries:
        with pytest.raises(MasterKeyError) as raised:
            attempt()
        text = printed(raised.value)
        assert not [word for word in ("c2hvcnQ", "short secret", "plain-secret") if word in text]
        assert raised.value.__cause__ is None
    fault = Fault(Reason.INTERNAL, "public", cause="the private why")
    assert "private" not in printed(fault)


def test_secret_of_a_server_cannot_be_pickled() -> None:
    import pickle

    with pytest.raises(TypeError):
        pickle.dumps(Secret("x"))


def test_metrics_contain_no_actors_and_no_unknown_paths(server: Server) -> None:
    server.create(ADMIN)
    made_up = "/made/up/by/somebody"
    assert server.http.get(made_up).status_code == 404
    text = server.metrics()
    assert ADMIN not in text
    assert made_up not in text
