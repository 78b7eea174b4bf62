"""Power loss: unflushed data is lost, and every answered change is kept. Answers after the cut began do not count:
without power there would be none. Here there may be one, because a flush running while ext4 shuts down can return
success (seen with plain writes, without a store)."""

import os
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.concurrent_load import Answers, ConcurrentLoad
from tests.support.disks import FallibleDisk
from tests.support.server import Server
from tests.support.store_file import assert_sound


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FallibleDisk]:
    made = FallibleDisk(tmp_path / "fallible")
    yield made
    made.remove()


@pytest.fixture
def server(disk: FallibleDisk, tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server", "--workers", "2", env={"WATCHWORD_ACCESS_LOG": "off"})
    made.data_dir = disk.path / "data"
    made.start()
    yield made
    made.kill()
    made.http.close()


def lose_power_repeatedly(server: Server, disk: FallibleDisk, rounds: int) -> None:
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    moments = random.Random(seed)
    told = Answers()
    for _ in range(rounds):
        with ConcurrentLoad(server, on_refusal="go on") as load:
            load.until_answered()
            time.sleep(moments.uniform(0, 0.4))
            load.seal()
            disk.cut_power()
            load.until_rejected()
            server.kill()
        assert {error["extensions"]["code"] for errors in load.answers.refused for error in errors} == {503}
        disk.power_on()
        server.start()
        told.add(load.answers)
        told.assert_kept(server)
        assert_sound(server)
    assert told.revoked


def test_answered_changes_survive_a_power_loss(server: Server, disk: FallibleDisk) -> None:
    lose_power_repeatedly(server, disk, rounds=2)


@pytest.mark.soak
def test_answered_changes_survive_twenty_power_losses(server: Server, disk: FallibleDisk) -> None:
    lose_power_repeatedly(server, disk, rounds=20)
