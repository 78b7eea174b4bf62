"""A server loads only the modules it uses, and its workers share them."""

import re
from collections import Counter

import pytest

from tests.support.server import ADMIN, Server

ADMIN_MODULES = {f"watchword.admin.{name}" for name in ("backup", "check", "doctor", "restore", "tables")}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """Count how often all processes of a server with two workers loaded each module."""
    server = Server(tmp_path_factory.mktemp("loading"), "--workers", "2", env={"PYTHONVERBOSE": "1"})
    with server:
        made = server.create(ADMIN)
        assert server.verify(made["accessToken"]).is_success
        assert server.tokens()["total"] == 1
    return Counter(re.findall(r"^import '([\w.]+)' #", server.err.read_text(), re.MULTILINE))


def test_embedded_server_loads_no_other_backend_driver(loaded: Counter[str]) -> None:
    assert {"apsw", "granian", "graphql"} <= set(loaded)
    assert set(loaded).isdisjoint({"asyncpg", "httpx", "watchword.index.opensearch", "watchword.stores.postgres"})


def test_server_does_not_load_unused_packages(loaded: Counter[str]) -> None:
    unused = {"anyio", "dotenv", "rich", "watchfiles", "yaml"}
    assert set(loaded).isdisjoint(unused | {"watchword.client", *ADMIN_MODULES})


def test_workers_and_index_process_share_the_modules_of_the_main_process(loaded: Counter[str]) -> None:
    packages = ("apsw", "asyncio", "cryptography", "granian", "graphql", "ssl", "watchword")
    shared = {name: times for name, times in loaded.items() if name.startswith(packages)}
    assert len(shared) > 200
    assert {name: times for name, times in shared.items() if times > 1} == {}
