"""DataHub's own client, called as the lines on standard input say; prints what each call returned or raised.

A name without a class is a method of `DataHubGraph`; the others are functions of the package that speak of tokens or
of the server's version, called with a graph or a session of the same token.
"""

import asyncio
import functools
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from datahub import __version__
from datahub.cli.sso_cli import _warn_about_existing_cli_tokens
from datahub.ingestion.graph.client import DataHubGraph
from datahub.ingestion.graph.config import DatahubClientConfig
from datahub.upgrade import upgrade


def warn_about_tokens(graph: DataHubGraph, actor: str) -> str:
    """Return what `datahub init --sso` says about existing tokens."""
    with redirect_stdout(StringIO()) as said:
        _warn_about_existing_cli_tokens(graph.session, graph.config.server, actor)
    return said.getvalue()


def compare_versions(graph: DataHubGraph) -> int | None:
    """Return what every `datahub` command computes: below 0 the server is too old, above 0 too new."""
    server = asyncio.run(upgrade.get_server_version_stats(graph))[1]
    if server is None:
        return None
    ours = upgrade.VersionStats(version=upgrade.Version(__version__), release_date=None)
    theirs = upgrade.VersionStats(version=server, release_date=None)
    compared: int = upgrade.is_client_server_compatible(ours, theirs)
    return compared


OTHERS: dict[str, Callable[..., Any]] = {"warn_about_tokens": warn_about_tokens, "compare_versions": compare_versions}


@functools.cache
def graph_of(server: str, token: str | None) -> Any:
    return DataHubGraph(DatahubClientConfig(server=server, token=token))


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        graph = graph_of(asked["server"], asked["token"])
        other = OTHERS.get(asked["method"])
        call = functools.partial(other, graph) if other else getattr(graph, asked["method"])
        return {"returned": call(**asked["words"])}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the outcome
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"raised": {"kinds": kinds, "info": getattr(error, "info", None), "message": str(error)}}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
