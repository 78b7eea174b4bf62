"""What a server loads: nothing that it does not use, and what its workers share once for all of them."""

import re
from collections import Counter

import pytest

from tests.support.server import ADMIN, Server


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often each module was loaded by all processes of a server with two workers that has done some work."""
    server = Server(tmp_path_factory.mktemp("loading"), "--workers", "2", env={"PYTHONVERBOSE": "1"})
    with server:
        made = server.create(ADMIN)
        assert server.verify(made["accessToken"]).is_success
        assert server.tokens()["total"] == 1
    return Counter(re.findall(r"^import '([\w.]+)' #", server.err.read_text(), re.MULTILINE))


def test_a_server_on_the_embedded_default_loads_no_driver_of_another_backend(loaded: Counter[str]) -> None:
    assert {"apsw", "granian", "graphql"} <= set(loaded)
    assert set(loaded).isdisjoint({"asyncpg", "httpx", "watchword.engines.opensearch", "watchword.stores.postgres"})


def test_a_server_loads_nothing_that_is_for_commands_or_for_other_users_of_its_packages(loaded: Counter[str]) -> None:
    unused = {"anyio", "dotenv", "rich", "watchfiles", "yaml"}
    assert set(loaded).isdisjoint(unused | {"watchword.client", "watchword.doctor", "watchword.stores.admin"})


def test_workers_find_everything_loaded_by_the_process_they_come_from(loaded: Counter[str]) -> None:
    shared = {
        name: times for name, times in loaded.items() if name.startswith(("graphql", "granian", "watchword.http"))
    }
    assert len(shared) > 100
    assert {name: times for name, times in shared.items() if times > 1} == {}


def test_the_process_of_the_index_loads_nothing_of_the_service(loaded: Counter[str]) -> None:
    """The main process has loaded each of these once."""
    assert loaded["apsw"] == 2
    service = {"asyncio", "cryptography", "ssl", "watchword.domain.ports", "watchword.engines.embedded.engine"}
    assert {name: loaded[name] for name in service} == dict.fromkeys(service, 1)
