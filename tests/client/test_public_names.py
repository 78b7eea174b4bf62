"""The public names of the client: what `dir` shows, the methods of both clients, docstrings, and named arguments."""

import inspect
import subprocess
import sys

import pytest

import watchword.client
from watchword.client import AsyncClient, BadRequest, Client
from watchword.client.http_clients import read_answer
from watchword.client.requests import ApiRequest


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


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


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    assert public(Client) == public(AsyncClient)
    for name in public(Client):
        assert inspect.signature(getattr(Client, name)) == inspect.signature(getattr(AsyncClient, name)), name


def test_methods_show_their_parameters_and_docstrings() -> None:
    with Client() as client:
        assert list(inspect.signature(client.granted_privileges).parameters) == ["actor"]
        assert client.granted_privileges.__name__ == "granted_privileges"
        assert (client.revoke_token.__doc__ or "").startswith("Revoke a token")


def test_profiles_and_errors_are_read_without_loading_httpx() -> None:
    loads = "import sys, watchword.client.profiles; from watchword.client import WatchwordError"
    code = f"{loads}; print('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("field", "argument"),
    [
        ("durationIso", "duration"),
        ("input.durationIso", "duration"),
        ("allowedNetworks[2]", "networks[2]"),
        ("atMost", "at_most"),
        ("endTimeMillis", "end_time"),
        ("filters[1].values", "filters[1].values"),
        ("policies[3].actors.allUsers", "declared[3].actors.all_users"),
        ("id", "token_id"),
        ("Idempotency-Key", "key"),
    ],
)
def test_error_names_the_python_argument(field: str, argument: str) -> None:
    sentence = f"{field} must be something else than {field}s."
    details = f'"code": 400, "type": "BAD_REQUEST", "reason": "invalid_field", "field": "{field}"'
    body = f'{{"errors": [{{"message": "{sentence}", "extensions": {{{details}}}}}]}}'.encode()
    with pytest.raises(BadRequest) as refused:
        read_answer(ApiRequest(str, arguments={"id": "token_id"}), 200, {}, body)
    assert (refused.value.field, refused.value.argument) == (field, argument)
    assert str(refused.value) == f"{argument} must be something else than {field}s."
    assert refused.value.message == sentence
