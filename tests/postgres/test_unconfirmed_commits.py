"""A commit that the synchronous standby did not confirm is not reported as done, nor by a retry."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.life.holding import CREATE_ACCOUNT, ROTATE
from tests.support.browsing import Browser
from tests.support.postgres import PROMPT, Cluster, Home, own_cluster
from tests.support.server import ADMIN, CREATE, CREATE_POLICY, GENERATE, REVOKE, SET_STATUS, Server, watchword
from tests.support.waiting import until

WAITING = "wait_event = 'SyncRep' AND application_name = 'watchword'"
CANCEL, TERMINATE = "pg_cancel_backend", "pg_terminate_backend"
UNKNOWN = (503, "outcome_unknown")

Send = Callable[[], Any]


class ReplicatedService:
    """A service on a primary with a synchronous standby."""

    def __init__(self, primary: Cluster, standby: Cluster, home: Home, server: Server) -> None:
        self.primary = primary
        self.standby = standby
        self.home = home
        self.server = server

    def interrupt(self, how: str, *sent: Send) -> list[Any]:
        """Send requests while the standby is down; end their waits repeatedly in this way."""
        ended = 0
        with ThreadPoolExecutor(len(sent)) as pool:
            answers = [pool.submit(send) for send in sent]
            while not all(answer.done() for answer in answers):
                ended += len(self.primary.ask(f"SELECT {how}(pid) FROM pg_stat_activity WHERE {WAITING}"))
                time.sleep(0.02)
        assert ended >= len(sent)
        return [answer.result() for answer in answers]

    def stop_standby(self) -> None:
        self.standby.stop(immediate=True)

    def start_standby(self) -> None:
        if self.standby.process is None:
            self.standby.start()
        following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: self.primary.ask(following) == [(1,)], "the standby confirms")

    def is_revoked(self, token_id: str) -> bool:
        found = self.home.look("SELECT revoked_at IS NOT NULL FROM tokens WHERE id = %s", token_id)
        return found == [(True,)]


@pytest.fixture(scope="module")
def replicated_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatedService]:
    folder = tmp_path_factory.mktemp("pair")
    with own_cluster(folder / "primary", synchronous_standby_names="*") as primary:
        standby = primary.standby(folder / "standby.log")
        home = Home(primary, folder)
        try:
            with Server(folder / "server", "--local-mode", "on", env=home.env | PROMPT) as server:
                yield ReplicatedService(primary, standby, home, server)
        finally:
            standby.remove()


@pytest.fixture
def pair(replicated_service: ReplicatedService) -> Iterator[ReplicatedService]:
    replicated_service.start_standby()
    yield replicated_service
    replicated_service.start_standby()


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Code and reason of the error."""
    told = answer.json()
    error = told["errors"][0]["extensions"] if "errors" in told else told["error"]
    return error["code"], error["reason"]


def confirmed(send: Callable[[], httpx.Response]) -> httpx.Response:
    """The first response other than "outcome unknown"; on a loaded machine the standby may confirm late."""
    answers: list[httpx.Response] = []

    def is_known() -> bool:
        answers.append(send())
        return b"outcome_unknown" not in answers[-1].content

    until(is_known, "the standby confirms within the timeout")
    return answers[-1]


@pytest.mark.parametrize("how", [CANCEL, TERMINATE])
def test_unconfirmed_revocation_is_not_reported_as_done(pair: ReplicatedService, how: str) -> None:
    server = pair.server
    token = server.create(ADMIN)

    def revoke() -> httpx.Response:
        return server.post(REVOKE, {"id": token["metadata"]["id"]}, actor=ADMIN)

    def revoke_by_possession() -> httpx.Response:
        return server.http.post("/oauth2/revoke", data={"token": token["accessToken"]})

    pair.stop_standby()
    assert [error_of(answer) for answer in pair.interrupt(how, revoke)] == [UNKNOWN]
    # It is visible on the primary, but a failover would undo it.
    assert pair.is_revoked(token["metadata"]["id"])
    assert error_of(revoke()) == UNKNOWN
    assert revoke_by_possession().status_code == 503
    pair.start_standby()
    assert error_of(confirmed(revoke)) == (409, "already_revoked")
    assert confirmed(revoke_by_possession).status_code == 200


@pytest.mark.parametrize("how", [CANCEL, TERMINATE])
def test_unconfirmed_writes_are_not_reported_as_done(pair: ReplicatedService, how: str) -> None:
    server = pair.server
    browser = Browser(server)
    old = server.create(ADMIN)
    made = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": f"unconfirmed {how}"}
    policy = {
        "type": "PLATFORM",
        "name": how,
        "state": "ACTIVE",
        "privileges": [GENERATE],
        "actors": {"users": [ADMIN]},
    }
    writes: dict[str, Send] = {
        "create": lambda: server.post(CREATE, {"input": made}, actor=ADMIN),
        "rotate": lambda: server.post(ROTATE, {"id": old["metadata"]["id"]}, actor=ADMIN),
        "account": lambda: server.post(CREATE_ACCOUNT, {"input": {"displayName": how}}, actor=ADMIN),
        "policy": lambda: server.post(CREATE_POLICY, {"input": policy}, actor=ADMIN),
        "status": lambda: server.post(
            SET_STATUS, {"urn": f"urn:li:corpuser:{how}", "status": "SUSPENDED"}, actor=ADMIN
        ),
        "session": lambda: browser.sign_in(token=old["accessToken"]),
    }
    pair.stop_standby()
    answers = pair.interrupt(how, *writes.values())
    assert {name: error_of(answer) for name, answer in zip(writes, answers, strict=True)} == dict.fromkeys(
        writes, UNKNOWN
    )
    assert not any("eyJ" in answer.text for answer in answers)
    browser.close()

    # A token whose creation was not confirmed is revoked.
    pair.start_standby()
    named = "SELECT revoked_at IS NOT NULL FROM tokens WHERE name = %s"
    until(lambda: pair.home.look(named, made["name"]) in ([], [(True,)]), "the token is withdrawn")


def test_keyed_token_is_returned_again_after_the_standby_confirms(pair: ReplicatedService) -> None:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "keyed"}

    def create() -> httpx.Response:
        return pair.server.post(CREATE, {"input": wanted}, actor=ADMIN, headers={"Idempotency-Key": "unconfirmed"})

    pair.stop_standby()
    assert [error_of(answer) for answer in pair.interrupt(CANCEL, create)] == [UNKNOWN]
    assert error_of(create())[0] == 503
    pair.start_standby()
    token = confirmed(create).json()["data"]["createAccessToken"]["accessToken"]
    assert pair.server.verify(token).status_code == 204


def test_unconfirmed_local_command_fails(pair: ReplicatedService) -> None:
    env = pair.home.env | PROMPT
    pair.stop_standby()
    (done,) = pair.interrupt(CANCEL, lambda: watchword("key", "rotate", env=env))
    assert (done.returncode, done.stdout) == (1, "")
    assert "did not confirm in time" in done.stderr
