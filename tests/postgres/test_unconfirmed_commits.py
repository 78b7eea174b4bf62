"""A commit that the synchronous standby did not confirm is neither answered as done nor found done by a retry."""

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


class Pair:
    """A service on a primary whose commits wait for a standby."""

    def __init__(self, primary: Cluster, standby: Cluster, home: Home, server: Server) -> None:
        self.primary = primary
        self.standby = standby
        self.home = home
        self.server = server

    def interrupt(self, how: str, *sent: Send) -> list[Any]:
        """What these come to if, while the standby is away, each wait for it is ended in this way again and again."""
        ended = 0
        with ThreadPoolExecutor(len(sent)) as pool:
            answers = [pool.submit(send) for send in sent]
            while not all(answer.done() for answer in answers):
                ended += len(self.primary.ask(f"SELECT {how}(pid) FROM pg_stat_activity WHERE {WAITING}"))
                time.sleep(0.02)
        assert ended >= len(sent)
        return [answer.result() for answer in answers]

    def take_standby(self) -> None:
        self.standby.stop(immediate=True)

    def return_standby(self) -> None:
        if self.standby.process is None:
            self.standby.start()
        following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: self.primary.ask(following) == [(1,)], "the standby confirms")

    def is_revoked(self, token_id: str) -> bool:
        found = self.home.look("SELECT revoked_at IS NOT NULL FROM tokens WHERE id = %s", token_id)
        return found == [(True,)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with own_cluster(folder / "primary", synchronous_standby_names="*") as primary:
        standby = primary.standby(folder / "standby.log")
        home = Home(primary, folder)
        try:
            with Server(folder / "server", "--local-mode", "on", env=home.env | PROMPT) as server:
                yield Pair(primary, standby, home, server)
        finally:
            standby.remove()


@pytest.fixture
def pair(running: Pair) -> Iterator[Pair]:
    running.return_standby()
    yield running
    running.return_standby()


def refused(answer: httpx.Response) -> tuple[int, str]:
    """Code and reason of what was not answered as done."""
    told = answer.json()
    error = told["errors"][0]["extensions"] if "errors" in told else told["error"]
    return error["code"], error["reason"]


def confirmed(send: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer that does not say "outcome unknown": on a busy machine the standby may confirm too late."""
    answers: list[httpx.Response] = []

    def is_known() -> bool:
        answers.append(send())
        return b"outcome_unknown" not in answers[-1].content

    until(is_known, "the standby confirms within the timeout")
    return answers[-1]


@pytest.mark.parametrize("how", [CANCEL, TERMINATE])
def test_cancelled_wait_for_the_standby_is_not_answered_as_revoked(pair: Pair, how: str) -> None:
    server = pair.server
    token = server.create(ADMIN)

    def revoke() -> httpx.Response:
        return server.post(REVOKE, {"id": token["metadata"]["id"]}, actor=ADMIN)

    def revoke_by_possession() -> httpx.Response:
        return server.http.post("/oauth2/revoke", data={"token": token["accessToken"]})

    pair.take_standby()
    assert [refused(answer) for answer in pair.interrupt(how, revoke)] == [UNKNOWN]
    # It is seen on the primary by now, where a failover would undo it.
    assert pair.is_revoked(token["metadata"]["id"])
    assert refused(revoke()) == UNKNOWN
    assert revoke_by_possession().status_code == 503
    pair.return_standby()
    assert refused(confirmed(revoke)) == (409, "already_revoked")
    assert confirmed(revoke_by_possession).status_code == 200


@pytest.mark.parametrize("how", [CANCEL, TERMINATE])
def test_cancelled_wait_for_the_standby_is_not_answered_as_done_by_any_write(pair: Pair, how: str) -> None:
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
    pair.take_standby()
    answers = pair.interrupt(how, *writes.values())
    assert {name: refused(answer) for name, answer in zip(writes, answers, strict=True)} == dict.fromkeys(
        writes, UNKNOWN
    )
    assert not any("eyJ" in answer.text for answer in answers)
    browser.close()

    # A token whose create was not confirmed is nobody's: it is ended.
    pair.return_standby()
    named = "SELECT revoked_at IS NOT NULL FROM tokens WHERE name = %s"
    until(lambda: pair.home.look(named, made["name"]) in ([], [(True,)]), "the token is withdrawn")


def test_token_made_under_a_key_is_given_again_once_the_standby_has_it(pair: Pair) -> None:
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "keyed"}

    def create() -> httpx.Response:
        return pair.server.post(CREATE, {"input": wanted}, actor=ADMIN, headers={"Idempotency-Key": "unconfirmed"})

    pair.take_standby()
    assert [refused(answer) for answer in pair.interrupt(CANCEL, create)] == [UNKNOWN]
    assert refused(create())[0] == 503
    pair.return_standby()
    token = confirmed(create).json()["data"]["createAccessToken"]["accessToken"]
    assert pair.server.verify(token).status_code == 204


def test_command_on_the_store_whose_wait_was_cancelled_does_not_say_that_it_was_done(pair: Pair) -> None:
    env = pair.home.env | PROMPT
    pair.take_standby()
    (done,) = pair.interrupt(CANCEL, lambda: watchword("keys", "rotate", env=env))
    assert (done.returncode, done.stdout) == (1, "")
    assert "did not confirm in time" in done.stderr
