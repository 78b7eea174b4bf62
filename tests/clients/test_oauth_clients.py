"""Authlib and PyJWT, jose and openid-client, unmodified: what services check tokens with. Keys are rotated under them.

Neither the server nor any of them is started again meanwhile.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browsing import Browser
from tests.support.clients import NODE, PROGRAMS, ClientProgram, ClientRefused, client_env, node_program
from tests.support.devices import approve
from tests.support.pages import ROOT
from tests.support.server import ADMIN, GENERATE, Server

GATEWAY = "urn:li:corpuser:gateway"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Their own server, because its keys are rotated."""
    with Server(tmp_path_factory.mktemp("issuer"), env={"WATCHWORD_DEVICE_CLIENTS": "anybody"}) as running:
        running.grant(GATEWAY, privileges=("INTROSPECT_TOKENS",))
        yield running


@pytest.fixture(scope="module")
def gateway(issuer: Server) -> str:
    token: str = issuer.create(ADMIN, of=GATEWAY)["accessToken"]
    return token


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ClientProgram]]:
    """A process for each runtime, by the names of its libraries."""
    home = tmp_path_factory.mktemp("home")
    python: list[str | Path] = [client_env("oauth") / "bin/python", PROGRAMS / "oauth.py"]
    node: list[str | Path] = [node_program(), NODE / "oauth.mjs"]
    with ClientProgram(python, home, AUTHLIB_INSECURE_TRANSPORT="1") as pythons, ClientProgram(node, home) as nodes:
        yield {"pyjwt": pythons, "authlib": pythons, "jose": nodes, "openid-client": nodes}


def rotate(server: Server, *flags: str) -> None:
    done = server.command_line("key", "rotate", *flags)
    assert done.returncode == 0, done.stderr


def fetches(server: Server) -> str:
    """Count the requests for the keys, from the server's metrics."""
    told = server.metrics().splitlines()
    (counted,) = (line for line in told if 'requests_total{route="/.well-known/jwks.json",status="200"}' in line)
    return counted


def made(server: Server, actor: str, **fields: Any) -> str:
    token: str = server.create(ADMIN, of=actor, **fields)["accessToken"]
    return token


LIBRARIES = ["pyjwt", "authlib", "jose"]


class TestByTheKeys:
    def check(
        self, talks: dict[str, ClientProgram], library: str, issuer: Server, token: str, memory: str, **options: Any
    ) -> Any:
        said = {"call": library, "issuer": issuer.url, "token": token, "memory": memory, "options": options}
        return talks[library].say(**said)["sub"]

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_cached_keys_verify_tokens_before_and_after_a_rotation(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str, library: str
    ) -> None:
        old = made(issuer, actor)
        assert self.check(talks, library, issuer, old, actor) == actor
        rotate(issuer)
        fetched = fetches(issuer)
        for token in (made(issuer, actor), old):
            assert self.check(talks, library, issuer, token, actor) == actor
        assert fetches(issuer) == fetched

    @pytest.mark.parametrize(("library", "option"), [("pyjwt", "cooldown_duration"), ("jose", "cooldownDuration")])
    def test_unknown_key_is_fetched_again(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str, library: str, option: str
    ) -> None:
        at_once = {option: 0}
        assert self.check(talks, library, issuer, made(issuer, actor), actor, **at_once) == actor
        rotate(issuer)
        rotate(issuer)
        assert self.check(talks, library, issuer, made(issuer, actor), actor, **at_once) == actor

    def test_libraries_verify_tokens_of_an_rsa_key(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str
    ) -> None:
        old = made(issuer, actor)
        rotate(issuer, "--kind", "rs256")
        rotate(issuer)
        for library in LIBRARIES:
            for token in (old, made(issuer, actor)):
                assert self.check(talks, library, issuer, token, actor) == actor
        rotate(issuer, "--kind", "eddsa")
        rotate(issuer)

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_token_for_another_audience_is_rejected_by_the_library(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str, library: str
    ) -> None:
        foreign = made(issuer, actor, audience=["https://orders.example"])
        with pytest.raises(ClientRefused):
            self.check(talks, library, issuer, foreign, actor)

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_only_introspection_detects_revocation(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str, gateway: str, library: str
    ) -> None:
        token = made(issuer, actor)
        assert issuer.http.post("/oauth2/revoke", data={"token": token}).status_code == 200
        assert self.check(talks, library, issuer, token, actor) == actor
        asked = talks["openid-client"].say(call="introspect", issuer=issuer.url, token=token, bearer=gateway)
        assert asked == {"active": False}


@pytest.mark.parametrize("library", ["authlib", "openid-client"])
class TestByAsking:
    def ask(self, talk: ClientProgram, issuer: Server, token: str, bearer: str) -> Any:
        told = talk.say(call="introspect", issuer=issuer.url, token=token, bearer=bearer)
        return told.get("body", told)

    def test_library_discovers_endpoints_from_the_metadata(
        self, issuer: Server, talks: dict[str, ClientProgram], library: str
    ) -> None:
        found = talks[library].say(call="metadata", issuer=issuer.url)
        assert found["issuer"] == issuer.url
        assert found["introspection_endpoint"] == issuer.url + "/oauth2/introspect"

    def test_introspection_sees_live_and_revoked_tokens_after_a_rotation(
        self, issuer: Server, talks: dict[str, ClientProgram], actor: str, gateway: str, library: str
    ) -> None:
        talk = talks[library]
        issuer.grant(actor, scopes=("read:orders",))
        before = made(issuer, actor, scopes=["read:orders"])
        rotate(issuer)
        for token in (before, made(issuer, actor, scopes=["read:orders"])):
            told = self.ask(talk, issuer, token, gateway)
            assert (told["active"], told["sub"], told["scope"]) == (True, actor, "read:orders")
            assert talk.say(call="revoke", issuer=issuer.url, token=token) in (None, {"status": 200, "text": ""})
            assert self.ask(talk, issuer, token, gateway) == {"active": False}

    def test_invalid_token_is_inactive_and_can_be_revoked(
        self, issuer: Server, talks: dict[str, ClientProgram], gateway: str, library: str
    ) -> None:
        assert self.ask(talks[library], issuer, "nonsense", gateway) == {"active": False}
        revoked = talks[library].say(call="revoke", issuer=issuer.url, token="nonsense")
        assert revoked in (None, {"status": 200, "text": ""})


def test_openid_client_reads_a_denial_as_the_challenge_that_it_is(
    issuer: Server, talks: dict[str, ClientProgram], actor: str
) -> None:
    with pytest.raises(ClientRefused) as refused:
        talks["openid-client"].say(call="introspect", issuer=issuer.url, token="x", bearer=made(issuer, actor))
    (challenge,) = refused.value.info
    assert challenge["scheme"] == "bearer"
    assert challenge["parameters"]["error"] == "insufficient_scope"
    assert challenge["parameters"]["scope"] == "INTROSPECT_TOKENS"


def test_authlibs_guard_lets_in_who_has_the_scope_and_tells_apart_who_has_not(
    issuer: Server, talks: dict[str, ClientProgram], actor: str, gateway: str
) -> None:
    issuer.grant(actor, scopes=("read:orders",))
    token = made(issuer, actor, scopes=["read:orders"])
    said = {"call": "protect", "issuer": issuer.url, "bearer": gateway}
    assert talks["authlib"].say(**said, token=token, scopes=["read:orders"])["sub"] == actor
    for asked, scopes, error in ((token, ["write:orders"], "insufficient_scope"), ("x", [], "invalid_token")):
        with pytest.raises(ClientRefused) as refused:
            talks["authlib"].say(**said, token=asked, scopes=scopes)
        assert refused.value.info == error


def test_openid_client_and_authlib_get_the_token_of_an_approved_terminal(
    issuer: Server, talks: dict[str, ClientProgram]
) -> None:
    node, person = talks["openid-client"], Browser(issuer).signed_in(actor=ADMIN)
    first, second, third = (node.say(call="startDevice", issuer=issuer.url, scope=GENERATE) for _ in range(3))
    for started in (first, second):
        approve(person, started)
    found = node.say(call="pollDevice", issuer=issuer.url, started=first)  # waits for the interval, then polls
    assert (found["token_type"], found["scope"]) == ("bearer", GENERATE)
    assert issuer.verify(found["access_token"]).headers["x-auth-urn"] == ADMIN
    polled = talks["authlib"].say(call="device_token", issuer=issuer.url, device_code=second["device_code"])
    assert issuer.verify(polled["access_token"]).status_code == 204
    with pytest.raises(ClientRefused) as refused:
        talks["authlib"].say(call="device_token", issuer=issuer.url, device_code=third["device_code"])
    assert refused.value.info == "authorization_pending"
    person.close()


def test_page_names_the_locked_version_of_every_library() -> None:
    page = (ROOT / "docs/how-to/check-tokens-elsewhere.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([\d.]+) \|", page, re.MULTILINE))
    locked = dict(
        re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements/clients-oauth.lock").read_text(), re.MULTILINE)
    )
    packages = json.loads((NODE / "package-lock.json").read_text())["packages"]
    locked |= {name.removeprefix("node_modules/"): what["version"] for name, what in packages.items() if name}
    assert rows == {name: locked[name] for name in ("pyjwt", "jose", "authlib", "openid-client")}
