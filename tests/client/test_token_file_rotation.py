"""Rotation of a token in a file: the file always has a working token."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.breaker import Breaker
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store
from watchword.client import Client, Conflict, Unauthenticated, Unreachable, WatchwordError, rotate_file


@pytest.fixture
def file(server: Server, tmp_path: Path, actor: str) -> Path:
    """A token file of an actor who may rotate it."""
    server.grant(actor)
    (tmp_path / "keys").mkdir()
    return written(tmp_path / "keys" / "token", server.create(actor)["accessToken"])


def written(path: Path, token: str) -> Path:
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path


def names(file: Path) -> list[str]:
    return [entry.name for entry in file.parent.iterdir()]


def whose(server: Server, file: Path) -> str:
    answer = server.verify(file.read_text().strip())
    assert answer.status_code == 204
    return answer.headers["X-Auth-Token-Id"]


def test_file_gets_the_successor_whose_use_begins_the_grace(server: Server, file: Path) -> None:
    old = file.read_text().strip()
    file.chmod(0o440)
    rotated = rotate_file(file, server.url, grace="PT0S")
    assert rotated.problem is None
    assert whose(server, file) == rotated.metadata.id
    assert server.verify(old).status_code == 401
    assert stat.S_IMODE(file.stat().st_mode) == 0o440
    assert file.read_text().endswith("\n")
    assert names(file) == ["token"]
    assert old not in repr(rotated)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_stays_with_its_owner(server: Server, file: Path) -> None:
    os.chown(file, 1234, 4321)
    rotate_file(file, server.url)
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)


def test_link_leads_to_the_file_and_stays_a_link(server: Server, file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    before = file.read_text()
    rotate_file(link, server.url)
    assert link.is_symlink()
    assert file.read_text() != before
    assert whose(server, link)


def two_names(file: Path) -> None:
    os.link(file, file.with_name("other"))


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def something_else(file: Path) -> None:
    file.write_text("TOKEN=abc def\n")


def nothing(file: Path) -> None:
    file.write_text("\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (two_names, "more than one name"),
        (a_pipe, "regular"),
        (something_else, "nothing else"),
        (nothing, "nothing else"),
    ],
)
def test_file_without_a_token_is_left_unchanged(
    server: Server, file: Path, make: Callable[[Path], None], said: str
) -> None:
    make(file)
    with pytest.raises(ValueError, match=said):
        rotate_file(file, server.url)
    assert not [name for name in names(file) if name.endswith(".watchword")]


def test_unwritable_file_requests_no_new_token(server: Server) -> None:
    with Breaker(server.url) as between:
        with pytest.raises(OSError, match="/proc/sys/kernel"):
            rotate_file("/proc/sys/kernel/hostname", between.url)  # text in a folder that accepts no files
        assert between.seen == []


def dying_at(step: int, deed: Callable[[], Any]) -> bool:
    """Run it in a process that is killed before its n-th outward step; return whether it finished."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    steps = count(1)

    def at_each(event: str, _: tuple[Any, ...]) -> None:
        if event in {"open", "os.rename", "os.remove", "socket.connect", "shutil.copystat"} and next(steps) == step:
            os._exit(9)

    try:
        sys.addaudithook(at_each)
        deed()
        os._exit(0)
    finally:
        os._exit(1)


def deaths(deed: Callable[[], Any]) -> Iterator[int]:
    for step in count(1):
        assert step < 100, "it never comes to its end"
        if dying_at(step, deed):
            return
        yield step


def test_rotation_killed_at_any_step_leaves_a_working_token(server: Server, file: Path, actor: str) -> None:
    seen = set()
    for _ in deaths(lambda: rotate_file(file, server.url, grace="PT0S")):
        before = file.read_text()
        seen.add(whose(server, file))
        rotated = rotate_file(file, server.url, grace="PT0S")
        assert file.read_text() != before
        assert whose(server, file) == rotated.metadata.id
        assert names(file) == ["token"]
    assert len(seen) > 5


def nth(number: int) -> Callable[[bytes], bool]:
    asked = count(1)
    return lambda _: next(asked) == number


@pytest.mark.parametrize("number", [1, 2, 3])
def test_lost_answer_is_asked_for_again(server: Server, file: Path, number: int) -> None:
    with Breaker(server.url) as between:
        between.lose_answer(nth(number), times=1)
        rotated = rotate_file(file, between.url)
        assert (rotated.problem, len(between.seen)) == (None, 5)
    assert whose(server, file) == rotated.metadata.id


def test_repeated_rotation_after_a_lost_response_gets_the_same_token(server: Server, file: Path) -> None:
    with Breaker(server.url) as between:
        between.lose_answer(nth(2), times=1)
        with pytest.raises(Unreachable):
            rotate_file(file, between.url, retries=0)
    old = whose(server, file)
    with Client(server.url, actor=ADMIN) as admin:
        lost = admin.tokens.get(old).replaced_by
    copy = written(file.with_name("copy"), file.read_text().strip())
    assert rotate_file(file, server.url).metadata.id == lost
    assert rotate_file(copy, server.url).metadata.id == lost
    assert file.read_text() == copy.read_text()


def test_asked_for_in_another_way_it_is_another_successor(server: Server, file: Path) -> None:
    with Breaker(server.url) as between:
        between.lose_answer(nth(2), times=1)
        with pytest.raises(Unreachable):
            rotate_file(file, between.url, retries=0)
    rotated = rotate_file(file, server.url, grace="PT1H")
    assert whose(server, file) == rotated.metadata.id


def test_successor_that_cannot_be_used_yet_stays_in_the_file_and_waits(server: Server, file: Path) -> None:
    old = file.read_text().strip()
    with Breaker(server.url) as between:
        between.answer(lambda line: b" /auth " in line, 502, b"<h1>Hello</h1>")
        rotated = rotate_file(file, between.url, grace="PT0S")
    assert "502" in (rotated.problem or "")
    assert server.verify(old).status_code == 204
    assert whose(server, file) == rotated.metadata.id
    assert server.verify(old).status_code == 401


def test_successor_that_is_rejected_is_taken_out_again(server: Server, file: Path) -> None:
    old = file.read_text()
    refusal = b'{"error": {"code": 401, "type": "UNAUTHENTICATED", "reason": "invalid_token", "message": "No."}}'
    with Breaker(server.url) as between:
        between.answer(lambda line: b" /auth " in line, 401, refusal)
        with pytest.raises(Unauthenticated):
            rotate_file(file, between.url)
    assert file.read_text() == old
    assert whose(server, file)
    assert names(file) == ["token"]


def test_token_limited_to_other_networks_gets_no_successor(server: Server, file: Path, actor: str) -> None:
    """It could not be verified from here, whoever asks for it."""
    made = server.create(actor, allowedNetworks=["10.0.0.0/8"], name="elsewhere")
    written(file, made["accessToken"])
    with Client(server.url, actor=ADMIN) as admin:
        with pytest.raises(WatchwordError, match=r"to the networks 10\.0\.0\.0/8, .* Nothing was changed\."):
            rotate_file(file, server.url, asked_by=admin)
        assert file.read_text().strip() == made["accessToken"]
        found = admin.tokens.get(made["metadata"]["id"])
        assert (found.status, found.replaced_by) == ("ACTIVE", None)
    said = watchword("token", "rotate", "--file", str(file), "--url", server.url, "--as", ADMIN)
    assert (said.returncode, said.stdout, said.stderr.count("\n")) == (1, "", 1)
    assert "a successor could not be verified. Nothing was changed. Rotate it from one of those" in said.stderr
    here = server.create(actor, allowedNetworks=["127.0.0.0/8"])
    written(file, here["accessToken"])
    assert rotate_file(file, server.url).problem is None


def test_another_caller_rotates_a_token_that_cannot_rotate_itself(server: Server, file: Path, actor: str) -> None:
    server.grant(actor, scopes=("orders:read",))
    written(
        file, server.create(actor, scopes=["orders:read"], audience=["https://api.example", server.url])["accessToken"]
    )
    with Client(server.url, actor=ADMIN) as admin:
        rotated = rotate_file(file, server.url, asked_by=admin)
        held = {"Authorization": f"Bearer {file.read_text().strip()}"}
        asked = server.http.get("/auth?watchword.audience=https://api.example", headers=held)
        assert (asked.status_code, asked.headers["X-Auth-Token-Id"]) == (204, rotated.metadata.id)
        assert rotated.problem is None
        assert admin.tokens.get(rotated.metadata.id).awaits_first_use is False
        change_store(server, "UPDATE tokens SET grace = 0, full_end = expires_at WHERE id = ?", rotated.metadata.id)
        again = rotate_file(file, server.url, asked_by=admin)
        assert again.metadata.id == rotated.metadata.id, "what still waits for its first use is used, not rotated"
        assert admin.tokens.get(again.metadata.id).awaits_first_use is False


def test_concurrently_written_token_file_is_kept(server: Server, file: Path, actor: str) -> None:
    other = server.create(actor)["accessToken"]

    def write(line: bytes) -> bool:
        written(file, other)
        return False

    with Breaker(server.url) as between:
        between.answer(write, 500)
        with pytest.raises(OSError, match="meanwhile"):
            rotate_file(file, between.url)
    assert file.read_text().strip() == other
    assert names(file) == ["token"]


def test_dead_token_stays_where_it_is(server: Server, file: Path) -> None:
    token_id = whose(server, file)
    before = file.read_text()
    server.revoke(token_id)
    with pytest.raises(Unauthenticated):
        rotate_file(file, server.url)
    with Client(server.url, actor=ADMIN) as admin, pytest.raises(Conflict):
        rotate_file(file, server.url, asked_by=admin)
    assert file.read_text() == before
