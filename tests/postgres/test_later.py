"""What goes wrong with the database while the service runs: 503 that says what, without internals; then as before."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.postgres import LOCKED, PASSWORD, Cluster, Home, home
from tests.support.server import Server
from tests.support.waiting import until

INTERNALS = ("127.0.0.1", "asyncpg", "SELECT", "UPDATE", "Error", "Traceback", LOCKED, "hunter2", "correct horse", "ww")


class Served:
    def __init__(self, database: Home, server: Server, token: str) -> None:
        self.database, self.server, self.token = database, server, token

    def ask(self, *statements: str) -> None:
        """As an administrator; then every connection of the service is ended, as its server's restart would."""
        with self.database.address.connect() as connection:
            connection.execute("SET default_transaction_read_only = off")
            for statement in statements:
                connection.execute(statement.encode())
        self.database.address.terminate_backends(f"usename = '{LOCKED}'")

    def ready(self) -> Any:
        return self.server.http.get("/health/ready").json()["parts"]["store"]


@pytest.fixture(scope="module")
def served(careful: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("later")
    with home(careful, folder, user=LOCKED, password=PASSWORD) as made:
        careful.ask(f"CREATE SCHEMA {made.schema} AUTHORIZATION {LOCKED}")
        env = made.env | {"WATCHWORD_DATABASE_TIMEOUT": "1"}
        with Server(folder / "server", env=env) as server:
            done = server.command_line("token", "create", "--local", env=env)
            yield Served(made, server, done.stdout.strip())


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
def test_what_is_wrong_is_said_and_once_mended_it_is_as_before(
    served: Served, breaks: str, mends: str, said: str
) -> None:
    schema = served.database.schema
    try:
        served.ask(breaks.format(schema))
        seen: list[str] = []

        def says_it() -> bool:
            """On a busy machine it may say first that it got no answer in time."""
            seen.append(served.ready().get("message", ""))
            return said in seen[-1]

        until(says_it, f"it is not ready, and says: {said}")
        message = seen[-1]
        assert message.startswith("The store")
        if "probes" in breaks:  # which no verification needs, though one may have to wait for a new connection
            until(lambda: served.server.verify(served.token).status_code == 204, "it verifies")
        answer = served.server.verify(served.token)
        if "probes" not in breaks:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert answer.json()["error"]["reason"] == "store_unavailable"
        for text in (message, answer.text):
            assert not any(internal in text for internal in INTERNALS)
    finally:
        served.ask(mends.format(schema))
    until(lambda: served.ready()["status"] == "ready", "it is ready again")
    until(lambda: served.server.verify(served.token).status_code == 204, "it verifies again")
    told = served.server.out.read_text() + served.server.err.read_text()
    assert "Traceback" not in told
    assert PASSWORD not in told
