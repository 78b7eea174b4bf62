"""Remote commands: server address, caller, and one-line errors with a next step."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.strangers import web_server

TOKEN = "eyJhbGciOiJFZERTQSJ9.c2VjcmV0LXBheWxvYWQtb2YtdG9rZW4.c2lnbmF0dXJl"


def one_line(ran: "CompletedProcess[str]", code: int, *words: str) -> None:
    """Check the exit code and the one line on standard error."""
    assert (ran.returncode, ran.stdout) == (code, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("watchword: ")
    for word in words:
        assert word in line


def test_token_comes_from_environment_file_or_standard_input(server: Server, tmp_path: Path, actor: str) -> None:
    token = server.create(ADMIN, of=actor)["accessToken"]
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    url = {"WATCHWORD_URL": server.url}
    for ran in (
        watchword("whoami", env={**url, "WATCHWORD_TOKEN": token}),
        watchword("whoami", "--token-file", str(file), env=url),
        watchword("whoami", "--token-file", "-", env=url, stdin=f"{token}\n"),
    ):
        assert (ran.returncode, ran.stderr) == (0, "")
        assert actor in ran.stdout


@pytest.mark.parametrize(
    ("flags", "env", "words"),
    [
        ((), {}, ("Who is calling?", "WATCHWORD_TOKEN", "--as")),
        ((), {"WATCHWORD_TOKEN": ""}, ("Who is calling?",)),
        (("--as", ADMIN), {"WATCHWORD_TOKEN": TOKEN}, ("WATCHWORD_TOKEN and --as",)),
        (("--token-file", "x"), {"WATCHWORD_TOKEN": TOKEN}, ("WATCHWORD_TOKEN and --token-file",)),
        (("--as", ADMIN, "--token-file", "x"), {}, ("--token-file and --as",)),
        (("--as", ADMIN, "--url", "ftp://x"), {}, ("--url must be",)),
        (("--as", "two words"), {}, ("--as must be", "Try 'watchword whoami --help'")),
        (("--token-file", "/dev/null"), {}, ("--token-file",)),
        ((), {"WATCHWORD_TOKEN": "two words"}, ("The token must be",)),
        (("--as", ADMIN), {"WATCHWORD_TOKNE": "x"}, ("WATCHWORD_TOKNE is not a setting",)),
    ],
)
def test_caller_is_never_guessed(flags: tuple[str, ...], env: dict[str, str], words: tuple[str, ...]) -> None:
    ran = watchword("whoami", *flags, env=env)
    one_line(ran, 2, *words)
    assert TOKEN not in ran.stderr


def test_token_is_not_accepted_as_an_option(server: Server) -> None:
    assert watchword("whoami", "--token", TOKEN, "--url", server.url).returncode == 2


def test_missing_token_file_is_named() -> None:
    one_line(watchword("whoami", "--token-file", "/none/such"), 1, "/none/such")


def test_unreachable_server_is_reported_with_a_next_step() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    one_line(watchword("token", "list", "--url", url, "--as", ADMIN), 1, url, "watchword serve", "--url")


def test_another_program_at_the_address_is_reported() -> None:
    with web_server(200) as stranger:
        one_line(watchword("token", "list", "--url", stranger.url, "--as", ADMIN), 1, "not Watchword's")


def test_invalid_token_is_reported_and_not_repeated(server: Server) -> None:
    env = {"WATCHWORD_URL": server.url, "WATCHWORD_TOKEN": TOKEN}
    one_line(watchword("token", "list", env=env), 1, "watchword token create")
    debugged = watchword("--debug", "token", "list", env=env)
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr
    assert "Unauthenticated" in debugged.stderr
    assert TOKEN not in debugged.stderr


def test_rejected_actor_name_is_reported_with_a_next_step(tmp_path: Path) -> None:
    with Server(tmp_path / "server", "--local-mode", "off") as strict:
        one_line(watchword("whoami", "--url", strict.url, "--as", ADMIN), 1, "local mode", "WATCHWORD_TOKEN")


def test_unencrypted_token_prints_a_warning() -> None:
    # 192.0.2.0/24 is unused (RFC 5737); the unreachable proxy fails at once.
    nobody = {"WATCHWORD_TOKEN": TOKEN, "http_proxy": f"http://127.0.0.1:{free_port()}"}
    ran = watchword("whoami", "--url", "http://192.0.2.1", env=nobody)
    warning, failure = ran.stderr.splitlines()
    assert "unencrypted" in warning
    assert "cannot be reached" in failure


@pytest.mark.parametrize(
    "words", [("token", "list", "--expires-before", "soon"), ("token", "list", "--sort", "x"), ("token", "show")]
)
def test_usage_error_exits_with_2(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
