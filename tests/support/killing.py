"""Commands on a database, killed as they send it something."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.pages import environment
from tests.support.postgres import Home
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

RUNNING = "hashtextextended('watchword/running/' || %s, 0)"
"""The number of the lock that says who runs on a schema."""
_AT_WORK = f"""
SELECT 1 FROM pg_locks JOIN pg_class AS c ON c.oid = relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE nspname = %s AND pid <> pg_backend_pid()
UNION ALL SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = {RUNNING}"""


def killed_at(number: int, words: Sequence[str], env: Mapping[str, str] | None = None) -> bool:
    """Whether it was killed as it sent the so manyth message; else it ended well."""
    program = need_program("strace", "strace")
    trace = ["-e", "trace=sendto", "-e", f"inject=sendto:signal=KILL:when={number}"]
    command = [program, "-f", "-o", "/dev/null", *trace, sys.executable, "-m", "watchword", *words]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False, env=environment(**(env or {})))
    assert done.returncode in {0, -signal.SIGKILL, 128 + signal.SIGKILL}, done.stderr
    return done.returncode != 0


def until_left_alone(database: Home) -> None:
    """The server needs a moment to see that a client is gone."""
    until(lambda: not database.address.ask(_AT_WORK, database.schema, database.schema), "nobody is at work on it")
