"""Each actor has a processor budget: new documents, introspection and searches of own tokens are charged to it. Writes
of tokens have another one. Answers: test_costly_answers.py.
"""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fill import fill, filled_actor
from tests.support.server import ADMIN, LIST, Server
from tests.support.waiting import until
from watchword.basics.errors import Fault
from watchword.http.processor_budget import (
    ACTOR_BURST,
    ACTOR_SHARE,
    DAILY_WRITES,
    DAY_SECONDS,
    MAX_ACTORS,
    MAX_WRITE_WAIT,
    SHARED_FACTOR,
    WORKER_BURST,
    WRITE_SECONDS,
    ProcessorBudget,
)

ATTACKER, OTHER = "urn:li:corpuser:attacker", "urn:li:corpuser:other"
HOLDER, THIRD, ROBBED = filled_actor(0, 1), "urn:li:corpuser:third", "urn:li:corpuser:robbed"
ME = "{ me { corpUser { urn } } }"
TYPES = "__schema { types { name fields { name args { name type { name } } type { fields { type { name } } } } } }"
SCHEMA = f"{{ a: {TYPES} b: {TYPES} }}"
GRAPHQL_RESPONSE = "application/graphql-response+json"
MOST = 200
"""Requests until the budget must be used up, each of which takes some hundredths of a second."""

_numbers = itertools.count()


def new_document() -> str:
    """Return a new 14 kB document that validation compares field by field."""
    number = next(_numbers)
    row = "corpUser { " + " ".join(f"a{n}: urn" for n in range(9)) + " } "
    return f"query q{number} {{ me {{ {row * 99} }} }}".ljust(14_000)


def post(server: Server, query: str, actor: str = ATTACKER, **headers: str) -> httpx.Response:
    return server.http.post("/api/graphql", json={"query": query}, headers={"X-Service-Actor": actor, **headers})


def post_until_rejected(server: Server, query: Any, actor: str) -> httpx.Response:
    for _ in range(MOST):
        answer = post(server, query(), actor)
        if answer.status_code != 200:
            return answer
        assert "errors" not in answer.json()
    raise AssertionError(f"All of {MOST} were answered.")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "data").mkdir(mode=0o700)
    fill(folder / "data" / "watchword.db", 20_000, now=time.time_ns() // 1_000_000, actors=1)
    # Less than the default: on a busy machine, budgets would refill as fast as they are used.
    with Server(folder, env={"WATCHWORD_ACTOR_PROCESSOR_PERCENT": "2"}) as server:
        server.grant(HOLDER, THIRD)
        yield server


def test_new_graphql_documents_do_not_stop_verification(attacked: Server) -> None:
    bearer = {"Authorization": f"Bearer {attacked.create(ADMIN)['accessToken']}"}
    for _ in range(2):  # a document seen once would be evicted by the next
        assert post(attacked, ME).status_code == 200
    refused = post_until_rejected(attacked, new_document, ATTACKER)
    (error,) = refused.json()["errors"]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert {**error["extensions"], "retryAfter": 1} == {
        "code": 429,
        "type": "THROTTLED",
        "reason": "processor_budget_used",
        "retryAfter": 1,
    }

    def are_rejected(*documents: str) -> bool:
        return all(post(attacked, one, Accept=GRAPHQL_RESPONSE).status_code == 429 for one in documents)

    until(lambda: are_rejected(new_document(), "{"), "rejected unread, in either media type; invalid documents too")
    assert "errors" not in post(attacked, ME).json(), "a known document is answered"
    assert "errors" not in post(attacked, new_document(), OTHER).json(), "others have a budget of their own"
    assert attacked.http.get("/auth", headers=bearer).status_code == 204


def test_introspection_counts_even_when_the_document_is_known(attacked: Server) -> None:
    actor = "urn:li:corpuser:curious"
    for _ in range(2):
        assert post(attacked, ME, actor).status_code == 200
    refused = post_until_rejected(attacked, lambda: SCHEMA, actor)
    assert refused.status_code == 429
    (error,) = refused.json()["errors"]
    assert error["message"] == (
        "Your processor time for new GraphQL documents, introspection, searches of your own tokens and long answers is "
        f"used up. Try again in {error['extensions']['retryAfter']} s. "
        "Keep documents the same and send values as variables: a known document costs nothing to parse."
    )
    assert "errors" not in post(attacked, ME, actor).json()


def test_documents_of_unauthenticated_callers_are_not_parsed(attacked: Server) -> None:
    for document in (new_document(), "{"):
        answer = attacked.http.post("/api/graphql", json={"query": document})
        assert answer.status_code == 401
        assert answer.json()["errors"][0]["extensions"]["reason"] == "missing_credential"


def own(actor: str, *filters: dict[str, Any]) -> dict[str, Any]:
    return {"input": {"filters": [{"field": "actorUrn", "value": actor}, *filters]}}


def test_searches_of_own_tokens_do_not_stop_verification(attacked: Server) -> None:
    hard = {"field": "urn", "condition": "CONTAIN", "values": [f"{number}".ljust(600, "a") for number in range(8)]}
    bearer = {"Authorization": f"Bearer {attacked.create(ADMIN)['accessToken']}"}
    for _ in range(12):  # the first of all take longer
        attacked.ask(LIST, own(THIRD), actor=THIRD)
    for _ in range(MOST):
        answer = attacked.post(LIST, own(HOLDER, hard), actor=HOLDER)
        if "errors" in answer.json():
            break
    else:
        raise AssertionError(f"All of {MOST} were answered.")
    error = answer.json()["errors"][0]["extensions"]
    assert (error["code"], error["reason"]) == (429, "processor_budget_used")
    assert int(answer.headers["retry-after"]) == error["retryAfter"] >= 1
    assert attacked.ask(LIST, own(HOLDER), actor=HOLDER)["listAccessTokens"]["total"] == 18_000
    assert attacked.ask(LIST, own(THIRD, hard), actor=THIRD)["listAccessTokens"]["total"] == 0
    assert attacked.ask(LIST, own(HOLDER, hard), actor=ADMIN)["listAccessTokens"]["total"] == 0
    assert attacked.http.get("/auth", headers=bearer).status_code == 204


def test_many_writes_of_one_actor_are_slowed_down(attacked: Server) -> None:
    actor, fields, share = "urn:li:corpuser:busy", 20, 0.02
    attacked.grant(actor)
    token = attacked.create(actor)["metadata"]["id"]
    one = f'updateAccessToken(tokenId: "{token}", input: {{ name: "changed" }}) {{ name }}'
    document = "mutation { " + " ".join(f"a{number}: {one}" for number in range(fields)) + " }"

    def seconds(caller: str) -> float:
        began = time.monotonic()
        attacked.ask(document, actor=caller)
        return time.monotonic() - began

    def waits() -> bool:
        """Writes without a pause use more than the share, or take as long as if they waited."""
        burst = int(ACTOR_BURST / WRITE_SECONDS) // fields
        return any(seconds(actor) >= (fields - 1) * WRITE_SECONDS / share for _ in range(burst + 1))

    until(waits, "each write waits for its share")
    until(lambda: seconds(ADMIN) < fields * WRITE_SECONDS / share, "whoever manages all tokens does not wait")
    attacked.ask(LIST, own(actor, {"field": "name", "condition": "CONTAIN", "values": ["chang"]}), actor=actor)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def charge(budget: ProcessorBudget, actor: str, seconds: float) -> float:
    """Return the charged seconds, or 0 if the work was rejected."""
    try:
        budget.check(actor)
    except Fault:
        return 0.0
    budget.charge(actor, seconds)
    return seconds


WORK = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 0.4), st.floats(0, 5)),
    max_size=200,
)


def test_token_is_revoked_by_a_new_document_although_the_budget_is_used_up(attacked: Server) -> None:
    """As by a command or the console after a start: another token of the actor may be stolen."""
    attacked.grant(ROBBED)
    stolen = attacked.create(ADMIN, of=ROBBED)["metadata"]["id"]
    post_until_rejected(attacked, new_document, ROBBED)
    text = f'mutation Mine {{ it: revokeAccessToken(tokenId: "{stolen}") }}'
    assert post(attacked, text, ROBBED).json() == {"data": {"it": True}}


@given(WORK)
def test_each_actor_and_all_together_stay_within_their_budget(work: list[tuple[str, float, float]]) -> None:
    clock = Clock()
    budget = ProcessorBudget(clock=clock)
    totals: dict[str, float] = {}
    for actor, seconds, pause in work:
        totals[actor] = totals.get(actor, 0.0) + charge(budget, actor, seconds)
        # Work that starts within the budget may exceed it once.
        assert totals[actor] <= ACTOR_BURST + clock.now * ACTOR_SHARE + 0.4 + 1e-6
        assert sum(totals.values()) <= WORKER_BURST + clock.now * ACTOR_SHARE * SHARED_FACTOR + 0.4 + 1e-6
        clock.now += pause


def test_many_actors_leave_budget_for_an_idle_one() -> None:
    clock = Clock()
    budget = ProcessorBudget(clock=clock)
    for _ in range(3_000):
        for attacker in range(20):
            charge(budget, f"attacker {attacker}", 0.05)
        clock.now += 0.01
    given_to_one = 0.0
    for _ in range(1_000):
        given_to_one += charge(budget, "one", 0.005)
        for attacker in range(20):
            charge(budget, f"attacker {attacker}", 0.05)
        clock.now += 0.01
    assert given_to_one >= ACTOR_SHARE


def test_budget_is_available_after_retry_after() -> None:
    clock = Clock()
    budget = ProcessorBudget(clock=clock)
    while charge(budget, "a", 0.3):
        pass
    with pytest.raises(Fault) as refused:
        budget.check("a")
    clock.now += refused.value.details["retryAfter"]
    budget.check("a")


def test_budget_zero_rejects_nothing() -> None:
    budget = ProcessorBudget(0)
    assert sum(charge(budget, "a", 1.0) for _ in range(100)) == 100.0


def test_budget_tracks_a_limited_number_of_actors() -> None:
    budget = ProcessorBudget(clock=Clock())
    for number in range(MAX_ACTORS + 100):
        budget.charge(str(number), 0.0)
    assert len(budget) == MAX_ACTORS


@given(st.lists(st.floats(0, 5), max_size=200), st.floats(0.01, 1))
def test_writes_of_an_actor_keep_to_its_share(pauses: list[float], share: float) -> None:
    clock = Clock()
    budget = ProcessorBudget(share, clock)
    starts = []
    for pause in pauses:
        for _ in range(200):
            try:
                starts.append(clock.now + budget.charge_write("a"))
            except Fault:
                break
        clock.now += pause
    for number, start in enumerate(starts):
        assert number * WRITE_SECONDS <= ACTOR_BURST + start * share + 1e-6
    assert budget.charge_write("b") == 0.0, "others do not wait"


def test_writes_beyond_the_longest_wait_are_rejected() -> None:
    budget = ProcessorBudget(clock=Clock())
    most = int((ACTOR_BURST + MAX_WRITE_WAIT * ACTOR_SHARE) / WRITE_SECONDS) + 2  # more, for rounding
    waits: list[float] = []

    def write() -> None:
        while len(waits) < most:
            waits.append(budget.charge_write("a"))

    with pytest.raises(Fault) as rejected:
        write()
    assert (rejected.value.reason.word, rejected.value.details) == ("processor_budget_used", {"retryAfter": 3})
    assert waits == sorted(waits)
    assert MAX_WRITE_WAIT / 2 < waits[-1] <= MAX_WRITE_WAIT
    budget.check("a")
    assert [ProcessorBudget(0).charge_write("a") for _ in range(3)] == [0.0] * 3


def test_actor_writes_no_more_tokens_than_those_of_a_day() -> None:
    clock = Clock()
    budget, written = ProcessorBudget(clock=clock), 0

    def write_all() -> None:
        nonlocal written
        while True:
            budget.charge_write("a")
            written += 1
            clock.now += WRITE_SECONDS / ACTOR_SHARE

    def refused() -> str:
        with pytest.raises(Fault) as rejected:
            write_all()
        return rejected.value.reason.word

    while clock.now < DAY_SECONDS:
        assert refused() == "too_many_changes"
        clock.now += 3_600
    assert DAILY_WRITES / 2 < written <= DAILY_WRITES
    assert budget.charge_write("b") == 0.0, "others write"
