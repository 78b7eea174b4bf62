"""`kill -9` at any time: answered changes are kept, and the store stays intact."""

import os
import random
import secrets
import subprocess
import time
from collections.abc import Callable

import psutil
import pytest

from tests.support.concurrent_load import Answers, ConcurrentLoad
from tests.support.lines import holder, lines_to_each_worker
from tests.support.server import ADMIN, Server, is_worker
from tests.support.store_file import assert_sound
from tests.support.waiting import is_alive, until, until_gone
from watchword.app.server import STOP_SECONDS
from watchword.index.embedded.process import PROCESS_NAME

QUIET = {"WATCHWORD_ACCESS_LOG": "off"}
MakeServer = Callable[..., Server]


def kill_repeatedly(make_server: MakeServer, rounds: int) -> None:
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    moments = random.Random(seed)
    server = make_server("--workers", "2", env=QUIET)
    told = Answers()
    for _ in range(rounds):
        with ConcurrentLoad(server, clients=6) as load:
            load.until_answered()
            time.sleep(moments.uniform(0, 0.15))
            server.kill()
        assert load.answers.refused == []
        server.start()
        load.answers.assert_kept(server)
        told.add(load.answers)
    assert_sound(server)  # damage would persist
    assert len(told.created) > rounds
    assert told.revoked
    told.assert_kept(server)


def test_answered_changes_survive_a_kill_of_the_server(make_server: MakeServer) -> None:
    kill_repeatedly(make_server, rounds=5)


@pytest.mark.soak
@pytest.mark.parametrize("half", range(2))
def test_answered_changes_survive_two_hundred_kills_of_the_server(make_server: MakeServer, half: int) -> None:
    kill_repeatedly(make_server, rounds=100)


def test_workers_exit_with_a_killed_main_process(make_server: MakeServer) -> None:
    server = make_server("--workers", "2", env=QUIET)
    assert server.process is not None
    workers = server.workers()
    assert len(workers) == 2
    server.process.kill()
    server.process.wait()
    until_gone(workers)
    server.process = None
    server.start()
    server.create(ADMIN)


def test_starting_workers_exit_with_a_killed_main_process(make_server: MakeServer) -> None:
    server = make_server("--workers", "2", env=QUIET)
    server.stop()
    for _ in range(3):
        main, workers = half_started(server)
        main.kill()
        main.wait()
        try:
            until_gone(workers)
        finally:
            for worker in filter(is_alive, workers):
                worker.kill()


def test_server_stopped_while_starting_exits_cleanly(make_server: MakeServer) -> None:
    before_they_are_killed = STOP_SECONDS - 5
    server = make_server("--workers", "2", env=QUIET)
    server.stop()
    for _ in range(3):
        main, workers = half_started(server)
        main.terminate()
        assert main.wait(before_they_are_killed) == 0
        until_gone(workers)
    for _ in range(3):
        server.start()
        assert server.stop(before_they_are_killed) == 0


def half_started(server: Server) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """A main process that has just started a worker."""
    with server.out.open("ab") as out, server.err.open("ab") as err:
        main = subprocess.Popen(server.command, stdout=out, stderr=err, start_new_session=True)
    family = psutil.Process(main.pid)
    until(
        lambda: PROCESS_NAME in map(name_of, family.children()),
        "the index",
    )
    # The index process looks like a worker until it has its own name, and is started first.
    until(lambda: any(map(is_worker, family.children())), "a worker was started")
    return main, family.children()


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def test_killed_worker_is_replaced(make_server: MakeServer) -> None:
    server = make_server("--workers", "2", env=QUIET)
    before = server.workers()
    lines = {holder(before, line.port): line for line in lines_to_each_worker(server)}
    lost, left = before
    token_id, token = lines[lost.pid].create(ADMIN)
    lost.kill()
    assert lines[left.pid].verify(token) == 204
    assert lines[left.pid].revoke(token_id)
    until(lambda: len({w.pid for w in server.workers()} - {lost.pid}) == 2, "there are two workers again")
    until(lambda: all(listens(worker) for worker in server.workers()), "both listen")
    for line in lines_to_each_worker(server):
        assert line.verify(token) == 401
        assert line.verify(line.create(ADMIN)[1]) == 204
    assert_sound(server)


def test_creations_answered_by_a_killed_worker_are_kept(make_server: MakeServer) -> None:
    server = make_server("--workers", "2", env=QUIET)
    with ConcurrentLoad(server) as load:
        until(lambda: load.created_so_far > 20, "some creations are answered")
        lost = server.workers()[0]
        lost.kill()
        until_gone([lost])
        until(lambda: len(server.workers()) == 2 and all(map(listens, server.workers())), "there are two workers again")
    assert load.answers.refused == []
    load.answers.assert_kept(server)
    assert_sound(server)


def listens(process: psutil.Process) -> bool:
    try:
        return any(end.status == psutil.CONN_LISTEN for end in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False
