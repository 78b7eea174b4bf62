"""The event stream of two instances on one database."""

from pathlib import Path

from tests.support.concurrent_load import ConcurrentLoad
from tests.support.event_lines import numbers
from tests.support.postgres import Home
from tests.support.server import ADMIN, Server
from tests.support.waiting import until


def test_one_instance_sends_until_it_is_killed_then_the_other(database: Home, tmp_path: Path) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    servers = [
        Server(tmp_path / file.stem, "--local-mode", "on", "--event-stream", str(file), env=database.env)
        for file in files
    ]

    def last() -> int:
        seq: int = database.look("SELECT max(seq) FROM events")[0][0]
        return seq

    with servers[0], servers[1]:
        servers[1].create(ADMIN)
        until(lambda: any(numbers(file) for file in files), "one sends")
        sender = 0 if numbers(files[0]) else 1
        with ConcurrentLoad(servers[1 - sender], clients=4) as load:
            load.until_answered()
            until(lambda: len(numbers(files[sender])) > 20, "it sends on")
            assert numbers(files[1 - sender]) == []
            servers[sender].kill()
            until(lambda: bool(numbers(files[1 - sender])), "the other sends")
        until(lambda: numbers(files[1 - sender])[-1] == last(), "the last event was sent")
        sent = [numbers(files[sender]), numbers(files[1 - sender])]
        for of_one in sent:
            assert of_one == sorted(set(of_one))
        stored = database.look("SELECT seq FROM events WHERE seq >= %s ORDER BY seq", sent[0][0])
        assert sorted({*sent[0], *sent[1]}) == [seq for (seq,) in stored]
