"""Races: a privilege is removed while it is used. Events are in commit order."""

import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.support.concurrent_load import RETRIABLE, retry_until_done
from tests.support.lines import Line, lines_to_each_worker
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.store_file import assert_sound, events, last_event, look
from tests.support.waiting import SECONDS

ROUNDS = 15
MakeServer = Callable[..., Server]
Create = Callable[[Line], tuple[str, str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(
        tmp_path_factory.mktemp("races"),
        "--workers",
        "2",
        "--actor-daily-changes",
        "0",
        env={"WATCHWORD_ACCESS_LOG": "off"},
    )
    with made as running:
        yield running
        assert_sound(running)


@pytest.fixture
def judges(server: Server) -> list[Line]:
    """A connection to each of the two workers."""
    return lines_to_each_worker(server)


class Race:
    """Clients that create as fast as they can until rejected, while the privilege is removed."""

    def __init__(self, lines: list[Line], create: Create) -> None:
        self._lines = lines
        self._create = create
        self._taken = threading.Event()
        self.made: list[tuple[str, str]] = []
        self.late: list[str] = []
        self.refusals: list[GraphQLRefused] = []

    def run(self, take_away: Callable[[], object], delay: float) -> None:
        threads = [threading.Thread(target=self._keep_creating, args=(line,)) for line in self._lines]
        for thread in threads:
            thread.start()
        time.sleep(delay)
        retry_until_done(take_away)
        self._taken.set()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive(), "creating went on"

    def _keep_creating(self, line: Line) -> None:
        while True:
            too_late = self._taken.is_set()
            try:
                made = self._create(line)
            except GraphQLRefused as refusal:
                if refusal.reason in RETRIABLE:
                    continue
                self.refusals.append(refusal)
                return
            self.made.append(made)
            if too_late:
                self.late.append(made[0])
                return


def race_repeatedly(
    server: Server,
    prepare: Callable[[int], tuple[Create, Callable[[], object], tuple[str, str]]],
    after: Callable[[Race], None],
    reasons: set[str],
) -> None:
    """`prepare` returns how to create, how to remove the privilege, and the event of the removal (action, target)."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    delays = random.Random(seed)
    lines = [line for _ in range(3) for line in lines_to_each_worker(server)]
    won = 0
    for number in range(10 * ROUNDS):
        if number >= ROUNDS and won > ROUNDS // 2:
            return
        create, take_away, taking = prepare(number)
        start = last_event(server)
        lines = [line if line.is_open else Line(server) for line in lines]
        race = Race(lines, create)
        # On a loaded machine nothing may be created in time: then run more and longer rounds.
        race.run(take_away, delays.uniform(0, 0.03) * (1 + number // ROUNDS))
        assert race.late == [], "a token was given to one who asked when the right was gone"
        assert {refusal.reason for refusal in race.refusals} <= reasons
        happened = events(server, start)
        (end,) = [event.seq for event in happened if (event.action, event.target) == taking]
        created = {event.target: event.seq for event in happened if event.action == "token.created"}
        assert [token for token, seq in created.items() if seq > end] == [], "committed after the right was gone"
        assert created.keys() == {token_id for token_id, _ in race.made}, "answered and committed are not the same"
        won += bool(race.made)
        after(race)
    raise AssertionError("hardly anything was created, so nothing was raced")


def test_no_token_is_committed_after_the_policy_is_removed(server: Server, judges: list[Line], actor: str) -> None:
    def prepare(number: int) -> tuple[Create, Callable[[], object], tuple[str, str]]:
        policy = server.grant(actor)
        return (
            lambda line: line.create(actor, actor=actor),
            lambda: server.withdraw(policy),
            ("policy.deleted", policy),
        )

    def after(race: Race) -> None:
        # Tokens created before the removal stay valid.
        assert {judges[0].verify(token) for _, token in race.made} <= {204}

    race_repeatedly(server, prepare, after, {"missing_privilege"})


def test_no_token_is_committed_after_its_actor_is_suspended(server: Server, judges: list[Line], actor: str) -> None:
    server.grant(actor)

    def prepare(number: int) -> tuple[Create, Callable[[], object], tuple[str, str]]:
        return (
            lambda line: line.create(actor, actor=actor),
            lambda: server.set_status(actor, "SUSPENDED"),
            ("actor.suspended", actor),
        )

    def after(race: Race) -> None:
        assert {judges[0].verify(token) for _, token in race.made} <= {401}
        server.set_status(actor, "ACTIVE")
        assert {judges[1].verify(token) for _, token in race.made} <= {204}

    race_repeatedly(server, prepare, after, {"invalid_token"})


def test_no_token_for_an_actor_is_committed_after_its_suspension(
    server: Server, judges: list[Line], actor: str
) -> None:
    def prepare(number: int) -> tuple[Create, Callable[[], object], tuple[str, str]]:
        return (
            lambda line: line.create(actor, actor=ADMIN),
            lambda: server.set_status(actor, "SUSPENDED"),
            ("actor.suspended", actor),
        )

    def after(race: Race) -> None:
        server.set_status(actor, "ACTIVE")
        assert {judges[0].verify(token) for _, token in race.made} <= {204}

    race_repeatedly(server, prepare, after, {"actor_suspended"})


def test_no_token_is_committed_after_its_bearer_is_revoked(server: Server, judges: list[Line], actor: str) -> None:
    server.grant(actor)

    def prepare(number: int) -> tuple[Create, Callable[[], object], tuple[str, str]]:
        bearer_id, bearer = judges[0].create(actor, actor=actor)
        return (
            lambda line: line.create(actor, token=bearer),
            lambda: server.revoke(bearer_id),
            ("token.revoked", bearer_id),
        )

    def after(race: Race) -> None:
        assert {judges[0].verify(token) for _, token in race.made} <= {204}

    race_repeatedly(server, prepare, after, {"token_revoked"})


def test_concurrent_revocations_succeed_once(server: Server, actor: str) -> None:
    pair = lines_to_each_worker(server)
    for token_id, token in pair[0].create_many(actor, 100):
        start = threading.Barrier(2)
        told: list[str] = []

        def revoke(line: Line, token_id: str = token_id, start: threading.Barrier = start) -> None:
            start.wait(SECONDS)
            while True:
                try:
                    said = str(line.revoke(token_id))
                except GraphQLRefused as refusal:
                    if refusal.reason in RETRIABLE:
                        continue
                    said = f"{refusal.code} {refusal.reason}"
                told.append(said)  # noqa: B023 - joined before the next round
                return

        threads = [threading.Thread(target=revoke, args=(line,)) for line in pair]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(told) == ["409 already_revoked", "True"]
        assert pair[0].verify(token) == 401
    (times,) = look(server, "SELECT max(n) FROM (SELECT count(*) n FROM events WHERE action = 'token.revoked'"
                            " GROUP BY target)")  # fmt: skip
    assert times == (1,)


def test_actor_never_exceeds_its_token_limit(make_server: MakeServer, actor: str) -> None:
    limit = 20
    server = make_server("--workers", "2", env={"WATCHWORD_ACCESS_LOG": "off", "WATCHWORD_MAX_LIVE_TOKENS": str(limit)})
    refusals: Counter[str] = Counter()

    def create_and_revoke(line: Line) -> None:
        for _ in range(60):
            try:
                line.create(actor)
            except GraphQLRefused as refusal:
                if refusal.reason not in RETRIABLE:
                    refusals[f"{refusal.code} {refusal.reason}"] += 1
                revoke_one(line)

    def revoke_one(line: Line) -> None:
        held = server.tokens(filters=[{"field": "actorUrn", "value": actor}], count=1)["tokens"]
        for token in held:
            with suppress(GraphQLRefused):  # another client was faster
                line.revoke(token["id"])

    threads = [
        threading.Thread(target=create_and_revoke, args=(line,))
        for _ in range(4)
        for line in lines_to_each_worker(server)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
        assert not thread.is_alive()

    held = most = 0
    for event in events(server):
        held += {"token.created": 1, "token.revoked": -1}.get(event.action, 0)
        most = max(most, held)
    assert most == limit
    assert refusals.keys() == {"429 too_many_tokens"}
    assert_sound(server)
