"""Database errors while the service runs: 503 with the cause and no internals; then recovery."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.postgres import LOCKED, PASSWORD, Cluster, Home, home
from tests.support.server import Server
from tests.support.waiting import until

INTERNALS = ("127.0.0.1", "asyncpg", "SELECT", "UPDATE", "Error", "Traceback", LOCKED, "hunter2", "correct horse", "ww")


class RunningService:
    def __init__(self, database: Home, server: Server, token: str) -> None:
        self.database, self.server, self.token = database, server, token

    def run_as_admin(self, *statements: str) -> None:
        """Run the statements, then terminate the service's connections, as a server restart does."""
        with self.database.address.connect() as connection:
            connection.execute("SET default_transaction_read_only = off")
            for statement in statements:
                connection.execute(statement.encode())
        self.database.address.terminate_backends(f"usename = '{LOCKED}'")

    def ready(self) -> Any:
        return self.server.http.get("/health/ready").json()["parts"]["store"]


@pytest.fixture(scope="module")
def service(durable_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("later")
    with home(durable_cluster, folder, user=LOCKED, password=PASSWORD) as made:
        durable_cluster.ask(f"CREATE SCHEMA {made.schema} AUTHORIZATION {LOCKED}")
        env = made.env | {"WATCHWORD_DATABASE_TIMEOUT": "1"}
        with Server(folder / "server", env=env) as server:
            done = server.command_line("token", "create", "--local", env=env)
            yield RunningService(made, server, done.stdout.strip())


@pytest.mark.parametrize(
    ("breaks", "mends", "said"),
    [
        ("ALTER ROLE locked PASSWORD 'another'", f"ALTER ROLE locked PASSWORD '{PASSWORD}'", "rejected the password"),
        ("ALTER ROLE locked NOLOGIN", "ALTER ROLE locked LOGIN", "rejected the login"),
        ("ALTER ROLE locked CONNECTION LIMIT 0", "ALTER ROLE locked CONNECTION LIMIT -1", "accepts no more"),
        ("ALTER DATABASE ww SET default_transaction_read_only = on",
         "ALTER DATABASE ww RESET default_transaction_read_only", "accepts no writes"),
        ("ALTER SCHEMA {0} RENAME TO {0}_away", "ALTER SCHEMA {0}_away RENAME TO {0}", "was removed or changed"),
        ("ALTER SCHEMA {0} OWNER TO ww", "ALTER SCHEMA {0} OWNER TO locked", "was removed or changed"),
        ("REVOKE UPDATE ON {0}.probes FROM locked", "GRANT UPDATE ON {0}.probes TO locked", "user lacks a privilege"),
    ],
)  # fmt: skip
def test_database_error_is_reported_until_fixed(service: RunningService, breaks: str, mends: str, said: str) -> None:
    schema = service.database.schema
    try:
        service.run_as_admin(breaks.format(schema))
        seen: list[str] = []

        def reports_error() -> bool:
            """A loaded machine may report a timeout first."""
            seen.append(service.ready().get("message", ""))
            return said in seen[-1]

        until(reports_error, f"it is not ready, and says: {said}")
        message = seen[-1]
        assert message.startswith("The store")
        if "probes" in breaks:  # verification does not need this table, but may wait for a new connection
            until(lambda: service.server.verify(service.token).status_code == 204, "it verifies")
        answer = service.server.verify(service.token)
        if "probes" not in breaks:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["error"]["reason"] == "store_unavailable"
        for text in (message, answer.text):
            assert not any(internal in text for internal in INTERNALS)
    finally:
        service.run_as_admin(mends.format(schema))
    until(lambda: service.ready()["status"] == "ready", "it is ready again")
    until(lambda: service.server.verify(service.token).status_code == 204, "it verifies again")
    told = service.server.out.read_text() + service.server.err.read_text()
    assert "Traceback" not in told
    assert PASSWORD not in told
