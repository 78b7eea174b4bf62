"""PgBouncer in session mode."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.support.ports import free_port
from tests.support.postgres import DATABASE, USER, Home, runs_as
from tests.support.server import ADMIN, Server
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until

SETTINGS = """\
[databases]
{database} = host=127.0.0.1 port={upstream} dbname={database} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = session
unix_socket_dir =
"""


@contextmanager
def pgbouncer(home: Home) -> Iterator[dict[str, str]]:
    """The environment of a service that connects through PgBouncer."""
    program = need_program("pgbouncer", "pgbouncer")
    port = free_port()
    text = SETTINGS.format(database=DATABASE, upstream=home.address.port, user=USER, port=port)
    who = ["runuser", "-u", runs_as(), "--"] if runs_as() else []  # PgBouncer refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="watchword-pooler-", dir="/tmp" if who else None))
    folder.chmod(0o755)
    (folder / "pooler.ini").write_text(text)
    (folder / "pooler.ini").chmod(0o644)
    process = subprocess.Popen([*who, program, "-q", str(folder / "pooler.ini")], stderr=subprocess.DEVNULL)
    url = f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"

    def accepts_connections() -> bool:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        until(accepts_connections, "the pooler answers")
        yield home.env | {"WATCHWORD_DATABASE_URL": url}
    finally:
        process.terminate()
        process.wait(SECONDS)
        shutil.rmtree(folder)


def test_tokens_are_created_verified_and_revoked_through_pgbouncer(database: Home, tmp_path: Path) -> None:
    with pgbouncer(database) as env, Server(tmp_path / "server", "--local-mode", "on", env=env) as server:
        made = server.create(ADMIN)
        assert server.verify(made["accessToken"]).status_code == 204
        assert server.revoke(made["metadata"]["id"])
        assert server.verify(made["accessToken"]).status_code == 401
