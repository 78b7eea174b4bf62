"""The event stream: every event at least once, in order, whatever happens to the sender or the target."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.concurrent_load import ConcurrentLoad
from tests.support.disks import small_disk
from tests.support.event_lines import numbers, parsed
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.store_file import change_store, last_event, look
from tests.support.system import need_program, need_root
from tests.support.tracing import strace
from tests.support.waiting import SECONDS, until

MakeServer = Callable[..., Server]
QUIET = {"WATCHWORD_ACCESS_LOG": "off"}
EXPIRE = "UPDATE event_cursors SET held_until = 0"
"""What time would do to the lease of a sender that was killed."""


def until_all(server: Server, *files: Path) -> None:
    """Wait until everything that is stored was sent."""
    until(lambda: last_event(server) in numbers(*files), "the last event was sent")


def assert_at_least_once(server: Server, start: int, *files: Path) -> None:
    """In order, but for what was sent again after a fault; nothing that is not stored."""
    found = numbers(*files)
    first = list(dict.fromkeys(found))
    assert first == sorted(first)
    stored = look(server, "SELECT seq, action, target FROM events WHERE seq > ? ORDER BY seq", start)
    lines = [parsed(file.read_text()) for file in files]
    sent = {
        (one["event"]["sequence"], one["event"]["action"], one["watchword"]["target"])
        for good, _ in lines
        for one in good
    }
    assert sorted(sent) == stored
    texts = "\n".join(file.read_text() for file in files)
    assert [line for _, cut in lines for line in cut if texts.count(line) < 2] == []


def kill_repeatedly(make_server: MakeServer, file: Path, rounds: int) -> None:
    server = make_server("--event-stream", str(file), "--workers", "2", env=QUIET)
    start = look(server, "SELECT max(seq) FROM events")[0][0]
    for _ in range(rounds):
        with ConcurrentLoad(server, clients=4) as load:
            load.until_answered()
            seen = len(numbers(file))
            until(lambda seen=seen: len(numbers(file)) > seen, "events are sent")  # type: ignore[misc]
            server.kill()
        change_store(server, EXPIRE)
        server.start()
    until_all(server, file)
    assert_at_least_once(server, start, file)


def test_killed_sender_loses_no_event(make_server: MakeServer, tmp_path: Path) -> None:
    kill_repeatedly(make_server, tmp_path / "events.jsonl", rounds=4)


@pytest.mark.soak
def test_sender_killed_a_hundred_times_loses_no_event(make_server: MakeServer, tmp_path: Path) -> None:
    kill_repeatedly(make_server, tmp_path / "events.jsonl", rounds=100)


def test_rotated_removed_and_blocked_file(make_server: MakeServer, tmp_path: Path) -> None:
    file, rotated = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    server = make_server("--event-stream", str(file), env=QUIET)
    start = last_event(server)
    server.create(ADMIN)
    until_all(server, file)
    assert file.stat().st_mode & 0o777 == 0o600

    file.rename(rotated)
    server.create(ADMIN)
    until_all(server, file)
    assert_at_least_once(server, start, rotated, file)

    file.unlink()
    server.create(ADMIN)
    until_all(server, file)
    assert numbers(file) == [last_event(server)]

    file.unlink()
    file.mkdir()
    server.create(ADMIN)
    until(lambda: health(server).get("failing") == ["event-stream"], "the health check shows it")
    file.rmdir()
    until_all(server, file)
    said = [line for line in server.err.read_text().splitlines() if "event-stream" in line]
    assert len(said) == 1
    assert "Is a directory" in said[0]


def test_planted_file_gets_no_event(make_server: MakeServer, tmp_path: Path) -> None:
    """Another user made it, or can read it: in a folder that others may write to."""
    need_root("to make files of another user")
    file, victim = tmp_path / "events.jsonl", tmp_path / "victim"
    server = make_server("--event-stream", str(file), env=QUIET)
    server.create(ADMIN)
    until_all(server, file)

    def link() -> None:
        file.symlink_to(victim)

    def hard_link() -> None:
        file.hardlink_to(victim)

    def other_owner() -> None:
        file.touch(0o666)
        os.chown(file, 65_534, 65_534)

    def open_to_all() -> None:
        file.touch()
        file.chmod(0o644)

    for plant, told in (
        (link, "is a link, which is not followed"),
        (hard_link, "is a hard link to another file"),
        (other_owner, "belongs to another user (nobody)"),
        (open_to_all, "is open to other users (mode 0644)"),
    ):
        victim.write_text("precious")
        file.unlink()
        plant()
        server.create(ADMIN)
        until(lambda: health(server).get("failing") == ["event-stream"], "the health check shows it")
        until(lambda told=told: told in server.err.read_text(), "the log says why")  # type: ignore[misc]
        assert victim.read_text() == "precious"
        assert file.read_text() in {"", "precious"}
        file.unlink()
        until_all(server, file)
    file.chmod(0o640)  # for the group of a collector
    server.create(ADMIN)
    until_all(server, file)


def health(server: Server) -> Any:
    return server.http.get("/health/ready").json()["parts"].get("background", {})


def test_full_disk_holds_the_stream_up_and_nothing_else(make_server: MakeServer, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        file, filler = disk / "events.jsonl", disk / "filler"
        server = make_server("--event-stream", str(file), env=QUIET)
        start = last_event(server)
        server.create(ADMIN)
        until_all(server, file)
        fill(filler)
        while not health(server):
            server.create(ADMIN)
        filler.unlink()
        until_all(server, file)
        assert_at_least_once(server, start, file)
        server.stop()


@pytest.mark.soak
def test_slow_disk_does_not_cost_the_lease(make_server: MakeServer, tmp_path: Path) -> None:
    """A flush takes longer than a lease lasts; the event is sent once."""
    file = tmp_path / "events.jsonl"
    server = make_server("--event-stream", str(file), env=QUIET)
    (worker,) = server.workers()
    with strace(worker.pid, tmp_path / "strace.log", "-e", "trace=fsync", "-e", "inject=fsync:delay_enter=7s"):
        server.create(ADMIN)
        last = [(last_event(server),)]
        until(lambda: look(server, "SELECT seq FROM event_cursors WHERE name = 'stream'") == last, "the cursor moves")
    assert numbers(file) == [last[0][0]]


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as full, suppress(OSError):
        while True:
            full.write(bytes(4096))


RSYSLOG = r"""
module(load="imudp") input(type="imudp" address="127.0.0.1" port="{port}")
module(load="imtcp") input(type="imtcp" address="127.0.0.1" port="{port}")
module(load="imuxsock" SysSock.Use="off") input(type="imuxsock" Socket="{folder}/log" CreatePath="off")
template(name="parts" type="string"
    string="%inputname% %syslogfacility-text% %app-name% %msgid% %msg:::drop-last-lf%\n")
action(type="omfile" file="{folder}/got" template="parts")
"""


@contextmanager
def rsyslog(folder: Path) -> Iterator[int]:
    """Debian's rsyslog at a port by UDP and TCP, and at the socket `log`. Writes what it understood to `got`."""
    program, port = need_program("rsyslogd", "rsyslog"), free_port()
    (folder / "conf").write_text(RSYSLOG.format(port=port, folder=folder))
    with subprocess.Popen([program, "-n", "-f", folder / "conf", "-i", folder / "pid"]) as process:
        until((folder / "log").exists, "rsyslog listens")
        yield port
        process.terminate()


def test_other_targets_continue_where_the_last_one_stopped(
    make_server: MakeServer, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, logs = tmp_path / "server", tmp_path_factory.mktemp("s")
    out, got = folder / "stdout.log", logs / "got"
    made: list[str] = []

    def run(target: str, file: Path) -> None:
        """Send an event to a target, and wait until it has arrived."""
        server = make_server("--event-stream", target, folder=folder, env=QUIET)
        made.append(server.create(ADMIN)["metadata"]["id"])
        until(lambda: file.exists() and made[-1] in file.read_text(), f"{target} got the event")
        server.stop()

    run("stdout", out)
    with rsyslog(logs) as port:
        run(f"syslog:127.0.0.1:{port}", got)
        run(f"syslog+tcp:127.0.0.1:{port}", got)
        run(f"syslog:{logs}/log", got)
    printed = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    parts = [line.split(maxsplit=4) for line in got.read_text().splitlines()]
    received = [json.loads(line) for *_, line in parts]
    created = [one["watchword"]["target"] for one in printed + received if one["event"]["action"] == "token.created"]
    assert created == made
    by = {source: (facility, app, action) for source, facility, app, action, _ in parts}
    assert by == {
        "imudp": ("authpriv", "watchword", "token.created"),
        "imtcp": ("authpriv", "watchword", "token.created"),
        "imuxsock": ("authpriv", "watchword", "-"),
    }
    sequence = [one["event"]["sequence"] for one in printed + received]
    assert sequence == sorted(set(sequence))


BLOCKED = """
import sys
from watchword.audit import sinks
from watchword.journal.events import StreamTarget, Transport
from watchword.journal.events import KeptEvent
sinks.PATIENCE_SECONDS = 0.2
sink = sinks.open_sink(StreamTarget(Transport.STDOUT))
while True:
    try:
        sink.write([KeptEvent(1, "a", None, "token.created", "t", "unix", "r", {"long": "x" * 100_000}, 7)])
        break
    except TimeoutError:
        print("blocked", file=sys.stderr, flush=True)
"""


def test_event_cut_off_in_a_pipe_comes_again_on_its_own_line() -> None:
    with subprocess.Popen([sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"blocked\n"
        text = process.stdout.read().decode()
    good, cut = parsed(text)
    assert text.startswith("\n")
    assert [event["event"]["sequence"] for event in good] == [7]
    assert any(cut)


def test_stop_answers_requests_that_wait(make_server: MakeServer) -> None:
    server = make_server(env=QUIET)
    token = server.create(ADMIN)["accessToken"]
    after = last_event(server)
    with ThreadPoolExecutor(1) as pool:
        url, headers = f"{server.url}/events?after={after}&wait=30", {"Authorization": f"Bearer {token}"}
        answer = pool.submit(httpx.get, url, headers=headers, timeout=SECONDS, verify=False)
        (worker,) = server.workers()
        until(lambda: any(one.status == "ESTABLISHED" for one in worker.net_connections()), "the request waits")
        worker.send_signal(signal.SIGTERM)
        # The use of the token may have made an event meanwhile.
        assert (answer.result().status_code, answer.result().json()["next"] >= after) == (200, True)
