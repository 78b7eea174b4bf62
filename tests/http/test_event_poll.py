"""`GET /events`: collectors read on after a number, and wait for more."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.server import ADMIN, Server
from tests.support.store_file import last_event, look
from tests.support.waiting import until
from watchword.audit.http import MAX_WAITING_OF_ACTOR


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    made: str = server.create(ADMIN)["accessToken"]
    return made


def ask(server: Server, token: str | None, query: str = "") -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return server.http.get(f"/events?{query}", headers=headers)


def targets(answer: httpx.Response) -> list[str]:
    return [event["watchword"]["target"] for event in answer.json()["events"]]


def test_needs_the_privilege_before_the_query_is_read(server: Server, actor: str) -> None:
    assert ask(server, None, "after=x").status_code == 401
    assert server.http.get("/events/more").status_code == 401
    server.grant(actor)
    bearer = server.create(actor)["accessToken"]
    refused = ask(server, bearer, "after=x")
    assert (refused.status_code, refused.json()["error"]["privilege"]) == (403, "VIEW_AUDIT_LOG")
    denied = "SELECT target FROM events WHERE action = 'access.denied' AND actor = ?"
    until(lambda: look(server, denied, actor) == [("events",)], "the denial is recorded")
    server.grant(actor, privileges=("VIEW_AUDIT_LOG",))
    assert ask(server, bearer, "count=1").status_code == 200


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *((f"after={value}", "after") for value in ("x", "-1", "1.5", "", "٣", "9" * 19, "Latest")),
        *((f"count={value}", "count") for value in ("0", "1001", "x")),
        *((f"wait={value}", "wait") for value in ("31", "-1", "0.5", "x")),
        ("after=1&after=2", "query string"),
        ("since=1", "since"),
    ],
)
def test_bad_value_names_its_field(server: Server, token: str, query: str, field: str) -> None:
    answer = ask(server, token, query)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)
    assert field in answer.json()["error"]["message"]


def test_reads_on_after_a_number(server: Server, token: str) -> None:
    start = ask(server, token, "after=latest").json()
    assert start["events"] == []
    assert start["next"] <= last_event(server)
    made = [server.create(ADMIN)["metadata"]["id"] for _ in range(3)]
    seen: list[Any] = []
    after = start["next"]
    while len(seen) < 3:
        answer = ask(server, token, f"after={after}&count=2")
        seen += [target for target in targets(answer) if target in made]
        after = answer.json()["next"]
        assert after == answer.json()["events"][-1]["event"]["sequence"]
    assert seen == made
    ahead = ask(server, token, f"after={last_event(server) + 1_000}")  # as after a restore of an older store
    assert (ahead.status_code, ahead.json()["error"]["field"]) == (400, "after")


def test_waits_for_an_event_and_no_longer_than_asked(server: Server, token: str) -> None:
    def waits_in_vain() -> bool:
        after = last_event(server)
        return bool(ask(server, token, f"after={after}&wait=1").json() == {"events": [], "next": after})

    until(waits_in_vain, "no event happens for a second: the service still writes those of uses by earlier tests")
    made = set[str]()

    def sees_one_of_mine() -> bool:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, server, token, "after=latest&wait=30")
            while not answer.done():  # it may begin to wait after the first
                made.add(server.create(ADMIN)["metadata"]["id"])
                time.sleep(0.2)
        return not made.isdisjoint(targets(answer.result()))

    until(sees_one_of_mine, "the answer has an event that happened while it waited")


def test_token_revoked_while_it_waits_gets_nothing(server: Server) -> None:
    def is_refused() -> bool:
        made = server.create(ADMIN)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, server, made["accessToken"], "after=latest&wait=30")
            assert server.verify(made["accessToken"]).status_code == 204  # meanwhile the other request arrives
            server.revoke(made["metadata"]["id"])
            while not answer.done():
                server.create(ADMIN)
                time.sleep(0.1)
        if answer.result().status_code == 401:
            return True
        seen = {(one["event"]["action"], one["watchword"]["target"]) for one in answer.result().json()["events"]}
        assert ("token.revoked", made["metadata"]["id"]) not in seen
        return False

    # The service may write an event of an earlier test before the token is revoked.
    until(is_refused, "it is refused")


def test_few_requests_of_an_actor_may_wait(server: Server, actor: str) -> None:
    server.grant(actor, privileges=("VIEW_AUDIT_LOG", "GENERATE_PERSONAL_ACCESS_TOKENS"))
    bearer = server.create(actor)["accessToken"]
    ask(server, bearer)  # writes the rejections that were not written yet
    query = "after=latest&wait=30"
    answers: list[httpx.Response] = []

    def one_of_all_is_refused() -> bool:
        with ThreadPoolExecutor(MAX_WAITING_OF_ACTOR + 1) as pool:
            asked = [pool.submit(ask, server, bearer, query) for _ in range(MAX_WAITING_OF_ACTOR + 1)]
            until(lambda: any(one.done() for one in asked), "one is refused, or an event answers some")
            server.create(ADMIN)
            answers[:] = [one.result() for one in asked]
        return {answer.status_code for answer in answers} == {200, 429}

    # The service may write an event of an earlier test before all of them wait.
    until(one_of_all_is_refused, "one is refused while the others wait")
    assert sorted(answer.status_code for answer in answers) == [200] * MAX_WAITING_OF_ACTOR + [429]
    (refused,) = (answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["reason"] == "too_many_waiting"
    assert refused.headers["retry-after"] == "5"
    assert ask(server, bearer, query.replace("wait=30", "wait=0")).status_code == 200
