"""A disk that does not finish a flush: every write gets a correct response in bounded time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.lines import wanted
from tests.support.server import ADMIN, CREATE, REVOKE, Server
from tests.support.store_file import assert_sound, look
from tests.support.tracing import strace
from tests.support.waiting import until

STALLED = "fdatasync,fsync"
UNKNOWN = {"code": 503, "type": "UNAVAILABLE", "reason": "outcome_unknown"}
UNAVAILABLE = {"code": 503, "type": "UNAVAILABLE", "reason": "store_unavailable"}


def test_writes_and_readiness_are_answered_during_a_stalled_flush(server: Server, tmp_path: Path, actor: str) -> None:
    kept = server.create(ADMIN, of=actor)
    (worker,) = server.workers()
    log = server.data_dir / "watchword.db-wal"

    def create() -> dict[str, object]:
        answer = server.post(CREATE, {"input": wanted(actor)}, actor=ADMIN).json()
        assert answer["data"] == {"createAccessToken": None}
        return dict(answer["errors"][0]["extensions"])

    flags = ("-e", f"trace={STALLED}", "-e", f"inject={STALLED}:delay_enter=1000000000")
    with ThreadPoolExecutor() as pool:
        with strace(worker.pid, tmp_path / "strace.log", *flags):
            before = (log.stat().st_size, log.stat().st_mtime_ns)
            begun = pool.submit(create)
            until(lambda: (log.stat().st_size, log.stat().st_mtime_ns) != before, "a commit has begun")
            ready = pool.submit(server.http.get, "/health/ready")
            queued = pool.submit(create)
            revocation = pool.submit(server.post, REVOKE, {"id": kept["metadata"]["id"]}, actor=ADMIN)
            # Requests without writes still work.
            assert server.verify(kept["accessToken"]).status_code == 204
            assert server.tokens(filters=[{"field": "actorUrn", "value": actor}])["total"] == 1

            assert ready.result().status_code == 503
            assert int(ready.result().headers["Retry-After"]) > 0
            assert ready.result().json()["parts"]["store"]["status"] == "unavailable"
            assert begun.result() == UNKNOWN
            assert queued.result() == UNAVAILABLE
            (error,) = revocation.result().json()["errors"]
            assert error["extensions"] == UNAVAILABLE
            assert error["message"] == "The store did not answer in time. Nothing was changed."

        # A withdrawn write never happens; a token with an unknown outcome is revoked.
        made = "SELECT count(*), count(revoked_at) FROM tokens WHERE actor_urn = ?"
        until(lambda: look(server, made, actor) == [(2, 1)], "the token that nobody received is revoked")
        assert server.verify(kept["accessToken"]).status_code == 204
        assert server.revoke(kept["metadata"]["id"])
        until(lambda: server.http.get("/health/ready").status_code == 200, "it is ready again")
        assert_sound(server)
