"""`watchword token scan` finds leaked tokens, reports them without showing them, and revokes them."""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.in_process import watchword
from tests.support.datahub_tokens import datahub_token
from tests.support.server import ADMIN, GENERATE, Server
from tests.support.store_file import look
from tests.support.terminal import Terminal
from watchword.cli.leaks import OVERLAP_BYTES, PIECE_BYTES, leaks

Done = Callable[..., str]


class Lost(NamedTuple):
    token: str
    id: str


@pytest.fixture
def lost(server: Server, actor: str) -> Lost:
    made = server.create(ADMIN, of=actor, name="lost one")
    return Lost(made["accessToken"], made["metadata"]["id"])


def scan(server: Server, *words: str, caller: str | None = ADMIN, **how: Any) -> "subprocess.CompletedProcess[str]":
    who = () if caller is None else ("--as", caller)
    return watchword("token", "scan", *words, "--url", server.url, *who, **how)


def hits(ran: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def test_scan_reports_a_live_token_without_showing_it(server: Server, lost: Lost, actor: str, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / ".env").write_text(f"A=1\nTOKEN={lost.token}\nB={lost.token}\n")
    ran = scan(server, str(tmp_path))
    assert ran.returncode == 1
    head, *lines = ran.stdout.splitlines()
    assert head.split() == ["PLACE", "STATUS", "NAME", "ACTOR", "ID"]
    assert [line.split() for line in lines] == [
        [f"{tmp_path}/deep/er/.env:{place}", "ACTIVE", "lost", "one", actor, lost.id] for place in ("2:7", "3:3")
    ]
    assert lost.token.rpartition(".")[2] not in ran.stdout + ran.stderr
    assert server.verify(lost.token).status_code == 204


def test_scan_reports_dead_tokens_and_succeeds(server: Server, lost: Lost, tmp_path: Path) -> None:
    server.revoke(lost.id)
    (tmp_path / "notes").write_text(lost.token)
    ran = scan(server, str(tmp_path / "notes"), "--json")
    assert (ran.returncode, ran.stderr) == (0, "")
    (hit,) = hits(ran)
    assert (hit["status"], hit["live"], hit["id"]) == ("REVOKED", False, lost.id)
    nothing = scan(server, str(tmp_path), "--json", stdin="")
    assert len(hits(nothing)) == 1


def test_dash_is_standard_input_even_beside_a_folder_of_that_name(server: Server, lost: Lost, tmp_path: Path) -> None:
    (tmp_path / "-").mkdir()
    (hit,) = hits(scan(server, "-", "--json", stdin=lost.token, cwd=tmp_path))
    assert hit["id"] == lost.id


def test_scan_without_tokens_prints_nothing(server: Server, tmp_path: Path) -> None:
    other = jwt.encode({"sub": "1", "iss": "x", "type": "PERSONAL"}, "k" * 32, "HS256", headers={"typ": None})
    (tmp_path / "a").write_text(f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln and {other}")
    ran = scan(server, str(tmp_path), "--json")
    assert (ran.returncode, hits(ran), ran.stderr) == (0, [], "")


def test_scan_does_not_count_as_use(server: Server, lost: Lost, tmp_path: Path) -> None:
    with_successor = watchword("token", "rotate", lost.id, "--url", server.url, "--as", ADMIN, "--grace", "0s")
    successor = with_successor.stdout.strip()
    (hit,) = hits(scan(server, "-", "--json", stdin=successor))
    assert hit["status"] == "ACTIVE"
    assert look(server, "SELECT grace, use_count FROM tokens WHERE id = ?", hit["id"]) == [(0, 0)]
    assert server.verify(lost.token).status_code == 204


def test_scan_revokes_found_tokens(server: Server, lost: Lost, actor: str, tmp_path: Path) -> None:
    other = server.create(ADMIN, of=actor)["accessToken"]
    (tmp_path / "a").write_text(f"{lost.token}\n{lost.token}")
    (tmp_path / "b").write_text(other)
    ran = scan(server, str(tmp_path), "--revoke", "--yes", caller=None)
    assert ran.returncode == 0
    assert [line for line in ran.stdout.splitlines() if line.startswith("Revoked")] == [
        f"Revoked {tmp_path}/a:1:1",
        f"Revoked {tmp_path}/b:1:1",
    ]
    assert server.verify(lost.token).status_code == server.verify(other).status_code == 401
    again = scan(server, str(tmp_path), "--revoke", "--yes", "--json")
    assert (again.returncode, {hit["status"] for hit in hits(again)}) == (0, {"REVOKED"})


def test_scan_revocation_asks_at_a_terminal(server: Server, lost: Lost, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(lost.token)
    words = ("token", "scan", str(tmp_path / "a"), "--revoke", "--url", server.url, "--as", ADMIN)
    for answer, code, status in (("n", 1, 204), ("y", 0, 401)):
        with Terminal(*words) as terminal:
            terminal.wait_for("Revoke 1 token? This cannot be undone.")
            assert "lost one" in terminal.text
            terminal.enter(f"{answer}\r")
            assert terminal.finish() == code
        assert server.verify(lost.token).status_code == status


def test_scan_without_a_caller_reports_tokens_as_possibly_live(server: Server, lost: Lost) -> None:
    ran = watchword("token", "scan", "-", "--json", "--url", "http://127.0.0.1:1", stdin=lost.token)
    (hit,) = hits(ran)
    assert (ran.returncode, hit["status"], hit["live"], hit["id"]) == (1, "UNKNOWN", True, None)
    assert "No server was asked" in ran.stderr
    expired = dict(_claims(lost.token), exp=1_000_000_000)
    middle = base64.urlsafe_b64encode(json.dumps(expired).encode()).rstrip(b"=").decode()
    head, _, signature = lost.token.split(".")
    old = watchword("token", "scan", "-", "--json", stdin=f"{head}.{middle}.{signature}")
    assert (old.returncode, hits(old)[0]["status"]) == (0, "EXPIRED")


def test_invisible_token_is_reported_as_possibly_live(server: Server, lost: Lost, actor: str) -> None:
    for caller in (f"{actor}-b", f"{actor}-c"):
        ran = scan(server, "-", "--json", stdin=lost.token, caller=caller)
        (hit,) = hits(ran)
        assert (ran.returncode, hit["status"], hit["id"], hit["name"]) == (1, "UNKNOWN", None, None)
        server.grant(f"{actor}-c", privileges=(GENERATE,))


def test_token_of_another_server_is_not_sent_to_this_one(server: Server, make_server: Callable[..., Server]) -> None:
    elsewhere = make_server()
    foreign = elsewhere.create(ADMIN)["accessToken"]
    ran = scan(server, "-", "--json", "--revoke", "--yes", stdin=foreign)
    (hit,) = hits(ran)
    assert (ran.returncode, hit["status"], hit["issuer"]) == (1, "FOREIGN", elsewhere.url)
    assert elsewhere.verify(foreign).status_code == 204


def test_purged_token_of_this_server_is_dead(server: Server, lost: Lost) -> None:
    head, _, signature = lost.token.split(".")
    other = base64.urlsafe_b64encode(json.dumps({**_claims(lost.token), "jti": "0"}).encode()).rstrip(b"=").decode()
    ran = scan(server, "-", "--json", stdin=f"{head}.{other}.{signature}")
    assert (ran.returncode, hits(ran)[0]["status"]) == (0, "GONE")


def _claims(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return claims


def wrapped(token: str, between: str) -> bytes:
    return between.join(textwrap.wrap(token, 64)).encode()


FORMS: dict[str, Callable[[str], bytes]] = {
    "a header": lambda token: f"Authorization: Bearer {token}\r\n".encode(),
    "an address": lambda token: f"https://api.example/?token={token}&x=1".encode(),
    "an address with escapes": lambda token: token.replace(".", "%2E").encode(),
    "JSON": lambda token: json.dumps({"a": [token]}).encode(),
    "JSON in JSON": lambda token: json.dumps(json.dumps({"a": token + "\n"})).encode(),
    "lines": lambda token: wrapped(token, "\n") + b"\nand more",
    "lines of Windows": lambda token: wrapped(token, "\r\n") + b"\r\nmore",
    "an answer to a mail": lambda token: b"> " + wrapped(token, "\n> "),
    "a mail in quoted-printable": lambda token: wrapped(token, "=\r\n"),
    "a shell script": lambda token: b"T=" + wrapped(token, "\\\n"),
    "literals of Python": lambda token: b'("' + wrapped(token, '"\n    "') + b'")',
    "literals of JavaScript": lambda token: b"'" + wrapped(token, "' +\n  '") + b"'",
    "lines in JSON": lambda token: json.dumps(wrapped(token, "\n").decode()).encode(),
    "UTF-16": lambda token: f"T = {token}\r\n".encode("utf-16"),
    "a Kubernetes secret": lambda token: b"data:\n  token: " + base64.b64encode(token.encode()) + b"\n",
    "base64 in lines": lambda token: base64.encodebytes(token.encode()),
    "something binary": lambda token: bytes(range(256)) * 9 + token.encode() + bytes(range(256)),
    "words that look alike": lambda token: b"eyJhbGciOiJF\neyJhbGci." * 3 + token.encode() + b"more.of_it-",
}


@pytest.fixture(scope="module", params=["EdDSA", "RS256", "DataHub"])
def sample(request: pytest.FixtureRequest, server: Server) -> str:
    if request.param == "DataHub":
        return datahub_token("urn:li:corpuser:a").token
    token = str(server.create(ADMIN, scopes=["a" * 90] + [f"{n}" for n in range(20)])["accessToken"])
    if request.param == "EdDSA":
        return token
    head = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"0123456789abcdef","typ":"at+jwt"}').decode().rstrip("=")
    return f"{head}.{token.split('.')[1]}.{'A' * 342}"


def found_in(content: bytes, size: int = PIECE_BYTES) -> list[tuple[int, int, str]]:
    """Read in chunks of at most this size, as from a pipe."""
    left = memoryview(content)

    def read(most: int) -> bytes:
        nonlocal left
        piece, left = left[: min(most, size)], left[min(most, size) :]
        return bytes(piece)

    return [(leak.line, leak.column, leak.token.reveal()) for leak in leaks(read)]


@pytest.mark.parametrize("form", FORMS)
def test_scan_finds_a_token_in(sample: str, form: str) -> None:
    assert [token for *_, token in found_in(FORMS[form](sample))] == [sample]
    assert [token for *_, token in found_in(FORMS[form](sample) * 2)] == [sample, sample]


@settings(max_examples=25)
@given(
    size=st.sampled_from([PIECE_BYTES, PIECE_BYTES // 3, 65_536]),
    pieces=st.integers(1, 3),
    nearer=st.integers(-10, 1_000) | st.integers(OVERLAP_BYTES - 1_000, OVERLAP_BYTES + 10),
    lines=st.booleans(),
)
def test_scan_finds_a_token_across_chunk_boundaries(
    sample: str, size: int, pieces: int, nearer: int, lines: bool
) -> None:
    place = max(0, size * pieces - nearer)
    before = (b"\n" if lines else b"x") * place
    (found,) = found_in(before + b" " + sample.encode() + b" " * (OVERLAP_BYTES + 1), size)
    assert found == ((place + 1, 2, sample) if lines else (1, place + 2, sample))


@given(
    st.lists(st.sampled_from([b"eyJhbGci", b"ZXlKaGJHY2l", b".", b"\n", b"\x00", b'"', b"\\n", b"a" * 90]), max_size=60)
)
def test_scan_ignores_lookalikes(pieces: list[bytes]) -> None:
    assert found_in(b"".join(pieces)) == []


def test_scan_skips_pipes_and_links_out_of_the_tree(server: Server, lost: Lost, tmp_path: Path) -> None:
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    tree.mkdir()
    outside.mkdir()
    (outside / "secret").write_text(lost.token)
    (tree / "link").symlink_to(outside / "secret")
    (tree / "folder").symlink_to(outside)
    (tree / "dangling").symlink_to("nowhere")
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "socket"))
        ran = scan(server, str(tree), "--json")
    assert (ran.returncode, hits(ran), ran.stderr) == (0, [], "")
    (given,) = hits(scan(server, str(tree / "link"), "--json"))
    assert given["file"] == str(tree / "link")


def test_scan_reports_unreadable_files_and_continues(server: Server, lost: Lost, tmp_path: Path) -> None:
    server.revoke(lost.id)
    (tmp_path / "there").write_text(lost.token)
    ran = scan(server, str(tmp_path / "absent"), str(tmp_path / "there"), "--json")
    assert (ran.returncode, len(hits(ran))) == (1, 1)
    assert ran.stderr == f"watchword: No such file or directory: {tmp_path}/absent\n"


def test_token_in_a_file_name_is_not_shown(server: Server, lost: Lost, tmp_path: Path) -> None:
    part = lost.token[:200]
    (tmp_path / part).write_text(lost.token)
    for form in ((), ("--json",)):
        ran = scan(server, str(tmp_path), *form)
        assert ran.returncode == 1
        assert part not in ran.stdout + ran.stderr


def test_scan_of_a_large_input_uses_little_memory(server: Server, lost: Lost) -> None:
    """A process limited to 250 MB scans 300 MB."""
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (250_000_000, 250_000_000))\n"
        "sys.argv = ['watchword', 'token', 'scan', '-', '--json']\n"
        "from watchword.__main__ import main\nmain()\n"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdin is not None
    for _ in range(300):
        started.stdin.write(b"nothing here " * 80_000)
    out, _ = started.communicate(lost.token.encode())
    assert [re.sub(r"\d+$", "", str(hit["line"])) for hit in json.loads(out)] == [""]
    assert started.returncode == 1


def git(folder: Path, *words: str) -> str:
    who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *named, *words]
    return subprocess.run(command, env=os.environ | who, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def test_scan_of_a_repository_finds_tokens_in_its_history(server: Server, lost: Lost, tmp_path: Path) -> None:
    """In a deleted file of a branch, in a message, in a dropped commit; each with the oldest commit that has it."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a file").write_text("first\n")
    base = commit(tmp_path, "one")
    git(tmp_path, "checkout", "--quiet", "-b", "other")
    (tmp_path / "a file").write_text(f"first\nTOKEN={lost.token}\n")
    added = commit(tmp_path, "two")
    (tmp_path / "a file").write_text(f"first\nTOKEN={lost.token}\nmore\n")
    commit(tmp_path, "three")
    (tmp_path / "a file").unlink()
    said = commit(tmp_path, f"four\n\nwithout {lost.token}")
    (tmp_path / "dropped").write_text(lost.token)
    dropped = commit(tmp_path, "five")
    git(tmp_path, "reset", "--quiet", "--hard", base)
    ran = scan(server, str(tmp_path), "--json")
    assert ran.returncode == 1
    assert [(hit["commit"], hit["file"], hit["line"]) for hit in hits(ran) if hit["commit"]] == [
        (added, f"{tmp_path}/a file", 2),
        (said, f"{tmp_path}/(commit message)", 3),
        (dropped, f"{tmp_path}/dropped", 1),
    ]
    printed = scan(server, str(tmp_path)).stdout
    assert f"{added[:12]}:{tmp_path}/a file:2:7" in printed
    assert lost.token.rpartition(".")[2] not in printed


def test_scan_of_a_repository_runs_none_of_its_programs(server: Server, lost: Lost, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitattributes").write_text("* diff=evil filter=evil\n")
    (tmp_path / "it").write_text(lost.token)
    commit(tmp_path, "one")
    ran_it = tmp_path.parent / f"{tmp_path.name}-ran"
    evil = f"touch {ran_it}"
    names = ("core.fsmonitor", "core.pager", "diff.evil.textconv", "diff.evil.command", "diff.external", "gpg.program")
    git(tmp_path, "config", "log.showSignature", "true")
    for name in (*names, "filter.evil.clean", "filter.evil.smudge", "core.sshCommand", "core.alternateRefsCommand"):
        git(tmp_path, "config", name, evil)
    assert len(hits(scan(server, str(tmp_path), "--json"))) == 2
    assert not ran_it.exists()


def test_scan_of_a_damaged_repository_says_so(server: Server, lost: Lost, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "it").write_text("nothing")
    commit(tmp_path, "one")
    content = git(tmp_path, "rev-parse", "HEAD:it")
    (tmp_path / ".git/objects" / content[:2] / content[2:]).unlink()
    ran = scan(server, str(tmp_path), "--json")
    assert (ran.returncode, hits(ran)) == (1, [])
    assert ran.stderr == f"watchword: 1 objects are missing in the history: {tmp_path}\n"
