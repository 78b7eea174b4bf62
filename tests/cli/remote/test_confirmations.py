"""Commands that destroy need --yes where nobody can be asked."""

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.cli.remote.conftest import Run
from tests.cli.test_help import COMMANDS
from tests.support.server import ADMIN, Server, watchword

PRUNED = "set: kept-{0}\npolicies: []\n"
# The arguments of each such command; {0} is a name of the test's own. For `operation cancel` see test_operation.py.
DESTROYING = {
    "account delete": ["{0}"],
    "actor offboard": ["{0}"],
    "group delete": ["{0}"],
    "index truncate": ["dataset.operation", "--older-than", "30d"],
    "policy apply": ["-", "--prune"],
    "policy delete": ["{0}"],
    "retention delete": ["chart.{0}"],
    "retention run": ["chart.{0}", "--approve"],
    "session end": ["{0}"],
    "operation cancel": ["node:1"],
    "token revoke": ["--actor", "{0}"],
    "token scan": ["-", "--revoke"],
    "webhook delete": ["{0}"],
}
WITHOUT_PREVIEW = set(DESTROYING) - {"actor offboard", "index truncate", "policy apply", "token revoke"}


def test_every_command_that_destroys_is_listed_here() -> None:
    assert {words.removeprefix("watchword ") for words, one in COMMANDS.items() if _asks(one.params)} == set(DESTROYING)
    verbs = {"delete", "offboard", "cancel", "truncate", "prune", "purge", "revoke", "end"}
    assert [words for words, one in COMMANDS.items() if verbs & set(words.split()) and not _asks(one.params)] == []


def _asks(params: object) -> bool:
    return isinstance(params, list) and any(param.name == "yes" for param in params)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One of its own: what these tests declare would stay in the exports of others."""
    with Server(tmp_path_factory.mktemp("confirmations"), "--actor-daily-changes", "0") as running:
        yield running


@pytest.fixture
def made(run: Run) -> str:
    """The name of an account, a group, a policy, a rule, a webhook and a declared policy."""
    name = f"here{secrets.token_hex(4)}"
    policy = f"{{id: {name}-x, name: x, scopes: [a:b], actors: {{users: [urn:li:corpuser:{name}]}}}}"
    declared = f"set: kept-{name}\npolicies:\n  - {policy}\n"
    for words, stdin in (
        (["account", "create", name, "--name", name], None),
        (["group", "create", name, "--name", name], None),
        (["policy", "apply", "-"], declared),
        (["policy", "apply", "-"], declared.replace("kept", "also").replace(f"{name}-x", name)),
        (["retention", "update", f"chart.{name}", "--keep", "7d"], None),
        (["webhook", "create", name, "--name", name, "--to", "https://8.8.8.8/"], None),
    ):
        ran = run(*words, stdin=stdin)
        assert ran.returncode == 0, ran.stderr
    return name


@pytest.mark.parametrize("command", sorted(set(DESTROYING) - {"operation cancel"}))
def test_command_that_destroys_refuses_without_a_terminal_and_without_yes(
    server: Server, run: Run, made: str, command: str
) -> None:
    words = [*command.split(), *(word.format(made) for word in DESTROYING[command])]
    token = server.create(ADMIN, of=f"urn:li:corpuser:{made}")["accessToken"]
    stdin = token if command == "token scan" else PRUNED.format(made)
    ran = run(*words, stdin=stdin)
    preview = "" if command in WITHOUT_PREVIEW else " or --dry-run to preview"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"watchword: Not a terminal. Pass --yes to confirm{preview}.")
    for there in (
        ["account", "show", made],
        ["group", "show", made],
        ["policy", "show", made],
        ["policy", "show", f"{made}-x"],
        ["retention", "show", f"chart.{made}"],
        ["webhook", "show", made],
    ):
        assert run(*there).returncode == 0
    assert json.loads(run("actor", "show", made, "--json").stdout)["status"] == "ACTIVE"
    assert server.verify(token).status_code == 204


def test_piped_history_is_not_revoked_without_yes(server: Server) -> None:
    """As in `git log -p | watchword token scan - --revoke`: standard input is a pipe, and the terminal elsewhere."""
    token = server.create(ADMIN)["accessToken"]
    words = ("token", "scan", "-", "--revoke", "--url", server.url)
    assert watchword(*words, stdin=f"+{token}\n").returncode == 2
    assert server.verify(token).status_code == 204
    assert watchword(*words, "--yes", stdin=f"+{token}\n").returncode == 0
    assert server.verify(token).status_code == 401
