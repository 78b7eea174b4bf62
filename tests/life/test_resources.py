"""Gateways of other services ask at `/resources/<name>/auth`, whatever a client puts into the query."""

import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.in_process import watchword
from tests.life.holding import HeldToken, LifecycleClient
from tests.support.server import ADMIN, GENERATE, GraphQLRefused
from tests.support.waiting import until

APPLY = """mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) {
  unchanged undeclaredResources resources { change name before after } } }"""
LIST = "{ listResources { name id set } }"
_numbers = itertools.count()


class Declared:
    """A resource of a set of its own."""

    def __init__(self, life: LifecycleClient) -> None:
        number = next(_numbers)
        self.life, self.set, self.name = life, f"resources-{number}", f"orders-{number}"
        self.id = f"https://orders-{number}.example"
        self.apply({"name": self.name, "id": self.id})

    def apply(self, *resources: dict[str, str], **how: Any) -> Any:
        wanted = {"set": self.set, "resources": list(resources), **how}
        return self.life.ask(APPLY, {"input": wanted})["applyPolicies"]

    def ask(self, held: HeldToken | str, rest: str = "", name: str | None = None) -> httpx.Response:
        token = held if isinstance(held, str) else held.token
        path = f"/resources/{name or self.name}/auth{rest}"
        return self.life.server.http.get(path, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def orders(lives: LifecycleClient) -> Declared:
    return Declared(lives)


def outcome(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json()["error"]["reason"] if answer.content else None


def test_query_of_a_client_never_replaces_the_audience_that_the_path_asks_for(orders: Declared) -> None:
    life = orders.life
    for_orders = life.create(ADMIN, audience=[orders.id])
    for_others = life.create(ADMIN, audience=["https://else.example"])
    for own in (f"?watchword.audience={orders.id}", f"?watchword.audience={orders.id}&watchword.audience=x", ""):
        assert outcome(life.auth(for_orders, own)) == (403, "wrong_audience")
    for own in ("?watchword.audience=https://else.example", f"?watchword.audience={life.server.url}", ""):
        assert outcome(orders.ask(for_others, own)) == (401, "wrong_resource")
    both = life.create(ADMIN, audience=["https://else.example", life.server.url])
    assert life.auth(both, "?watchword.audience=https://else.example").status_code == 204
    assert outcome(life.auth(both, "?watchword.audience=https://third.example")) == (403, "wrong_audience")


def test_gateway_of_a_resource_accepts_only_tokens_for_it(orders: Declared) -> None:
    life = orders.life
    right = life.create(ADMIN, audience=[orders.id])
    for rest in ("", "/", "/the/path/of/the/application", "?watchword.status=200", f"?watchword.audience={orders.id}"):
        answer = orders.ask(right, rest)
        assert answer.status_code in (200, 204)
        assert (answer.headers["x-auth-urn"], answer.headers["x-auth-token-id"]) == (ADMIN, right.id)
    for wrong in (life.create(ADMIN), life.create(ADMIN, audience=[life.server.url])):
        answer = orders.ask(wrong)
        assert outcome(answer) == (401, "wrong_resource")
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    limited = life.create(ADMIN, audience=[orders.id], scopes=["orders:read"])
    assert orders.ask(limited, "?watchword.scope=orders:read").status_code == 204
    assert outcome(orders.ask(limited, "?watchword.scope=orders:write")) == (403, "missing_scope")
    assert outcome(orders.ask(right, f"?watchword.privilege={GENERATE}")) == (403, "wrong_audience")


def test_unknown_resource_is_told_only_to_authenticated_callers(orders: Declared) -> None:
    right = orders.life.create(ADMIN, audience=[orders.id])
    for name in ("no-such-resource", orders.name):
        assert orders.ask("made.up.token", name=name).status_code == 401
        assert orders.life.server.http.get(f"/resources/{name}/auth").status_code == 401
    assert outcome(orders.ask(right, name="no-such-resource")) == (403, "unknown_resource")
    assert outcome(orders.ask(right, name="%2e%2e")) == (403, "unknown_resource")
    for path in ("/resources", f"/resources/{orders.name}", f"/resources/{orders.name}/authx"):
        assert orders.life.server.http.get(path).status_code == 401


def test_declared_resources_are_applied_listed_and_pruned(orders: Declared) -> None:
    life, one = orders.life, {"name": orders.name, "id": orders.id}
    assert orders.apply(one) == {"unchanged": 1, "undeclaredResources": [], "resources": []}
    assert {**one, "set": orders.set} in life.ask(LIST)["listResources"]
    token = life.create(ADMIN, audience=[orders.id])
    moved = {"name": orders.name, "id": f"{orders.id}/v2"}
    (change,) = orders.apply(moved)["resources"]
    assert (change["change"], change["before"]["id"], change["after"]["id"]) == ("UPDATE", orders.id, moved["id"])
    assert outcome(orders.ask(token)) == (401, "wrong_resource")
    other = {"name": f"{orders.name}-b", "id": orders.id}
    orders.apply(moved, other)
    orders.apply({**moved, "id": other["id"]}, {**other, "id": moved["id"]})  # they swap
    assert orders.ask(token).status_code == 204
    assert orders.apply()["undeclaredResources"] == [orders.name, other["name"]]
    orders.apply(prune=True)
    assert outcome(orders.ask(token)) == (403, "unknown_resource")
    targets = {"input": {"targets": [orders.name]}}
    listed = life.ask(
        "query ($input: ListEventsInput!) { listEvents(input: $input) { events { action detail } } }", targets
    )["listEvents"]["events"]
    assert [event["action"] for event in reversed(listed)] == [
        "resource.created", "resource.updated", "resource.updated", "resource.deleted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ([{"name": "Orders", "id": "x"}], "resources[0].name"),
        ([{"name": "a/auth", "id": "x"}], "resources[0].name"),
        ([{"name": "a", "id": "http://orders.example"}], "resources[0].id"),
        ([{"name": "a", "id": "https://orders.example/#part"}], "resources[0].id"),
        ([{"name": "a", "id": "https://me@orders.example"}], "resources[0].id"),
        ([{"name": "a", "id": "two words"}], "resources[0].id"),
        ([{"name": "a", "id": ""}], "resources[0].id"),
        ([{"name": "a", "id": "x"}, {"name": "a", "id": "y"}], "resources[1].name"),
        ([{"name": "a", "id": "x"}, {"name": "b", "id": "x"}], "resources[1].id"),
    ],
)
def test_bad_resource_names_the_field(life: LifecycleClient, resources: list[dict[str, str]], field: str) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        life.ask(APPLY, {"input": {"set": "bad-resources", "resources": resources}})
    assert refused.value.errors[0]["extensions"]["field"] == field


def test_name_and_id_of_another_sets_resource_are_conflicts(orders: Declared) -> None:
    for taken in ({"name": orders.name, "id": "https://new.example"}, {"name": "new-name", "id": orders.id}):
        for dry_run in (True, False):
            with pytest.raises(GraphQLRefused) as refused:
                orders.apply(taken, set="another", dryRun=dry_run)
            assert refused.value.reason == "policy_declared_elsewhere"


def test_parameter_that_only_looks_like_a_requirement_is_counted_and_logged(lives: LifecycleClient) -> None:
    def counted(name: str) -> float:
        return lives.server.samples().get(f'watchword_ignored_parameters_total{{parameter="{name}"}}', 0)

    held = lives.create(ADMIN)
    before = {name: counted(name) for name in ("scope", "watchword_audience")}
    assert lives.auth(held, "?Scope=orders:read&watchword_audience=x&subscope=y&x=scope").status_code == 204
    until(lambda: all(counted(name) > number for name, number in before.items()), "both are counted")
    logged = lives.server.err
    until(lambda: all(f'"parameter":"{name}"' in logged.read_text() for name in before), "both are logged")
    assert counted("subscope") == counted("x") == 0


def test_resource_of_a_policy_file_is_diffed_applied_and_exported(life: LifecycleClient, tmp_path: Path) -> None:
    file, how = tmp_path / "policies.yaml", ("--url", life.server.url, "--as", ADMIN)
    file.write_text("set: of-file\nresources:\n  - {name: of-file, id: of-file.example}\n")
    drift = watchword("policy", "apply", str(file), "--dry-run", *how)
    assert drift.returncode == 3
    assert drift.stdout.startswith('+ resource of-file\n    name: "of-file"\n    id: "of-file.example"\n1 to create')
    assert watchword("policy", "apply", str(file), *how).returncode == 0
    exported = watchword("policy", "export", "--set", "of-file", *how).stdout
    assert "resources:\n- name: of-file\n  id: of-file.example\n" in exported
    assert watchword("policy", "apply", str(file), "--dry-run", *how).returncode == 0
    file.write_text("set: of-file\npolicies: []\n")
    assert "! resource of-file\n" in watchword("policy", "apply", str(file), "--dry-run", *how).stdout
    file.write_text("resources: [{name: Of-File, id: x}]\n")
    assert "line 1: resources[0].name must have" in watchword("policy", "apply", str(file), "--dry-run", *how).stderr
