"""The public names of the client: what `dir` shows, the methods of both clients, docstrings, and named arguments."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import watchword.client
from watchword.client import AsyncClient, BadRequest, Client, TokenDetails
from watchword.client.http_clients import read_answer
from watchword.client.requests import ApiRequest


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(watchword.client) == sorted(watchword.client.__all__)
    assert {"AsyncClient", "Client", "TokenFile", "TokenFilter", "WatchwordError"} <= set(dir(watchword.client))
    for name in watchword.client.__all__:
        assert getattr(watchword.client, name).__name__ == name
    with pytest.raises(AttributeError, match="httpx"):
        watchword.client.__getattr__("httpx")


@pytest.mark.parametrize("name", watchword.client.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    found = getattr(watchword.client, name)
    assert inspect.getdoc(found)
    assert not (found.__doc__ or "").startswith(f"{name}("), "a dataclass without a docstring"
    for member, value in vars(found).items():
        if not member.startswith("_") and callable(value):
            assert inspect.getdoc(value), f"{name}.{member}"


def methods(client: Client | AsyncClient) -> dict[str, Any]:
    """All public methods, such as `tokens.create`, by name."""
    found = {name: getattr(client, name) for name in dir(client) if not name.startswith("_")}
    namespaces = {name: part for name, part in found.items() if not callable(part)}
    own = {name: method for name, method in found.items() if name not in namespaces}
    return own | {
        f"{space}.{name}": getattr(part, name)
        for space, part in namespaces.items()
        for name in dir(part)
        if not name.startswith("_")
    }


@pytest.fixture
def both() -> Iterator[tuple[Client, AsyncClient]]:
    asynchronous = AsyncClient()
    with Client() as client:
        yield client, asynchronous
    asyncio.run(asynchronous.close())


def test_both_clients_have_the_same_methods_with_the_same_parameters(both: tuple[Client, AsyncClient]) -> None:
    synchronous, asynchronous = methods(both[0]), methods(both[1])
    assert synchronous.keys() == asynchronous.keys()
    for name, method in synchronous.items():
        parameters = inspect.signature(method).parameters
        assert parameters == inspect.signature(asynchronous[name]).parameters, name


def test_methods_show_their_parameters_results_and_docstrings(both: tuple[Client, AsyncClient]) -> None:
    for client in both:
        for name, method in methods(client).items():
            assert inspect.getdoc(method), name
            signature = inspect.signature(method)
            assert signature.return_annotation is not signature.empty, name
            assert all(one.annotation is not one.empty for one in signature.parameters.values()), name
    signature = inspect.signature(both[0].privileges.granted)
    assert str(signature) == "(actor_urn: str) -> tuple[str, ...]"
    assert (both[1].tokens.revoke.__doc__ or "").startswith("Revoke a token")
    assert inspect.signature(both[1].tokens.get).return_annotation is TokenDetails


def test_profiles_and_errors_are_read_without_loading_httpx() -> None:
    loads = "import sys, watchword.client.profiles; from watchword.client import WatchwordError"
    code = f"{loads}; print('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("field", "argument"),
    [
        ("durationIso", "duration"),
        ("input.durationIso", "duration"),
        ("allowedNetworks[2]", "allowed_networks[2]"),
        ("atMost", "at_most"),
        ("endTimeMillis", "end_time"),
        ("filters[1].values", "filters[1].values"),
        ("policies[3].actors.allUsers", "policies[3].actors.all_users"),
        ("id", "id"),
        ("Idempotency-Key", "idempotency_key"),
        ("count", "page_size"),
    ],
)
def test_error_names_the_python_argument(field: str, argument: str) -> None:
    sentence = f"{field} must be something else than {field}s."
    details = f'"code": 400, "type": "BAD_REQUEST", "reason": "invalid_field", "field": "{field}"'
    body = f'{{"errors": [{{"message": "{sentence}", "extensions": {{{details}}}}}]}}'.encode()
    with pytest.raises(BadRequest) as refused:
        read_answer(ApiRequest(str), 200, {}, body)
    assert (refused.value.field, refused.value.argument) == (field, argument)
    assert str(refused.value) == f"{argument} must be something else than {field}s."
    assert refused.value.message == sentence


def test_generated_modules_are_current() -> None:
    script = Path(__file__).resolve().parents[2] / "scripts" / "generate-client"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
