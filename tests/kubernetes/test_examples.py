"""The examples of deploy/kubernetes ask Watchword as the tested recipes of docs/how-to/gateways do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.gateways import RECIPES, Application, GatewayAnswer, running
from tests.support.pages import ROOT
from tests.support.server import ADMIN, Server

EXAMPLES = ROOT / "deploy/kubernetes"
WATCHWORD = "http://watchword.watchword.svc.cluster.local:8080"
IDENTITY = ["X-Auth-Urn", "X-Auth-Token-Id", "X-Auth-Scopes"]
ACTOR = ["X-Service-Actor", "X-DataHub-Actor"]
PATHS = (
    "/",
    "/a/b?x=1",
    "/?a=1&watchword.privilege=NONE",
    "/?watchword.status=500",
    "/../metrics",
    "/%2e%2e/config",
    "/#x",
    "/health",
)


def example(name: str, kind: str) -> dict[str, Any]:
    """The parts of this kind by their names."""
    parts = yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())
    return {part["metadata"]["name"]: part for part in parts if part["kind"] == kind}


def recipe(name: str) -> Any:
    (found,) = (one for one in RECIPES if one.name.lower() == name)
    return found


def test_traefik_middlewares_are_those_of_the_recipe() -> None:
    wanted = yaml.safe_load(recipe("traefik").block("yaml"))["http"]
    wanted["middlewares"]["watchword"]["forwardAuth"]["address"] = f"{WATCHWORD}/auth"
    parts = example("traefik", "Middleware")
    assert {name: part["spec"] for name, part in parts.items()} == wanted["middlewares"]
    (route,) = example("traefik", "IngressRoute")["application"]["spec"]["routes"]
    assert [one["name"] for one in route["middlewares"]] == wanted["routers"]["application"]["middlewares"]


def test_ingress_nginx_takes_every_header_of_identity_from_the_answer() -> None:
    """The controller sets each of these headers to that of the answer; nginx sends no header without a value."""
    annotations = example("ingress-nginx", "Ingress")["application"]["metadata"]["annotations"]
    named = {name.rpartition("/")[2]: text for name, text in annotations.items()}
    assert named["auth-url"] == f"{WATCHWORD}/auth"
    assert named["auth-response-headers"].split(",") == [*IDENTITY, *ACTOR, "Authorization"]


def test_envoy_gateway_removes_and_copies_the_headers_of_the_recipe() -> None:
    asked = example("envoy-gateway", "SecurityPolicy")["application"]["spec"]["extAuth"]
    assert asked["failOpen"] is False
    assert asked["http"]["headersToBackend"] == [name.lower() for name in IDENTITY]
    early = example("envoy-gateway", "ClientTrafficPolicy")["application"]["spec"]["headers"]["earlyRequestHeaders"]
    assert early["remove"] == [name.lower() for name in IDENTITY + ACTOR]
    (rule,) = example("envoy-gateway", "HTTPRoute")["application"]["spec"]["rules"]
    assert rule["filters"][0]["requestHeaderModifier"]["remove"] == ["authorization"]


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "revoked"])
def test_path_of_a_request_changes_nothing_at_envoy_gateways_address(
    server: Server, actor: str, tmp_path: Path, is_live: bool
) -> None:
    """Envoy Gateway makes a `path_prefix` of it, to which Envoy appends the client's path and query."""
    prefix = example("envoy-gateway", "SecurityPolicy")["application"]["spec"]["extAuth"]["http"]["path"]
    made = server.create(ADMIN, of=actor)
    if not is_live:
        server.revoke(made["metadata"]["id"])

    def change(text: str) -> str:
        return text.replace("path_override: /auth?watchword.status=200", f"path_prefix: {prefix}")

    def is_right(path: str, answer: GatewayAnswer) -> bool:
        if "watchword.privilege" in path and is_live:  # a client may require more of its own request
            return (answer.status, answer.seen) == (403, None)
        if not is_live:
            return answer.status in {400, 401} and answer.seen is None
        return answer.status == 400 or (answer.seen is not None and answer.seen.named("X-Auth-Urn") == [actor])

    with (
        Application() as application,
        running(recipe("envoy"), tmp_path / "envoy", server.port, application, change=change) as gateway,
    ):
        answers = {path: gateway.ask(target=path, token=made["accessToken"]) for path in PATHS}
    assert [(path, one.status, one.seen) for path, one in answers.items() if not is_right(path, one)] == []
    assert answers["/a/b?x=1"].status == (200 if is_live else 401)
