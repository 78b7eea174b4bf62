"""Idempotency: one key gives one token, and no secret is stored for it."""

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.life.holding import CREATE, HeldToken, LifecycleClient, reason_of
from tests.support.browsing import Browser
from tests.support.server import ADMIN, GENERATE, GraphQLRefused, Server, plain_client
from tests.support.store_file import change_store, look
from tests.support.waiting import SECONDS

EVENTS = "query ($of: [String!]) { listEvents(input: {targets: $of}) { events { action actorUrn tokenId } } }"
Ask = Callable[[str], HeldToken]


def keyed_requests(life: LifecycleClient) -> list[Ask]:
    """Each way to create a token with an idempotency key."""
    ann = life.new_actor(GENERATE, "deploy")
    mine = life.create(ann)
    old = life.create(ann)
    return [
        lambda key: life.create(ann, token=mine.token, key=key, scopes=[GENERATE, "deploy"]),
        lambda key: life.derive(mine.token, key=key, scopes=["deploy"]),
        lambda key: life.rotate(old, key=key, token=mine.token),
    ]


def counted(life: LifecycleClient) -> int:
    total: int = life.ask("{ listAccessTokens { total } }")["listAccessTokens"]["total"]
    return total


class TestSameKey:
    def test_key_is_rejected_after_its_signing_key_is_gone(self, make_server: Callable[..., Server]) -> None:
        server = make_server()
        life = LifecycleClient(server)
        life.create(ADMIN, key="k")
        server.stop()
        assert server.command_line("key", "rotate").returncode == 0
        change_store(server, "DELETE FROM keys WHERE retired_at IS NOT NULL")
        server.start()
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, key="k")
        assert reason_of(refusal.value) == (409, "idempotency_key_reused", "Idempotency-Key")

    def test_same_key_returns_the_same_token(self, lives: LifecycleClient) -> None:
        for number, ask in enumerate(keyed_requests(lives)):
            first = ask(f"one {number}")
            before = counted(lives)
            assert ask(f"one {number}") == first
            assert counted(lives) == before
            assert lives.is_accepted(first)

    def test_same_key_returns_the_token_after_restart_and_key_rotation(
        self, make_server: Callable[..., Server]
    ) -> None:
        server = make_server()
        life = LifecycleClient(server)
        asks = keyed_requests(life)
        first = [ask(f"k{number}") for number, ask in enumerate(asks)]
        server.stop()
        assert server.command_line("key", "rotate").returncode == 0
        server.start()
        assert [ask(f"k{number}").token for number, ask in enumerate(asks)] == [held.token for held in first]

    def test_replay_by_another_credential_of_the_actor_gives_no_token(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        used, other = lives.create(ann), lives.create(ann)
        derived = lives.derive(used.token)
        first = lives.create(ann, token=used.token, key="k")
        before = counted(lives)
        for how in ({"token": other.token}, {"token": derived.token}, {"actor": ann}):
            with pytest.raises(GraphQLRefused) as refusal:
                lives.create(ann, key="k", **how)
            assert reason_of(refusal.value) == (409, "idempotency_key_reused", "Idempotency-Key")
        assert lives.create(ann, token=used.token, key="k").token == first.token
        assert counted(lives) == before
        successor = lives.rotate(used)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.create(ann, token=successor.token, key="k")
        assert refusal.value.reason == "idempotency_key_reused"
        lives.revoke(used, cascade=True)
        assert not lives.is_accepted(first)

    def test_replay_by_another_session_of_the_actor_gives_no_token(self, life: LifecycleClient) -> None:
        ann = life.new_actor()
        held = life.create(ann)
        one, two = (Browser(life.server).signed_in(token=held.token) for _ in range(2))
        wanted = {"type": "PERSONAL", "actorUrn": ann, "duration": "ONE_HOUR", "name": "n"}

        def made(browser: Browser) -> Any:
            return browser.post(CREATE, {"input": wanted}, {"Idempotency-Key": "k"}).json()

        with closing(one.http), closing(two.http):
            first, again, refused = made(one), made(one), made(two)
        assert again["data"] == first["data"]
        assert (refused["data"]["made"], refused["errors"][0]["extensions"]["reason"]) == (
            None,
            "idempotency_key_reused",
        )
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ann, token=held.token, key="k", name="n")
        assert refusal.value.reason == "idempotency_key_reused"

    def test_replay_leaves_an_event_with_the_credential_and_a_refused_one_does_not(
        self, lives: LifecycleClient
    ) -> None:
        ann = lives.new_actor()
        used, other = lives.create(ann), lives.create(ann)
        first = lives.create(ann, token=used.token, key="k")
        with pytest.raises(GraphQLRefused):
            lives.create(ann, token=other.token, key="k")
        assert lives.create(ann, token=used.token, key="k") == first
        events = lives.ask(EVENTS, {"of": [first.id]})["listEvents"]["events"]
        assert [(event["action"], event["actorUrn"], event["tokenId"]) for event in events] == [
            ("token.replayed", ann, used.id),
            ("token.created", ann, used.id),
        ]

    def test_same_key_with_another_request_is_rejected(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor(GENERATE, "x")
        first = lives.create(ann, actor=ann, key="k")
        others: list[Callable[[], HeldToken]] = [
            lambda: lives.create(ann, actor=ann, key="k", name="another"),
            lambda: lives.create(ann, actor=ann, key="k", scopes=["x"]),
            lambda: lives.create(ann, actor=ann, key="k", duration="ONE_DAY"),
            lambda: lives.derive(first.token, key="k"),
            lambda: lives.rotate(first, key="k"),
        ]
        for again in others:
            with pytest.raises(GraphQLRefused) as refusal:
                again()
            assert reason_of(refusal.value) == (409, "idempotency_key_reused", "Idempotency-Key")
        assert lives.is_accepted(first)

    def test_keys_are_per_actor(self, lives: LifecycleClient) -> None:
        one, two = lives.new_actor(), lives.new_actor()
        assert lives.create(one, actor=one, key="k").id != lives.create(two, actor=two, key="k").id

    def test_idempotency_key_does_not_return_an_ended_token(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        first = lives.create(ann, actor=ann, key="k")
        lives.revoke(first)
        with pytest.raises(GraphQLRefused) as refusal:
            lives.create(ann, actor=ann, key="k")
        assert reason_of(refusal.value) == (409, "idempotency_key_reused", "Idempotency-Key")

    def test_concurrent_requests_with_one_key_create_one_token(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        made: list[str] = []

        def ask() -> None:
            with plain_client() as client:
                wanted = {"type": "PERSONAL", "actorUrn": ann, "duration": "ONE_HOUR", "name": "n"}
                answer = lives.server.post(
                    CREATE, {"input": wanted}, actor=ann, headers={"Idempotency-Key": "at once"}, client=client
                )
                made.append(answer.json()["data"]["made"]["accessToken"])

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert len(made) == 8
        assert len(set(made)) == 1

    def test_same_key_gives_a_limited_bearer_no_token_of_another(self, lives: LifecycleClient) -> None:
        ann = lives.new_actor()
        near = ["127.0.0.0/8"]
        free = lives.create(ann, duration="ONE_YEAR")
        others = [
            lives.create(ann, allowedNetworks=near),
            lives.create(ann, durationIso="PT2M", allowedNetworks=near),
            lives.derive(free.token, durationIso="PT2M"),
        ]
        for number, (other, limits) in enumerate(zip(others, [{}, {"allowedNetworks": near}, {}], strict=True)):
            wanted: dict[str, Any] = {"key": f"k{number}", "duration": "ONE_YEAR", **limits}
            lives.create(ann, token=free.token, **wanted)
            with pytest.raises(GraphQLRefused) as refusal:
                lives.create(ann, token=other.token, **wanted)
            assert refusal.value.reason == "idempotency_key_reused"
        lives.derive(free.token, key="derived")
        with pytest.raises(GraphQLRefused) as refusal:
            lives.derive(others[0].token, key="derived")
        assert refusal.value.reason == "idempotency_key_reused"

    def test_replay_needs_the_current_privileges(self, lives: LifecycleClient) -> None:
        held = lives.create(lives.new_actor())
        first = lives.derive(held.token, key="k")
        lives.revoke(held)
        answer = lives.auth(first)
        assert answer.status_code == 401
        refused = lives.server.post("{ me { corpUser { urn } } }", token=held.token)
        assert refused.status_code == 401


def test_no_secret_is_stored_for_a_request(make_server: Callable[..., Server]) -> None:
    server = make_server()
    key = "a key that nobody should find"
    held = LifecycleClient(server).create(ADMIN, key=key)
    (row,) = look(server, "SELECT * FROM retries")
    for secret in (key, held.token, held.token.split(".")[2]):
        assert secret not in str(row)
    assert held.id in row


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\xe9", "a\tb"])
def test_malformed_idempotency_key_is_rejected(life: LifecycleClient, key: str) -> None:
    answer = life.server.http.post(
        "/api/graphql",
        json={"query": "{ me { corpUser { urn } } }"},
        headers=[(b"X-Service-Actor", ADMIN.encode()), (b"Idempotency-Key", key.encode("latin-1"))],
    )
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["extensions"]["field"] == "Idempotency-Key"


def test_keyed_request_creates_one_token(life: LifecycleClient) -> None:
    two = """mutation ($input: GetAccessTokenInput!) {
      a: createAccessToken(input: $input) { accessToken } b: createAccessToken(input: $input) { accessToken } }"""
    wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "n"}
    answer = life.server.post(two, {"input": wanted}, actor=ADMIN, headers={"Idempotency-Key": "two"}).json()
    assert answer["data"]["a"] is not None
    assert answer["data"]["b"] is None
    assert answer["errors"][0]["extensions"]["field"] == "Idempotency-Key"
