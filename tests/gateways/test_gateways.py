"""Every gateway recipe of docs/how-to/gateways with its real program: which requests pass, with which identity."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import (
    CLIENT,
    METHODS,
    RECIPES,
    Application,
    Gateway,
    GatewayAnswer,
    Tap,
    appending,
    at_resource,
    running,
)
from tests.support.ports import free_port
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.store_file import change_store
from tests.support.waiting import until

IDENTITY = ("X-Auth-Urn", "X-Auth-Token-Id", "X-Auth-Scopes")
ACTOR = ("X-Service-Actor", "X-DataHub-Actor")
ALIASES = "_.!#$%&'*+^`|~"
"""Characters that CGI, WSGI and PHP applications read like a hyphen."""
FORGED = "forged"
LARGE = bytes(range(256)) * 20_000
REQUESTS, CONNECTIONS = 500, 32


AUDIENCE = "https://deploy.example"
REQUIRED = f"watchword.scope=deploy&watchword.audience={AUDIENCE}&watchword.privilege={GENERATE}"
APPLY = """mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) { resources { name } } }"""
STATUS_200 = "watchword.status=200"


@dataclass(frozen=True)
class Token:
    id: str
    urn: str
    text: str
    scopes: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def trusting_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that trusts every header from this machine, so a gateway that passes a forged one is detected."""
    trust = ("--trusted-proxies", "127.0.0.1/32", "--trusted-peers", "127.0.0.0/8")
    with Server(tmp_path_factory.mktemp("believing"), *trust) as server:
        yield server


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    with Application() as listening:
        yield listening


@pytest.fixture(scope="module")
def tap(trusting_server: Server) -> Iterator[Tap]:
    with Tap(trusting_server.port) as passing:
        yield passing


@pytest.fixture(scope="module", params=RECIPES, ids=lambda recipe: recipe.name)
def gateway(
    request: pytest.FixtureRequest, tap: Tap, application: Application, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateways") / request.param.name
    with running(request.param, folder, tap.port, application) as listening:
        yield listening


@pytest.fixture
def token(trusting_server: Server, actor: str) -> Token:
    return create_token(trusting_server, actor)


def create_token(server: Server, actor: str, **limits: Any) -> Token:
    made = server.create(ADMIN, of=actor, **limits)
    return Token(made["metadata"]["id"], actor, made["accessToken"], tuple(limits.get("scopes", ())))


def assert_passed(answer: GatewayAnswer, token: Token) -> None:
    """The application got the identity headers once and no other identity."""
    assert (answer.status, answer.seen is not None) == (200, True)
    assert answer.seen is not None
    urn, token_id, scopes = (answer.seen.named(name) for name in IDENTITY)
    assert (urn, token_id) == ([token.urn], [token.id])
    assert sorted("".join(scopes).split()) == sorted(token.scopes)
    assert len(scopes) <= 1
    assert [answer.seen.named(name) for name in (*ACTOR, "Authorization")] == [[], [], []]


def assert_rejected(answer: GatewayAnswer, challenge: str) -> None:
    assert (answer.status, answer.seen) == (401, None)
    assert (answer.header("WWW-Authenticate") or "").startswith(challenge)


NO_CREDENTIAL = 'Bearer realm="watchword"'
BAD_CREDENTIAL = 'Bearer realm="watchword", error="invalid_token"'


def test_request_without_token_is_rejected(gateway: Gateway) -> None:
    answer = gateway.ask()
    assert_rejected(answer, NO_CREDENTIAL)
    assert "error=" not in (answer.header("WWW-Authenticate") or "")


def test_invalid_token_is_rejected(gateway: Gateway) -> None:
    assert_rejected(gateway.ask(token="made.up.token"), BAD_CREDENTIAL)


def test_live_token_passes_with_its_identity(gateway: Gateway, token: Token) -> None:
    assert_passed(gateway.ask(token=token.text), token)


def test_expired_token_is_rejected_by_the_gateway(gateway: Gateway, trusting_server: Server, token: Token) -> None:
    change_store(trusting_server, "UPDATE tokens SET expires_at = 1000 WHERE id = ?", token.id)
    assert_rejected(gateway.ask(token=token.text), BAD_CREDENTIAL)


def test_token_revoked_between_requests_is_rejected(gateway: Gateway, trusting_server: Server, token: Token) -> None:
    with closing(gateway.connect()) as connection:
        assert_passed(gateway.ask(token=token.text, on=connection), token)
        trusting_server.revoke(token.id)
        assert_rejected(gateway.ask(token=token.text, on=connection), BAD_CREDENTIAL)


def test_two_authorization_headers_are_rejected(gateway: Gateway, token: Token) -> None:
    good, bad = ("Authorization", f"Bearer {token.text}"), ("Authorization", "Bearer made-up")
    for both in ((good, bad), (bad, good), (good, good)):
        answer = gateway.ask(headers=both)
        assert (answer.status in (400, 401), answer.seen) == (True, None)


def test_request_for_any_host_needs_a_token(gateway: Gateway, token: Token) -> None:
    host = [("Host", "application.example")]
    assert_rejected(gateway.ask(headers=host), NO_CREDENTIAL)
    assert_passed(gateway.ask(headers=host, token=token.text), token)


def spellings(name: str) -> list[str]:
    """Return the name twice, and the spellings that applications read as the same name: another character for one
    hyphen or for all.
    """
    ends = [name[::-1].replace("-", sign, 1)[::-1] for sign in ALIASES]
    return [name, name, *ends, *(name.replace("-", sign, n) for sign in ALIASES for n in (1, -1))]


@pytest.mark.parametrize("name", IDENTITY)
def test_forged_identity_headers_do_not_reach_the_application(gateway: Gateway, token: Token, name: str) -> None:
    forged = [(spelled, FORGED) for spelled in spellings(name)]
    assert_passed(gateway.ask(token=token.text, headers=forged), token)
    assert_rejected(gateway.ask(headers=forged), NO_CREDENTIAL)


def test_connection_header_does_not_remove_the_identity(gateway: Gateway, token: Token) -> None:
    for name in IDENTITY:
        assert_passed(gateway.ask(token=token.text, headers=[("Connection", f"keep-alive, {name}")]), token)


@pytest.mark.parametrize("name", ACTOR)
def test_forged_actor_header_reaches_neither_watchword_nor_the_application(
    gateway: Gateway, token: Token, tap: Tap, name: str
) -> None:
    tap.heard.clear()
    forged = [(name, ADMIN), ("Cookie", "session=the-application's")]
    assert_rejected(gateway.ask(headers=forged), NO_CREDENTIAL)
    assert_passed(gateway.ask(token=token.text, headers=forged), token)
    heads = tap.heads()
    assert len(heads) == 2
    assert [head for head in heads if name.lower() in head or "cookie" in head] == []


def test_application_query_is_not_sent_to_watchword(gateway: Gateway, token: Token, tap: Tap) -> None:
    tap.heard.clear()
    target = (
        "/a%20b/c?scope=x&watchword.scope=deploy&watchword.privilege=NONE&watchword.audience=x&watchword.status=500"
    )
    answer = gateway.ask(target=target, token=token.text)
    assert_passed(answer, token)
    assert answer.seen is not None
    assert answer.seen.target == target
    (head,) = tap.heads()
    asked = head.splitlines()[0].split()[1]
    assert asked.startswith("/auth")
    assert "scope" not in asked


@pytest.mark.parametrize("method", METHODS)
def test_any_method_passes_with_its_body(gateway: Gateway, token: Token, method: str) -> None:
    for body in ({}, {"body": b"a body"}, {"chunks": [b"a ", b"body"]}):
        answer = gateway.ask(method, token=token.text, **body)
        assert_passed(answer, token)
        assert answer.seen is not None
        assert (answer.seen.method, answer.seen.size) == (method, 6 if body else 0)
        assert_rejected(gateway.ask(method, **body), NO_CREDENTIAL)


def test_large_body_passes_only_with_a_token(gateway: Gateway, token: Token) -> None:
    answer = gateway.ask("POST", token=token.text, body=LARGE)
    assert_passed(answer, token)
    assert answer.seen is not None
    assert answer.seen.digest == hashlib.sha256(LARGE).hexdigest()
    assert gateway.ask("POST", body=b"", token="made-up").seen is None
    assert_rejected(gateway.ask("POST", chunks=[LARGE]), NO_CREDENTIAL)


def test_expect_100_continue_is_answered(gateway: Gateway, token: Token) -> None:
    expecting = [("Expect", "100-continue")]
    with closing(gateway.connect()) as connection:
        probe, head = gateway.head("POST", "/", token=token.text, headers=expecting, body=b"a body")
        connection.sendall(head)
        assert connection.recv(1024).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"a body")
        answer = gateway.answer(connection, probe, "POST")
    assert_passed(answer, token)
    assert answer.seen is not None
    assert answer.seen.size == 6
    with closing(gateway.connect()) as connection:
        probe, head = gateway.head("POST", "/", token=None, headers=expecting, body=b"a body")
        connection.sendall(head)
        assert_rejected(gateway.answer(connection, probe, "POST"), NO_CREDENTIAL)


def test_forged_client_address_does_not_match_allowed_networks(
    gateway: Gateway, trusting_server: Server, actor: str
) -> None:
    here = create_token(trusting_server, actor, allowedNetworks=[f"{CLIENT}/32"])
    elsewhere = create_token(trusting_server, actor, allowedNetworks=["192.0.2.0/24"])
    made_up = [("X-Forwarded-For", "192.0.2.7"), ("X-Real-Ip", "192.0.2.7")]
    assert_passed(gateway.ask(token=here.text, headers=made_up), here)
    assert_rejected(gateway.ask(token=elsewhere.text, headers=made_up), BAD_CREDENTIAL)


def test_application_query_does_not_change_gateway_requirements(
    gateway: Gateway, trusting_server: Server, application: Application, actor: str, tmp_path: Path
) -> None:
    trusting_server.grant(actor, scopes=("deploy",))
    trusting_server.grant(f"{actor}-2", privileges=(), scopes=("deploy",))
    whole = create_token(trusting_server, actor, scopes=["deploy", GENERATE], audience=[AUDIENCE, trusting_server.url])
    short = [
        create_token(trusting_server, actor),
        create_token(trusting_server, actor, scopes=[GENERATE], audience=[AUDIENCE, trusting_server.url]),
        create_token(trusting_server, actor, scopes=["deploy"], audience=[AUDIENCE, trusting_server.url]),
        create_token(trusting_server, actor, scopes=["deploy", GENERATE], audience=[AUDIENCE]),
        create_token(trusting_server, actor, scopes=["deploy", GENERATE]),
        create_token(trusting_server, f"{actor}-2", scopes=["deploy"], audience=[AUDIENCE, trusting_server.url]),
    ]
    with running(gateway.recipe, tmp_path / "requires", trusting_server.port, application, REQUIRED) as strict:
        for query in ("", "?scope=deploy", "?watchword.scope=other", "?watchword.scope=&watchword.privilege=&x"):
            assert_passed(strict.ask(target=f"/{query}", token=whole.text), whole)
            for token in short:
                answer = strict.ask(target=f"/{query}", token=token.text)
                assert (answer.status, answer.seen) == (403, None)
            assert_rejected(strict.ask(target=f"/{query}"), NO_CREDENTIAL)


@pytest.fixture(scope="module")
def resource(trusting_server: Server) -> str:
    """The name of a resource whose id is AUDIENCE."""
    declared = {"set": "gateways", "resources": [{"name": "deploy", "id": AUDIENCE}]}
    trusting_server.ask(APPLY, {"input": declared}, actor=ADMIN)
    return "deploy"


@pytest.mark.parametrize("changed", [str, appending], ids=["recipe", "appending"])
def test_client_cannot_widen_the_audience_of_a_gateway(
    gateway: Gateway,
    trusting_server: Server,
    application: Application,
    actor: str,
    tmp_path: Path,
    resource: str,
    changed: Callable[[str], str],
) -> None:
    """In the recipe's form, and where the gateway sends the client's query, and Envoy its path too."""
    right = create_token(trusting_server, actor, audience=[AUDIENCE])
    others = [
        create_token(trusting_server, actor, audience=["https://else.example"]),
        create_token(trusting_server, actor),
    ]

    def change(text: str) -> str:
        return changed(at_resource(text, resource))

    with running(gateway.recipe, tmp_path / "resource", trusting_server.port, application, "", change) as one:
        for target in (
            f"/?{STATUS_200}",
            f"/a/../b//auth?{STATUS_200}&x",
            f"/?{STATUS_200}&watchword.audience={AUDIENCE}",
        ):
            assert_passed(one.ask(target=target, token=right.text), right)
        widening = f"watchword.audience=https://else.example&watchword.audience={trusting_server.url}"
        for target in (f"/?{STATUS_200}", f"/auth?{STATUS_200}&{widening}", f"/../../auth?{STATUS_200}"):
            for token in others:
                answer = one.ask(target=target, token=token.text)
                assert (answer.status in (400, 401, 403), answer.seen) == (True, None)
            assert one.ask(target=target).seen is None


def test_requirement_without_its_prefix_is_reported(
    gateway: Gateway, trusting_server: Server, application: Application, token: Token, tmp_path: Path
) -> None:
    """A slip in the gateway's own configuration: it requires nothing, which metric, log and `doctor` show."""
    name = 'watchword_ignored_parameters_total{parameter="scope"}'
    before = trusting_server.samples().get(name, 0)
    with running(gateway.recipe, tmp_path / "slip", trusting_server.port, application, "scope=deploy") as open_gateway:
        assert_passed(open_gateway.ask(token=token.text), token)
    until(lambda: trusting_server.samples().get(name, 0) > before, "it is counted")
    until(lambda: "ignored parameter at /auth" in trusting_server.err.read_text(), "it is logged")
    assert "had the parameter scope, which requires nothing" in trusting_server.command_line("doctor").stdout


def test_requests_are_rejected_while_watchword_is_down(
    gateway: Gateway, token: Token, application: Application, tmp_path: Path
) -> None:
    with running(gateway.recipe, tmp_path / "away", free_port(), application) as alone:
        for sent in (token.text, None):
            answer = alone.ask(token=sent)
            assert (answer.status, answer.seen) == (gateway.recipe.away, None)


def test_watchword_logs_the_real_client_address(gateway: Gateway, trusting_server: Server) -> None:
    def clients() -> list[str]:
        lines = [json.loads(line) for line in trusting_server.err.read_text().splitlines()]
        return [line["client"] for line in lines if line.get("path") == "/auth"]

    # No other test asks from this address, so lines that are logged late are not mistaken for this one.
    address = f"127.0.2.{1 + RECIPES.index(gateway.recipe)}"
    forged = [("X-Forwarded-For", "192.0.2.7"), ("X-Real-Ip", "192.0.2.7"), ("Forwarded", "for=192.0.2.7")]
    with closing(gateway.connect(address)) as connection:
        gateway.ask(headers=forged, on=connection)
    until(lambda: address in clients(), "the refusal is logged with the client's address")
    assert clients().count(address) == 1
    assert "192.0.2.7" not in clients()


def test_500_requests_on_32_connections_get_the_right_answers(gateway: Gateway, trusting_server: Server) -> None:
    live = [create_token(trusting_server, f"urn:li:corpuser:load-{gateway.recipe.name}-{n}") for n in range(5)]
    dead = create_token(trusting_server, f"urn:li:corpuser:load-{gateway.recipe.name}-dead")
    trusting_server.revoke(dead.id)
    asking = [*live, *live, *live, dead, None]
    right: list[int] = []

    def ask(first: int) -> None:
        with closing(gateway.connect()) as connection:
            for number in range(first, REQUESTS, CONNECTIONS):
                token = asking[number % len(asking)]
                answer = gateway.ask(token=token.text if token else None, on=connection)
                whose = answer.seen and answer.seen.named("X-Auth-Urn")
                if (answer.status, whose) == ((200, [token.urn]) if token in live else (401, None)):
                    right.append(number)

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == list(range(REQUESTS))


def test_nginx_log_has_the_id_of_the_token_and_not_its_text(
    tap: Tap, application: Application, token: Token, tmp_path: Path
) -> None:
    (recipe,) = (one for one in RECIPES if one.name == "nginx")
    with running(recipe, tmp_path / "nginx", tap.port, application) as listening:
        assert listening.ask(target="/orders?secret=1", token=token.text).status == 200
        log = tmp_path / "nginx" / "access.log"
        until(lambda: "/orders" in log.read_text(), "the request is logged")
        assert f" 200 GET /orders {token.id} {token.urn}\n" in log.read_text()
        assert token.text not in log.read_text()
        assert "secret" not in log.read_text()
