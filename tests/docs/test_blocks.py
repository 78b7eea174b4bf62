"""The shell blocks of the documentation run unchanged against a real server and print what the pages show."""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.support.clients import client_env
from tests.support.gateways import PAGE as GATEWAYS
from tests.support.gateways import RECIPES
from tests.support.pages import POSTGRES_PORT, ROOT, blocks, environment, forking, kinds, pages, run_blocks, unending
from tests.support.ports import free_port
from tests.support.postgres import DEBIAN, USER, own_cluster
from tests.support.postgres import programs as postgres_programs
from tests.support.server import Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs/tutorial/first-token.md"
PROTECT = ROOT / "docs/tutorial/protect-a-service.md"
COMING = ROOT / "docs/how-to/come-from-datahub.md"
CLIENTS = ROOT / "docs/how-to/datahub-clients.md"
MOVE = ROOT / "docs/how-to/move-to-postgresql.md"
GRAPHQL = ROOT / "docs/how-to/use-graphql.md"
SEVERAL = ROOT / "docs/how-to/several-instances.md"
SIGN_IN = ROOT / "docs/how-to/sign-in.md"
WEBHOOKS = ROOT / "docs/how-to/webhooks.md"
SNIPPETS = (GATEWAYS, ROOT / "docs/how-to/kubernetes.md")
SIEM = ROOT / "docs/how-to/send-events-to-a-siem.md"
FAILOVER = ROOT / "docs/how-to/high-availability.md"
RUN = [
    README,
    TUTORIAL,
    PROTECT,
    CLIENTS,
    COMING,
    GRAPHQL,
    ROOT / "docs/how-to/audit.md",
    SIEM,
    ROOT / "docs/how-to/mail.md",
    WEBHOOKS,
    ROOT / "docs/how-to/backup.md",
    ROOT / "docs/how-to/check-tokens-elsewhere.md",
    ROOT / "docs/how-to/deploy.md",
    MOVE,
    SEVERAL,
    ROOT / "docs/how-to/clean-up-a-time-series.md",
    ROOT / "docs/how-to/keep-time-series-short.md",
    ROOT / "docs/how-to/policies.md",
    ROOT / "docs/how-to/actors.md",
    ROOT / "docs/how-to/command-line.md",
    ROOT / "docs/how-to/device-login.md",
    ROOT / "docs/how-to/python-client.md",
    ROOT / "docs/how-to/protect-an-asgi-app.md",
    ROOT / "docs/how-to/rotate-tokens.md",
    ROOT / "docs/how-to/limit-tokens.md",
    ROOT / "docs/how-to/service-accounts.md",
    ROOT / "docs/how-to/revoke-many-tokens.md",
    ROOT / "docs/how-to/find-leaked-tokens.md",
    ROOT / "docs/how-to/rotate-keys.md",
    ROOT / "docs/how-to/run-it.md",
    ROOT / "docs/reference/operations.md",
    ROOT / "docs/reference/retention.md",
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_blocks_of_a_page_print_what_the_page_shows(
    page: Path, make_server: Callable[..., Server], tmp_path: Path
) -> None:
    folder = tmp_path / "clone"
    server = make_server("--data-dir", str(folder / "watchword-data"), folder=folder)
    programs = [client_env("datahub") / "bin"] if page == CLIENTS else []
    if page in {SEVERAL, PROTECT}:
        programs.append(Path(need_program("nginx", "nginx-light")).parent)
    if page == MOVE:
        server.stop()
    with postgres_of(page, tmp_path) as database:
        if database:
            programs.append(postgres_programs(DEBIAN))
        for block, output in run_blocks(page, server, *programs, **database):
            if block.shown is not None:
                assert block.prints(output), f"{block.code}\nshows:\n{block.shown}\nbut printed:\n{output}"
        for number, command in enumerate(line for line in unending(page) if not line.startswith("make ")):
            here = command.replace(POSTGRES_PORT, database.get("PGPORT", POSTGRES_PORT))
            start_and_stop(here, folder, folder / f"unending{number}.log")


@contextmanager
def postgres_of(page: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Start a PostgreSQL server for a page that uses one; yield the variables by which clients find it."""
    if not any("postgresql://" in block.code for block in blocks(page)):
        yield {}
        return
    with own_cluster(folder / "postgres") as cluster:
        yield {"PGHOST": "127.0.0.1", "PGPORT": str(cluster.port), "PGUSER": USER}


def start_and_stop(command: str, folder: Path, log: Path) -> None:
    """Start a command that runs until it is stopped; check that it prints its address and exits with 0."""
    port = str(free_port())
    assert command.startswith("watchword serve"), f"{command} exits by itself: mark its block sh"
    here = re.sub(r"--port \d+", "", command).replace("0.0.0.0", "127.0.0.1")
    flags = f"--port {port}" + ("" if "--data-dir" in here else f" --data-dir unending-{port}")
    with log.open("wb") as out:
        started = subprocess.Popen(
            ["bash", "-c", f"exec {here} {flags}"], cwd=folder, env=forking(environment()), stdout=out, stderr=out
        )
    try:
        until(
            lambda: " listens at " in log.read_text() or started.poll() is not None, f"{command} says where it listens"
        )
        assert started.poll() is None, f"{command}: {log.read_text()}"
        started.send_signal(signal.SIGTERM)
        assert started.wait(SECONDS) == 0
    finally:
        started.kill()
        started.wait()


@pytest.mark.parametrize("page", [README, TUTORIAL, GRAPHQL], ids=lambda page: page.name)
def test_every_block_of_the_first_pages_shows_its_output(page: Path) -> None:
    assert [block.code for block in blocks(page) if block.shown is None] == []


README_STORY = ["You lack the privilege", "1 created", "ACTIVE", "Revoked"]
GRAPHQL_STORY = ['"accessToken"', '"total":1', "204", '"revokeAccessToken":true', "token_revoked"]


@pytest.mark.parametrize(
    ("page", "story"), [(README, README_STORY), (GRAPHQL, GRAPHQL_STORY)], ids=["README.md", "use-graphql.md"]
)
def test_first_examples_lead_from_a_created_token_to_its_rejection(page: Path, story: list[str]) -> None:
    shown = [block.shown or "" for block in blocks(page)]
    places = [next(i for i, text in enumerate(shown) if word in text) for word in story]
    assert places == sorted(set(places))
    assert "token_revoked" in shown[-1]
    assert shown[-1].endswith("401")


def test_readme_shows_a_denial_then_a_policy_then_the_same_command_succeeding() -> None:
    found = blocks(README)
    denied = next(i for i, block in enumerate(found) if "You lack the privilege" in (block.shown or ""))
    command = found[denied].code.splitlines()[-1].partition(" || ")[0]
    assert command.startswith("watchword token create")
    assert (found[denied + 1].shown or "").startswith("1 created")
    assert f"$({command})" in found[denied + 2].code
    assert "lack" not in (found[denied + 2].shown or "lack")


def test_first_tutorial_shows_a_revoked_token_rejected_and_logged() -> None:
    *_, refused, logged, _ = blocks(TUTORIAL)
    assert "/auth" in refused.code
    assert "token_revoked" in (refused.shown or "")
    assert (refused.shown or "").endswith("401")
    assert logged.code.startswith("watchword event list")
    assert "token_revoked" in (logged.shown or "").splitlines()[1]


def test_first_tutorial_ends_with_a_dry_run_before_the_real_run() -> None:
    *_, last = blocks(TUTORIAL)
    assert last.code.index("--dry-run") < last.code.index("--yes")
    assert "To delete" in (last.shown or "")
    assert "Post-check passed" in (last.shown or "").splitlines()[-1]


def test_gateway_tutorial_uses_the_nginx_recipe_with_a_required_scope() -> None:
    (written,) = [block.code for block in blocks(PROTECT) if "nginx.conf <<" in block.code]
    recipe = next(recipe for recipe in RECIPES if recipe.name == "nginx").block("nginx")
    assert recipe.replace("/auth;", "/auth?watchword.scope=reports:read;") in written


def test_gateway_tutorial_shows_a_call_accepted_and_then_rejected() -> None:
    found = blocks(PROTECT)
    for token, ends, status in (("alice.token", "policy delete", "403"), ("nightly.token", "token revoke", "401")):
        call = f"call {token}"
        passed = next(i for i, block in enumerate(found) if block.code.splitlines()[-1] == call)
        ended = next(i for i, block in enumerate(found) if ends in block.code)
        assert passed < ended
        assert "The report, for urn:" in (found[passed].shown or "")
        assert f"{call} | grep title" in found[ended].code
        assert f"<title>{status} " in (found[ended].shown or "")


def test_gateway_tutorial_shows_a_scope_that_no_policy_grants_refused() -> None:
    (refused,) = [block for block in blocks(PROTECT) if "--as bob ||" in block.code]
    assert (refused.shown or "").startswith("watchword: No policy grants the scope reports:read to urn:")
    assert "<title>403 " in (refused.shown or "")


def test_every_page_with_shell_blocks_is_run() -> None:
    makes = {page for page in pages() if all(line.startswith("make ") for line in unending(page))}
    assert {page for page in pages() if blocks(page) or page not in makes} == set(RUN)


def test_every_block_has_a_tested_kind() -> None:
    tried = {"sh", "text", "console", "json"}
    also = {CLIENTS: {"python", "js"}}  # tests/clients/test_clients_page.py
    also |= {FAILOVER: {"ini", "yaml", "sql", "properties", "haproxy", "bash"}}  # tests/linear/test_failover.py
    also |= {COMING: {"bash"}}  # tests/datahub/test_import_databases.py
    also |= {SIGN_IN: {"bash"}}  # tests/support/keycloak.py
    also |= {WEBHOOKS: {"python", "js", "yaml"}}  # tests/webhooks/test_webhooks.py, tests/clients/node/webhook.mjs
    also |= {SIEM: {"yaml"}}  # only parsed: no package registry has Vector or Fluent Bit
    also |= {ROOT / "docs/how-to/alerts.md": {"yaml"}}  # tests/packages/test_alerts.py
    also |= {page: {"yaml"} for page in SNIPPETS}  # parsed below
    also |= {GATEWAYS: {"bash"} | {recipe.kind for recipe in RECIPES}}  # tests/gateways
    assert [page for page in pages() if kinds(page) - tried - also.get(page, set())] == []


def test_every_make_target_in_the_documentation_exists() -> None:
    named = {line for page in pages() for line in unending(page) if line.startswith("make ")}
    assert len(named) > 5
    for line in sorted(named):
        ran = subprocess.run(["bash", "-c", f"{line} -n"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_recipes_for_collectors_are_valid_yaml() -> None:
    assert yaml_keys(SIEM) == [{"sources", "transforms", "sinks"}, {"parsers", "pipeline"}]


def test_snippets_are_valid_yaml() -> None:
    assert [yaml_keys(page) for page in SNIPPETS] == [
        [{"global", "entryPoints", "providers", "http"}, {"static_resources"}, {"set", "resources"}],
        [
            {"publicUrl", "settings"},
            {"publicUrl", "ingress"},
            {"publicUrl", "httpRoute"},
            {"settings", "networkPolicy"},
            {"serviceMonitor", "networkPolicy"},
        ],
    ]


def yaml_keys(page: Path) -> list[set[str]]:
    found = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [set(yaml.safe_load(block)) for block in found]


def test_every_json_block_is_valid_json() -> None:
    texts = [page.read_text() for page in pages()]
    found = [block for text in texts for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert found
    assert all(isinstance(json.loads(block), dict) for block in found)
