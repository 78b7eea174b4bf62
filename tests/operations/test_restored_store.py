"""A restored store: operations that ran during the backup are cancelled, and no id is reused."""

import time
from pathlib import Path

from tests.operations.copies import MakeServer
from tests.support.indexed import EmbeddedIndex, Series, times
from tests.support.server import ADMIN
from tests.support.store_file import assert_sound
from tests.support.waiting import until

HOUR = 3_600_000


def test_operation_in_a_restored_backup_is_cancelled_and_ids_are_not_reused(
    make_server: MakeServer, tmp_path: Path
) -> None:
    server = make_server("--index-rate", "100")
    index = EmbeddedIndex()
    start = time.time_ns() // 1_000_000
    series = Series(server, index, server.create(ADMIN)["accessToken"])
    rows = times(1_500, start - HOUR, step=1)
    series.load(rows)
    first = series.truncate(start - HOUR - 600, forceReindex=True, batchSize=50)
    until(lambda: series.operation(first)["rowsDone"] > 0, "it is under way")
    backup = tmp_path / "backup.db"
    assert server.command_line("db", "backup", str(backup)).returncode == 0
    assert series.over(first)["state"] == "DONE"
    kept = series.rows()
    second = series.truncate(0)
    series.over(second)

    server.stop()
    done = server.command_line("db", "restore", str(backup), "--accept-revived-tokens")
    assert done.returncode == 0, done.stderr
    server.start()
    # The rows were deleted before the restore; only the state is left to record.
    assert series.over(first)["state"] in ("DONE", "CANCELLED")
    assert series.rows() == kept
    third = series.truncate(0)
    assert int(third.partition(":")[2]) > int(second.partition(":")[2])
    assert series.over(third)["state"] == "DONE"
    assert_sound(server)
