"""Output at a terminal and in a pipe: it fits, and control characters are escaped."""

import json
import os
import re
import socket
import subprocess
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.cli.remote.conftest import Run
from tests.support.server import ADMIN, Server, watchword
from tests.support.store_file import change_store
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS, until
from watchword.cli.output import json_text, one_line

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m[red]:boom:[/red]\r\n\u202egnp.exe"


def at_terminal(server: Server, *words: str, **how: object) -> Terminal:
    return Terminal(*words, "--url", server.url, "--as", ADMIN, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [40, 100])
def test_new_token_is_printed_once_with_next_steps(server: Server, actor: str, columns: int) -> None:
    with at_terminal(server, "token", "create", "--name", "laptop", "--actor", actor, columns=columns) as terminal:
        assert terminal.finish() == 0
    (token,) = [line for line in terminal.text.splitlines() if line.startswith("eyJ")]
    assert server.verify(token).headers["X-Auth-Urn"] == actor
    assert terminal.text.count(token) == 1
    assert "watchword token revoke" in terminal.text
    assert "laptop" in terminal.text


def test_table_has_colours_relative_times_and_shortened_names(server: Server, actor: str) -> None:
    made = [server.create(ADMIN, of=actor, name=name) for name in ("n" * 200, "日本語の名前" * 20)]
    with at_terminal(server, "token", "list", "--actor", actor, columns=200) as wide:
        assert wide.finish() == 0
    assert "\x1b[32mACTIVE" in wide.output
    assert "in 59 minutes" in wide.text
    assert "nnn…" in wide.text
    assert {token["metadata"]["id"] for token in made} <= set(wide.text.split())
    assert actor in wide.text


TITLES = {
    "token": ["ID", "NAME", "STATUS", "EXPIRES", "USED", "ACTOR"],
    "event": ["AT", "ACTION", "ACTOR", "TARGET", "FROM", "DETAIL"],
    "policy": ["POLICY", "NAME", "STATE", "SOURCE", "GRANTED TO", "PRIVILEGES", "SCOPES", "SET"],
}


@pytest.mark.parametrize(
    ("noun", "columns", "kept"),
    [
        ("token", 60, ["ID", "NAME"]),
        ("token", 80, ["ID", "NAME", "STATUS", "EXPIRES"]),
        ("token", 200, TITLES["token"]),
        ("event", 60, ["AT", "ACTION", "ACTOR", "TARGET"]),
        ("event", 80, ["AT", "ACTION", "ACTOR", "TARGET"]),
        ("event", 200, TITLES["event"]),
        ("policy", 60, ["POLICY", "NAME", "STATE"]),
        ("policy", 80, ["POLICY", "NAME", "STATE", "SOURCE"]),
        ("policy", 200, TITLES["policy"][:-1]),
    ],
)
def test_row_fits_one_line_with_the_key_columns_first(
    server: Server, run: Run, actor: str, noun: str, columns: int, kept: list[str]
) -> None:
    server.grant(actor)
    made = [server.create(ADMIN, of=actor, name="a name " * 20)["metadata"]["id"] for _ in range(3)]
    words = {"token": ("--actor", actor), "event": ("--target", made[0]), "policy": ("--all",)}[noun]
    with at_terminal(server, noun, "list", *words, columns=columns) as terminal:
        assert terminal.finish() == 0
    piped = run(noun, "list", *words).stdout.splitlines()
    head, *lines = [line for line in terminal.text.splitlines() if not line.startswith("Hidden columns: ")]
    assert re.split(r"\s{2,}", head.strip())[: len(kept)] == kept
    assert len(lines) == len(piped) - 1
    assert max(map(cell_len, [head, *lines])) <= columns
    left_out = [title for title in TITLES[noun] if title not in re.split(r"\s{2,}", head.strip())]
    assert (f"Hidden columns: {', '.join(left_out)}." in terminal.text) == bool(left_out)
    assert re.split(r"\s{2,}", piped[0].strip().replace("URN ", "POLICY ")) == TITLES[noun]
    if noun == "token":
        assert {line.split()[0] for line in lines} == {line.split()[0] for line in piped[1:]} == set(made)
        assert "…" not in "".join(piped)


@pytest.mark.parametrize("columns", [20, 40])
def test_narrow_terminal_prints_one_property_per_line(server: Server, actor: str, columns: int) -> None:
    made = server.create(ADMIN, of=actor)["metadata"]["id"]
    with at_terminal(server, "token", "list", "--actor", actor, columns=columns) as terminal:
        assert terminal.finish() == 0
    lines = terminal.text.splitlines()
    assert [line.partition(": ")[0] for line in lines[: len(TITLES["token"])]] == TITLES["token"]
    assert made in terminal.text


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_no_color_prints_no_escapes(server: Server, actor: str, env: dict[str, str]) -> None:
    server.create(ADMIN, of=actor)
    with at_terminal(server, "token", "list", "--actor", actor, env=env) as terminal:
        assert terminal.finish() == 0
    assert "ACTIVE" in terminal.output
    assert "\x1b" not in terminal.output


def test_empty_list_prints_a_sentence(server: Server, actor: str) -> None:
    with at_terminal(server, "token", "list", "--actor", actor) as terminal:
        assert terminal.finish() == 0
    assert terminal.text == "No tokens.\n"


def test_control_characters_in_names_are_escaped(server: Server, run: Run, actor: str) -> None:
    token_id = server.create(ADMIN, of=actor)["metadata"]["id"]
    change_store(server, "UPDATE tokens SET name = ?, description = ? WHERE id = ?", HOSTILE, HOSTILE, token_id)
    with at_terminal(server, "token", "list", "--actor", actor, columns=250) as terminal:
        assert terminal.finish() == 0
    piped = run("token", "list", "--actor", actor).stdout
    shown = run("token", "show", token_id).stdout
    as_data = run("token", "show", token_id, "--json").stdout
    for printed in (terminal.text, piped, shown, as_data):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", printed)
        assert "[red]:boom:[/red]" in printed
    assert json.loads(as_data)["name"] == HOSTILE
    assert len(piped.splitlines()) == 2
    assert r"\x1b[2J" in piped


@given(st.text())
def test_printed_text_has_no_control_characters(text: str) -> None:
    acting = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
    assert not acting.search(one_line(text))
    assert not acting.search(json_text(text))
    assert json.loads(json_text(text)) == text


def test_deletion_asks_at_a_terminal(server: Server, run: Run) -> None:
    run("group", "create", "asked", "--name", "Asked")
    with at_terminal(server, "group", "delete", "asked") as terminal:
        terminal.wait_for("[y/N]")
        terminal.enter("\n")
        assert terminal.finish() == 1
    with at_terminal(server, "group", "delete", "asked") as terminal:
        terminal.wait_for("[y/N]")
        assert terminal.interrupt() == 130
    assert run("group", "show", "asked").returncode == 0
    with at_terminal(server, "group", "delete", "asked", "--yes") as terminal:
        assert terminal.finish() == 0
    assert "[y/N]" not in terminal.text
    urn = server.grant("urn:li:corpuser:asked")
    with at_terminal(server, "policy", "delete", urn) as terminal:
        terminal.wait_for("[y/N]")
        terminal.enter("y\n")
        assert terminal.finish() == 0


def test_ctrl_c_during_a_request_exits_quietly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Terminal("token", "list", "--url", url, "--as", ADMIN) as terminal:
            process = psutil.Process(terminal.process.pid)
            until(lambda: bool(process.net_connections("tcp")), "it has asked")
            assert terminal.interrupt() == 130
    assert terminal.text.replace("^C", "").strip() == ""


@pytest.mark.parametrize("words", [("token", "list"), ("token", "list", "--json"), ("event", "list")], ids=" ".join)
def test_closed_pipe_exits_quietly(server: Server, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "watchword", *words, "--url", server.url, "--as", ADMIN]
    with os.fdopen(writing, "wb") as gone:
        ran = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stderr) == (141, b"")


def test_unencodable_characters_are_escaped(server: Server, actor: str) -> None:
    server.create(ADMIN, of=actor, name="日本")
    words = ("token", "list", "--actor", actor, "--url", server.url, "--as", ADMIN)
    ran = watchword(*words, env={"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 0
    assert r"\u65e5\u672c" in ran.stdout
