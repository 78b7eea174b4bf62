"""The recipes of docs/how-to/gateways, each with its real program: who passes, as whom, and what happens otherwise."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import CLIENT, METHODS, RECIPES, Application, Gateway, Tap, Told, running
from tests.support.ports import free_port
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.store_file import change_store
from tests.support.waiting import until

IDENTITY = ("X-Auth-Urn", "X-Auth-Token-Id", "X-Auth-Scopes")
ACTOR = ("X-Service-Actor", "X-DataHub-Actor")
ALIASES = "_.!#$%&'*+^`|~"
"""What applications may read a hyphen for: CGI, WSGI and PHP make one variable of all spellings."""
FORGED = "forged"
LARGE = bytes(range(256)) * 20_000
REQUESTS, CONNECTIONS = 500, 32


AUDIENCE = "https://deploy.example"
REQUIRED = f"watchword.scope=deploy&watchword.audience={AUDIENCE}&watchword.privilege={GENERATE}"


@dataclass(frozen=True)
class Token:
    id: str
    urn: str
    text: str
    scopes: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def believing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that believes what this machine says of its callers: a gateway that lets a claim through shows."""
    trust = ("--trusted-proxies", "127.0.0.1/32", "--trusted-peers", "127.0.0.0/8")
    with Server(tmp_path_factory.mktemp("believing"), *trust) as server:
        yield server


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with Application() as listening:
        yield listening


@pytest.fixture(scope="module")
def tap(believing: Server) -> Iterator[Tap]:
    with Tap(believing.port) as passing:
        yield passing


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: recipe.name)
def gateway(
    request: pytest.FixtureRequest, tap: Tap, application: Application, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateways") / request.param.name
    with running(request.param, folder, tap.port, application) as listening:
        yield listening


@pytest.fixture
def token(believing: Server, actor: str) -> Token:
    return make(believing, actor)


def make(server: Server, actor: str, **limits: Any) -> Token:
    made = server.create(ADMIN, of=actor, **limits)
    return Token(made["metadata"]["id"], actor, made["accessToken"], tuple(limits.get("scopes", ())))


def assert_passed(told: Told, token: Token) -> None:
    """The application has been told who it is, once, and nothing else that names anybody."""
    assert (told.status, told.seen is not None) == (200, True)
    assert told.seen is not None
    urn, token_id, scopes = (told.seen.named(name) for name in IDENTITY)
    assert (urn, token_id) == ([token.urn], [token.id])
    assert sorted("".join(scopes).split()) == sorted(token.scopes)
    assert len(scopes) <= 1
    assert [told.seen.named(name) for name in (*ACTOR, "Authorization")] == [[], [], []]


def assert_refused(told: Told, challenge: str) -> None:
    assert (told.status, told.seen) == (401, None)
    assert (told.header("WWW-Authenticate") or "").startswith(challenge)


NO_CREDENTIAL = 'Bearer realm="watchword"'
BAD_CREDENTIAL = 'Bearer realm="watchword", error="invalid_token"'


def test_without_a_token_nothing_passes(gateway: Gateway) -> None:
    told = gateway.ask()
    assert_refused(told, NO_CREDENTIAL)
    assert "error=" not in (told.header("WWW-Authenticate") or "")


def test_a_made_up_token_does_not_pass(gateway: Gateway) -> None:
    assert_refused(gateway.ask(token="made.up.token"), BAD_CREDENTIAL)


def test_a_live_token_passes_and_the_application_is_told_whose_it_is(gateway: Gateway, token: Token) -> None:
    assert_passed(gateway.ask(token=token.text), token)


def test_an_expired_token_does_not_pass(gateway: Gateway, believing: Server, token: Token) -> None:
    change_store(believing, "UPDATE tokens SET expires_at = 1000 WHERE id = ?", token.id)
    assert_refused(gateway.ask(token=token.text), BAD_CREDENTIAL)


def test_a_token_that_passed_and_is_then_revoked_does_not_pass_at_the_next_request(
    gateway: Gateway, believing: Server, token: Token
) -> None:
    with closing(gateway.connect()) as connection:
        assert_passed(gateway.ask(token=token.text, on=connection), token)
        believing.revoke(token.id)
        assert_refused(gateway.ask(token=token.text, on=connection), BAD_CREDENTIAL)


def test_two_credentials_are_as_good_as_none(gateway: Gateway, token: Token) -> None:
    good, bad = ("Authorization", f"Bearer {token.text}"), ("Authorization", "Bearer made-up")
    for both in ((good, bad), (bad, good), (good, good)):
        told = gateway.ask(headers=both)
        assert (told.status in (400, 401), told.seen) == (True, None)


def test_whatever_name_a_request_asks_for_it_needs_a_token(gateway: Gateway, token: Token) -> None:
    host = [("Host", "application.example")]
    assert_refused(gateway.ask(headers=host), NO_CREDENTIAL)
    assert_passed(gateway.ask(headers=host, token=token.text), token)


def spellings(name: str) -> list[str]:
    """The name, twice, and what is read as the same: with another sign for one hyphen or for all."""
    ends = [name[::-1].replace("-", sign, 1)[::-1] for sign in ALIASES]
    return [name, name, *ends, *(name.replace("-", sign, n) for sign in ALIASES for n in (1, -1))]


@pytest.mark.parametrize("name", IDENTITY)
def test_a_forged_identity_never_reaches_the_application(gateway: Gateway, token: Token, name: str) -> None:
    forged = [(spelled, FORGED) for spelled in spellings(name)]
    assert_passed(gateway.ask(token=token.text, headers=forged), token)
    assert_refused(gateway.ask(headers=forged), NO_CREDENTIAL)


def test_an_identity_cannot_be_taken_off_by_naming_it_as_of_one_connection_only(gateway: Gateway, token: Token) -> None:
    for name in IDENTITY:
        assert_passed(gateway.ask(token=token.text, headers=[("Connection", f"keep-alive, {name}")]), token)


@pytest.mark.parametrize("name", ACTOR)
def test_a_forged_actor_reaches_neither_watchword_nor_the_application(
    gateway: Gateway, token: Token, tap: Tap, name: str
) -> None:
    tap.heard.clear()
    forged = [(name, ADMIN), ("Cookie", "session=the-application's")]
    assert_refused(gateway.ask(headers=forged), NO_CREDENTIAL)
    assert_passed(gateway.ask(token=token.text, headers=forged), token)
    heads = tap.heads()
    assert len(heads) == 2
    assert [head for head in heads if name.lower() in head or "cookie" in head] == []


def test_the_query_of_the_application_is_the_applications_alone(gateway: Gateway, token: Token, tap: Tap) -> None:
    tap.heard.clear()
    target = (
        "/a%20b/c?scope=x&watchword.scope=deploy&watchword.privilege=NONE&watchword.audience=x&watchword.status=500"
    )
    told = gateway.ask(target=target, token=token.text)
    assert_passed(told, token)
    assert told.seen is not None
    assert told.seen.target == target
    (head,) = tap.heads()
    asked = head.splitlines()[0].split()[1]
    assert asked.startswith("/auth")
    assert "scope" not in asked


@pytest.mark.parametrize("method", METHODS)
def test_a_request_passes_by_any_method_and_its_body_comes_whole(gateway: Gateway, token: Token, method: str) -> None:
    for body in ({}, {"body": b"a body"}, {"chunks": [b"a ", b"body"]}):
        told = gateway.ask(method, token=token.text, **body)
        assert_passed(told, token)
        assert told.seen is not None
        assert (told.seen.method, told.seen.size) == (method, 6 if body else 0)
        assert_refused(gateway.ask(method, **body), NO_CREDENTIAL)


def test_a_large_body_comes_whole_if_there_is_a_token_and_not_at_all_if_there_is_none(
    gateway: Gateway, token: Token
) -> None:
    told = gateway.ask("POST", token=token.text, body=LARGE)
    assert_passed(told, token)
    assert told.seen is not None
    assert told.seen.digest == hashlib.sha256(LARGE).hexdigest()
    assert gateway.ask("POST", body=b"", token="made-up").seen is None
    assert_refused(gateway.ask("POST", chunks=[LARGE]), NO_CREDENTIAL)


def test_a_client_that_waits_to_be_told_to_go_on_is_told(gateway: Gateway, token: Token) -> None:
    expecting = [("Expect", "100-continue")]
    with closing(gateway.connect()) as connection:
        probe, head = gateway.head("POST", "/", token=token.text, headers=expecting, body=b"a body")
        connection.sendall(head)
        assert connection.recv(1024).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"a body")
        told = gateway.answer(connection, probe, "POST")
    assert_passed(told, token)
    assert told.seen is not None
    assert told.seen.size == 6
    with closing(gateway.connect()) as connection:
        probe, head = gateway.head("POST", "/", token=None, headers=expecting, body=b"a body")
        connection.sendall(head)
        assert_refused(gateway.answer(connection, probe, "POST"), NO_CREDENTIAL)


def test_a_token_passes_only_from_its_networks_whatever_address_the_client_makes_up(
    gateway: Gateway, believing: Server, actor: str
) -> None:
    here = make(believing, actor, allowedNetworks=[f"{CLIENT}/32"])
    elsewhere = make(believing, actor, allowedNetworks=["192.0.2.0/24"])
    made_up = [("X-Forwarded-For", "192.0.2.7"), ("X-Real-Ip", "192.0.2.7")]
    assert_passed(gateway.ask(token=here.text, headers=made_up), here)
    assert_refused(gateway.ask(token=elsewhere.text, headers=made_up), BAD_CREDENTIAL)


def test_what_the_gateway_requires_is_required_of_every_token_whatever_the_query_of_the_application_says(
    gateway: Gateway, believing: Server, application: Application, actor: str, tmp_path: Path
) -> None:
    believing.grant(actor)
    whole = make(believing, actor, scopes=["deploy", GENERATE], audience=[AUDIENCE, believing.url])
    short = [
        make(believing, actor),
        make(believing, actor, scopes=[GENERATE], audience=[AUDIENCE, believing.url]),
        make(believing, actor, scopes=["deploy"], audience=[AUDIENCE, believing.url]),
        make(believing, actor, scopes=["deploy", GENERATE], audience=[AUDIENCE]),
        make(believing, actor, scopes=["deploy", GENERATE]),
        make(believing, f"{actor}-2", scopes=["deploy", GENERATE], audience=[AUDIENCE, believing.url]),
    ]
    with running(gateway.recipe, tmp_path / "requires", believing.port, application, REQUIRED) as strict:
        for query in ("", "?scope=deploy", "?watchword.scope=other", "?watchword.scope=&watchword.privilege=&x"):
            assert_passed(strict.ask(target=f"/{query}", token=whole.text), whole)
            for token in short:
                told = strict.ask(target=f"/{query}", token=token.text)
                assert (told.status, told.seen) == (403, None)
            assert_refused(strict.ask(target=f"/{query}"), NO_CREDENTIAL)


def test_nothing_passes_while_watchword_is_away(
    gateway: Gateway, token: Token, application: Application, tmp_path: Path
) -> None:
    with running(gateway.recipe, tmp_path / "away", free_port(), application) as alone:
        for sent in (token.text, None):
            told = alone.ask(token=sent)
            assert (told.status, told.seen) == (gateway.recipe.away, None)


def test_watchword_learns_the_address_of_the_client_and_not_the_one_it_makes_up(
    gateway: Gateway, believing: Server
) -> None:
    before = believing.err.stat().st_size

    def logged() -> list[str]:
        return [line for line in believing.err.read_text()[before:].splitlines() if '"/auth"' in line]

    gateway.ask(headers=[("X-Forwarded-For", "192.0.2.7"), ("X-Real-Ip", "192.0.2.7"), ("Forwarded", "for=192.0.2.7")])
    until(lambda: bool(logged()), "the refusal is logged")
    assert [json.loads(line)["client"] for line in logged()] == [CLIENT]


def test_five_hundred_requests_on_32_connections_are_each_answered_right(gateway: Gateway, believing: Server) -> None:
    live = [make(believing, f"urn:li:corpuser:load-{gateway.recipe.name}-{n}") for n in range(5)]
    dead = make(believing, f"urn:li:corpuser:load-{gateway.recipe.name}-dead")
    believing.revoke(dead.id)
    asking = [*live, *live, *live, dead, None]
    right: list[int] = []

    def ask(first: int) -> None:
        with closing(gateway.connect()) as connection:
            for number in range(first, REQUESTS, CONNECTIONS):
                token = asking[number % len(asking)]
                told = gateway.ask(token=token.text if token else None, on=connection)
                whose = told.seen and told.seen.named("X-Auth-Urn")
                if (told.status, whose) == ((200, [token.urn]) if token in live else (401, None)):
                    right.append(number)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == list(range(REQUESTS))
