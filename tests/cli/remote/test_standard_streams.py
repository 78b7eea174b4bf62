"""Closed, full or invalid standard streams: a one-line error, and no live token is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.cli.remote.conftest import Run
from tests.support.ports import free_port
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, Server
from tests.support.waiting import SECONDS

TOKEN = "eyJhbGciOiJFZERTQSJ9.c2VjcmV0LXBheWxvYWQtb2YtdG9rZW4.c2lnbmF0dXJl"
WATCHWORD = [sys.executable, "-m", "watchword"]
LOST = ["closed", "full", "gone"]


@contextmanager
def lost(how: str) -> Iterator[str]:
    """Redirections that lose the output of a command."""
    if how == "closed":
        yield ">&-"
    elif how == "full":
        yield ">/dev/full"
    else:
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        os.close(reading)
        yield f">&{writing}"
        os.close(writing)


def shell(*words: str, redirect: str) -> "subprocess.CompletedProcess[str]":
    """Run the command with a redirection in a shell."""
    clean = without_settings()
    script = f'"$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *WATCHWORD, *words],
        capture_output=True, text=True, timeout=SECONDS, check=False, env=clean, close_fds=False,
    )  # fmt: skip


def says_one_line(ran: "subprocess.CompletedProcess[str]", *codes: int) -> str:
    assert ran.returncode in codes, ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("watchword: ")
    return line


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["plain", "json"])
@pytest.mark.parametrize("how", LOST)
def test_token_that_could_not_be_printed_is_revoked(
    server: Server, actor: str, how: str, form: tuple[str, ...]
) -> None:
    words = ("token", "create", "--name", "lost", "--actor", actor, *form, "--url", server.url, "--as", ADMIN)
    with lost(how) as redirect:
        assert "revoked" in says_one_line(shell(*words, redirect=redirect), 1)
    asked = [{"field": "actorUrn", "value": actor}]
    assert server.tokens(filters=asked)["total"] == 0
    revoked = server.tokens(filters=[*asked, {"field": "status", "value": "REVOKED"}])
    assert [token["name"] for token in revoked["tokens"]] == ["lost"]


@pytest.mark.parametrize("how", LOST)
def test_local_token_that_could_not_be_printed_is_revoked(server: Server, actor: str, how: str) -> None:
    words = ("token", "create", "--local", "--name", "lost", "--actor", actor, "--data-dir", str(server.data_dir))
    with lost(how) as redirect:
        assert "revoked" in says_one_line(shell(*words, redirect=redirect), 1)
    asked = [{"field": "actorUrn", "value": actor}, {"field": "status", "value": "REVOKED"}]
    assert server.tokens(filters=asked)["total"] == 1
    assert server.tokens(filters=asked[:1])["total"] == 0


@pytest.mark.parametrize("how", ["closed", "full"])
@pytest.mark.parametrize(
    "words",
    [("whoami",), ("token", "list", "--json"), ("event", "list", "--all"), ("policy", "list", "--json")],
    ids=" ".join,
)
def test_unwritable_output_is_reported(server: Server, how: str, words: tuple[str, ...]) -> None:
    with lost(how) as redirect:
        ran = shell(*words, "--url", server.url, "--as", ADMIN, redirect=redirect)
    assert "Standard output" in says_one_line(ran, 1)


@pytest.mark.parametrize("how", ["closed", "full"])
@pytest.mark.parametrize("words", [("doctor",), ("--help",), ("token", "--help"), ("--version",)], ids=" ".join)
def test_unwritable_output_of_a_local_command_is_reported(how: str, words: tuple[str, ...]) -> None:
    with lost(how) as redirect:
        assert "Standard output" in says_one_line(shell(*words, redirect=redirect), 1)


def test_command_with_closed_streams_fails() -> None:
    assert shell("whoami", redirect=">&- 2>&- <&-").returncode == 2


@pytest.mark.parametrize(
    "words", [("token", "revoke", "-", "--yes", "--as", ADMIN), ("whoami", "--token-file", "-")], ids=" ".join
)
def test_closed_standard_input_is_reported(server: Server, words: tuple[str, ...]) -> None:
    ran = shell(*words, "--url", server.url, redirect="<&-")
    assert "Standard input" in says_one_line(ran, 2)


@pytest.mark.parametrize("given", ["[" * 200_000, '[{"id": null}]', "[1]", '["x"]', "[{]"])
def test_invalid_token_list_is_reported(run: Run, given: str) -> None:
    ran = run("token", "revoke", "-", "--yes", stdin=given)
    line = says_one_line(ran, 1, 2)
    assert "None" not in line


@pytest.mark.parametrize("given", [TOKEN, json.dumps([{"id": TOKEN}])])
def test_token_from_standard_input_that_the_server_does_not_know_is_not_repeated(run: Run, given: str) -> None:
    ran = run("token", "revoke", "-", "--yes", stdin=given)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "Token 1 of those given" in ran.stderr
    assert "eyJ" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("token", "show", TOKEN), "ID_OR_NAME"),
        (("token", "revoke", TOKEN), "ID_OR_NAME"),
        (("token", "rotate", TOKEN), "ID_OR_NAME"),
        (("token", "create", TOKEN), "NAME"),
        (("token", "list", "--actor", TOKEN), "--actor"),
        (("token", "list", f"--owner={TOKEN}"), "--owner"),
        (("token", "list", "--search", TOKEN), "--search"),
        (("event", "list", "--target", "a", "--target", TOKEN), "--target"),
        (("event", "list", "--about", TOKEN), "--about"),
        (("event", "list", "--actor", TOKEN), "--actor"),
        (("session", "end", TOKEN), "ID"),
        (("webhook", "show", TOKEN), "WEBHOOK"),
        (("operation", "status", TOKEN), "ID"),
        (("actor", "show", TOKEN), "ACTOR"),
        (("group", "add", "ops", "alice", TOKEN), "USER"),
    ],
    ids=lambda value: " ".join(value).replace(TOKEN, "TOKEN") if isinstance(value, tuple) else None,
)
def test_token_on_the_command_line_is_explained_and_not_repeated(words: tuple[str, ...], named: str) -> None:
    command = " ".join(words[:2])
    line = says_one_line(watchword(*words, "--as", "admin", "--url", f"http://127.0.0.1:{free_port()}"), 2)
    assert f"Invalid value for '{named}': This is a token, not its id" in line
    assert "watchword token revoke -" in line
    assert line.endswith(f" Try 'watchword {command} --help' for help.")
    assert "eyJ" not in line


def test_misplaced_token_is_not_repeated() -> None:
    for words in (("whoami", TOKEN), ("whoami", f"--token={TOKEN}"), (TOKEN,), ("token", "list", "--sort", TOKEN)):
        assert "eyJ" not in says_one_line(watchword(*words), 2)


@pytest.mark.parametrize("words", [("event", "list"), ("token", "list")], ids=" ".join)
def test_huge_limit_means_no_limit(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words, "--limit", "9" * 20, "--json")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        (("tokn",), "watchword", "tokn"),
        (("token", "show"), "watchword token show", "ID"),
        (("token", "lst"), "watchword token", "lst"),
        (("token", "list", "--sort", "x"), "watchword token list", "--sort"),
        (("token", "list", "--expires-before", "soon"), "watchword token list", "P7D"),
        (("group", "create", "x"), "watchword group create", "--name"),
        (("whoami", "--nonsense"), "watchword whoami", "--nonsense"),
        (("event", "list", "--limit", "-1"), "watchword event list", "--limit"),
        (("token", "create", "--duration"), "watchword token create", "--duration"),
        (("webhook", "list", "--limit"), "watchword webhook list", "--limit"),
        (("token", "list", "--as"), "watchword token list", "--as"),
        (("webhook", "list", "--json=yes"), "watchword webhook list", "--json"),
        (("token", "list", "--actor", "a b"), "watchword token list", "--actor"),
        (("event", "list", "--about", "urn:x"), "watchword event list", "--about"),
    ],
)
def test_usage_error_is_one_line_that_names_the_help(words: tuple[str, ...], path: str, said: str) -> None:
    line = says_one_line(watchword(*words), 2)
    assert said in line
    assert line.endswith(f" Try '{path} --help' for help.")


def test_ctrl_c_during_start_exits_quietly() -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a run in the background ignores it
        "class Impatient:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "from watchword.__main__ import main\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_token_file_must_be_a_file_and_no_longer_than_a_token(tmp_path: Path) -> None:
    fifo, long = tmp_path / "fifo", tmp_path / "long"
    os.mkfifo(fifo)
    long.write_text("x" * 70_000)
    for path in (fifo, tmp_path, long):
        assert "--token-file must" in says_one_line(watchword("whoami", "--token-file", str(path)), 2)
    assert "--token-file must" in says_one_line(watchword("whoami", "--token-file", "-", stdin="x" * 70_000), 2)


def test_unencrypted_token_warning_covers_every_url_spelling() -> None:
    # 192.0.2.0/24 is unused (RFC 5737); an invalid proxy fails at once.
    env = {"WATCHWORD_TOKEN": TOKEN, "http_proxy": "http://127.0.0.1:1"}
    assert "unencrypted" in watchword("whoami", "--url", "HTTP://192.0.2.1", env=env).stderr


def test_unusable_proxy_is_reported_in_one_line() -> None:
    env = {"WATCHWORD_TOKEN": TOKEN, "ALL_PROXY": "socks5://127.0.0.1:1"}
    assert "SOCKS" in says_one_line(watchword("whoami", "--url", "https://192.0.2.1", env=env), 1)
    nonsense = watchword("whoami", "--url", "http://127.0.0.1\r\n:1", env=env)
    assert "--url must be" in says_one_line(nonsense, 2)


def test_suspended_caller_gets_no_actor_header_hint(server: Server, run: Run, actor: str) -> None:
    server.set_status(actor, "SUSPENDED")
    assert "suspended" in says_one_line(run("whoami", caller=actor), 1)
