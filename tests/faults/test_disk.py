"""A disk that fails, fills up or is locked: 503, no partial changes, and recovery after the fault."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.disks import small_disk
from tests.support.lines import Line, wanted
from tests.support.ports import free_port
from tests.support.server import ADMIN, CREATE, REVOKE, GraphQLRefused, Server, watchword
from tests.support.store_file import assert_sound, locked, look, touch
from tests.support.tracing import failing, strace
from tests.support.waiting import SECONDS, until

MakeServer = Callable[..., Server]
Fault = Callable[[Server, Path], AbstractContextManager[object]]

QUIET = {"WATCHWORD_ACCESS_LOG": "off"}
INTERNALS = ("Traceback", "sqlite", "apsw", "watchword.db", "/src/", "SELECT", "INSERT", "Error:")


def failing_flush(server: Server, folder: Path) -> AbstractContextManager[object]:
    (worker,) = server.workers()
    return failing(worker.pid, folder / "strace.log", "fdatasync,fsync", "EIO")


def no_space(server: Server, folder: Path) -> AbstractContextManager[object]:
    (worker,) = server.workers()
    return failing(worker.pid, folder / "strace.log", "pwrite64", "ENOSPC")


def failing_write(server: Server, folder: Path) -> AbstractContextManager[object]:
    (worker,) = server.workers()
    return failing(worker.pid, folder / "strace.log", "pwrite64", "EIO")


def write_lock(server: Server, folder: Path) -> AbstractContextManager[object]:
    return locked(server, "IMMEDIATE")


def exclusive_lock(server: Server, folder: Path) -> AbstractContextManager[object]:
    return locked(server, "EXCLUSIVE")


@contextmanager
def full_disk(server: Server, folder: Path) -> Iterator[None]:
    """The disk is full. The log file may still have room, so some writes succeed at first."""
    filler = server.data_dir / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        try:
            yield
        finally:
            filler.unlink()


FAULTS: dict[str, Fault] = {
    "failing fdatasync": failing_flush,
    "ENOSPC on pwrite64": no_space,
    "EIO on pwrite64": failing_write,
    "write lock": write_lock,
    "exclusive lock": exclusive_lock,
    "full disk": full_disk,
}


@pytest.fixture
def server(make_server: MakeServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    if "full disk" in request.node.name:
        with small_disk(tmp_path / "small", megabytes=8) as disk:
            running = make_server("--data-dir", str(disk), env=QUIET)
            running.data_dir = disk
            yield running
            running.stop()
    else:
        yield make_server(env=QUIET)


@pytest.mark.parametrize("fault", FAULTS)
def test_writes_get_503_while_the_disk_fails_and_recover(
    server: Server, tmp_path: Path, fault: str, actor: str
) -> None:
    kept = [server.create(ADMIN, of=actor) for _ in range(5)]
    told: dict[str, str] = {token["metadata"]["id"]: token["accessToken"] for token in kept}
    ended: set[str] = set()

    with FAULTS[fault](server, tmp_path):
        until(lambda: is_rejected(server, actor, told), "creations are refused")
        # Concurrently: a locked store is waited for two seconds by all waiting requests together.
        with ThreadPoolExecutor() as pool:
            creations = [
                pool.submit(server.post, CREATE, {"input": wanted(actor)}, actor=ADMIN, headers={"Accept": accept})
                for accept in ("application/json", "application/graphql-response+json")
            ]
            revocation = pool.submit(server.post, REVOKE, {"id": kept[0]["metadata"]["id"]}, actor=ADMIN)
            ready = pool.submit(server.http.get, "/health/ready").result()
        for creation in creations:
            assert_unavailable(creation.result(), "createAccessToken")
        assert_unavailable(revocation.result(), "revokeAccessToken")
        assert ready.status_code == 503
        assert int(ready.headers["Retry-After"]) > 0
        assert_nothing_internal(ready)
        # Requests without writes still work.
        assert server.http.get("/health/live").status_code == 200
        assert {server.verify(token).status_code for token in told.values()} == {204}
        assert server.tokens(filters=[{"field": "actorUrn", "value": actor}])["total"] == len(told)

    until(lambda: not is_rejected(server, actor, told), "creations are answered again")
    until(lambda: server.http.get("/health/ready").status_code == 200, "it is ready again")
    ended.add(kept[0]["metadata"]["id"])
    assert server.revoke(kept[0]["metadata"]["id"])
    assert_answers_are_true(server, told, ended, actor)
    server.stop()
    server.start()
    assert_answers_are_true(server, told, ended, actor)


def test_answered_creations_exist_when_flushes_fail_under_load(
    make_server: MakeServer, tmp_path: Path, actor: str
) -> None:
    """Every seventh flush fails, with eight clients whose writes share commits."""
    server = make_server(env=QUIET)
    (worker,) = server.workers()
    answered: list[tuple[str, str]] = []
    refused: list[GraphQLRefused] = []

    def create(line: Line) -> None:
        for _ in range(40):
            try:
                answered.append(line.create(actor))
            except GraphQLRefused as refusal:
                refused.append(refusal)

    lines = [Line(server) for _ in range(8)]
    calls = "fdatasync,fsync"
    flags = ("-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO:when=5+7")
    with strace(worker.pid, tmp_path / "strace.log", *flags):
        threads = [threading.Thread(target=create, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * SECONDS)
            assert not thread.is_alive()
    assert {refusal.reason for refusal in refused} == {"store_unavailable"}
    told = dict(answered)
    assert told
    assert_answers_are_true(server, told, set(), actor)
    server.kill()
    server.start()
    assert {server.verify(token).status_code for token in told.values()} == {204}
    assert_sound(server)


def test_no_token_is_accepted_while_the_file_is_unreadable(make_server: MakeServer, tmp_path: Path, actor: str) -> None:
    server = make_server(env=QUIET)
    (worker,) = server.workers()
    token = server.create(ADMIN, of=actor)["accessToken"]
    assert server.verify(token).status_code == 204
    with failing(worker.pid, tmp_path / "strace.log", "pread64", "EIO"):
        touch(server)
        answer = server.verify(token)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert answer.json()["error"]["reason"] == "store_unavailable"
        assert_nothing_internal(answer)
        listing = server.post("{ listAccessTokens { total } }", token=token)
        assert listing.status_code == 503
        assert listing.json()["errors"][0]["extensions"]["code"] == 503
        assert int(listing.headers["Retry-After"]) > 0
        assert_nothing_internal(listing)
    until(lambda: server.verify(token).status_code == 204, "it is accepted again")
    assert_sound(server)


def test_waiting_writes_share_a_flush(make_server: MakeServer, tmp_path: Path, actor: str) -> None:
    server = make_server(env=QUIET)
    (worker,) = server.workers()
    lines = [Line(server) for _ in range(32)]
    with strace(worker.pid, tmp_path / "strace.log", "-e", "trace=fdatasync,fsync") as log:
        threads = [threading.Thread(target=line.create_many, args=(actor, 20)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * SECONDS)
            assert not thread.is_alive()
    created: int = look(server, "SELECT count(*) FROM tokens")[0][0]
    flushes = sum("sync(" in call for call in log.read_text().splitlines())
    assert created == 32 * 20
    assert 0 < flushes < created / 2


def is_rejected(server: Server, actor: str, told: dict[str, str]) -> bool:
    answer = server.post(CREATE, {"input": wanted(actor)}, actor=ADMIN)
    assert_nothing_internal(answer)
    content = answer.json()
    if "errors" in content:
        assert content["errors"][0]["extensions"]["code"] == 503, content
        return True
    created = content["data"]["createAccessToken"]
    told[created["metadata"]["id"]] = created["accessToken"]
    return False


def assert_unavailable(answer: httpx.Response, field: str) -> None:
    content: dict[str, Any] = answer.json()
    assert answer.status_code == 200
    assert content["data"] == {field: None}
    (error,) = content["errors"]
    assert error["extensions"] == {"code": 503, "type": "UNAVAILABLE", "reason": "store_unavailable"}
    assert_nothing_internal(answer)


def assert_nothing_internal(answer: httpx.Response) -> None:
    said = f"{json.dumps(dict(answer.headers))}\n{answer.text}"
    assert [word for word in INTERNALS if word in said] == [], said


def assert_answers_are_true(server: Server, told: dict[str, str], ended: set[str], actor: str) -> None:
    verdicts = {token_id: server.verify(token).status_code for token_id, token in told.items()}
    assert verdicts == {token_id: 401 if token_id in ended else 204 for token_id in told}
    total = server.tokens(filters=[{"field": "actorUrn", "value": actor}], count=0)["total"]
    assert total == len(told) - len(ended), "there are tokens of which nobody was told"
    assert_sound(server)


@pytest.mark.parametrize("free", [0, 40_000, 120_000, 250_000, 500_000, 700_000])
def test_start_on_a_full_disk_is_refused_in_one_sentence(tmp_path: Path, free: int) -> None:
    with small_disk(tmp_path / "disk", 2) as disk:
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while filler.tell() < 2 * 1024 * 1024 - free:
                filler.write(bytes(10_000))
        done = watchword("serve", "--data-dir", str(disk / "data"), "--port", str(free_port()))
        assert done.returncode == 1
        said = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert len(said) == 1
        assert re.match(r"watchword: The .*disk.* is full\.", said[0])
