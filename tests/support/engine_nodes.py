"""The engine of real search nodes, for the contract's tests: indices of one prefix on the run's shared node."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest

from tests.support.nodes import KINDS, Client, SharedNodes, unique_prefix
from watchword.basics.secret import Secret
from watchword.index.opensearch.engine import OpenSearchEngine, open_engine

TIMEOUT = 30.0


def engine_at(
    *hosts: str,
    user: str | None = None,
    password: Secret[str] | None = None,
    api_key: Secret[str] | None = None,
    timeout: float = TIMEOUT,
    **tls: Any,
) -> OpenSearchEngine:
    options = {"ca_file": None, "verify_tls": True, **tls}
    return open_engine(hosts, user=user, password=password, api_key=api_key, timeout=timeout, **options)


class NodePlace:
    def __init__(self, node: Client, prefix: str) -> None:
        self.node = node
        self.prefix = prefix

    def name(self, word: str) -> str:
        return f"{self.prefix}_{word}"

    async def open(self) -> OpenSearchEngine:
        return engine_at(self.node.url)

    def put(self, index: str, row_id: str, source: dict[str, Any]) -> bool:
        answer = self.node.http.put(f"/{index}/_doc/{row_id}", json=source)
        assert answer.is_success or answer.json()["error"]["type"] == "mapper_parsing_exception", answer.text
        return answer.is_success

    def remove(self, index: str, row_id: str) -> None:
        answer: httpx.Response = self.node.http.delete(f"/{index}/_doc/{row_id}")
        assert answer.is_success or answer.json()["result"] == "not_found", answer.text

    def rows(self, name: str) -> dict[str, Any]:
        self.node.ask("POST", f"/{name}/_refresh")
        found = self.node.ask("POST", f"/{name}/_search", {"size": 10_000, "track_total_hits": True})["hits"]
        assert found["total"]["value"] == len(found["hits"]), "more rows than one search shows"
        return {hit["_id"]: hit["_source"] for hit in found["hits"]}

    def alias(self, name: str, index: str) -> bool:
        self.node.ask("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": name}}]})
        return True


class NodeBackend:
    def __init__(self, node: Client) -> None:
        self._node = node
        self._prefix = unique_prefix()
        self._numbers = itertools.count()

    def place(self) -> NodePlace:
        return NodePlace(self._node, f"{self._prefix}n{next(self._numbers)}")

    def clean(self) -> None:
        self._node.drop(self._prefix)


def _backend(kind: str) -> Callable[[pytest.TempPathFactory], AbstractContextManager[NodeBackend]]:
    @contextmanager
    def made(folders: pytest.TempPathFactory) -> Iterator[NodeBackend]:
        nodes = SharedNodes(folders)
        backend = NodeBackend(nodes.of(kind))
        yield backend
        backend.clean()
        nodes.close()

    return made


NODE_ENGINES = {kind: _backend(kind) for kind in KINDS}
