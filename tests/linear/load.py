"""The load to check: clients create, use and revoke tokens, suspend and resume actors, and add and remove policies,
each call through a random instance. The printed seed determines the calls but not their timing."""

import itertools
import random
import secrets
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.linear.client import PATIENCE, Client, Token
from tests.linear.history import History, Kind, Outcome, Verdict
from tests.support.server import Server
from tests.support.waiting import until

MOST_CALLS = 400
"""About one actor. Then another takes its place, so that no state gets too large and lost answers are outlived."""
LEAST_CALLS = 1_000
"""By which every kind of call has met every common answer."""
RENEWED = 0.05
"""Calls before which a client opens its connection anew, and so comes to another worker."""
UNHEARD = 0.02
"""Seconds before the next call after one that was not answered."""


@dataclass(slots=True)
class Actor:
    urn: str
    live: list[Token] = field(default_factory=list)
    dead: list[Token] = field(default_factory=list)
    policies: list[tuple[str, str]] = field(default_factory=list)
    """Name and urn of each that is known to have been made and not known to be gone."""
    left: int = MOST_CALLS


class Load:
    """Clients that run from enter to exit. Their calls are in `history`."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        clients: int = 8,
        actors: int = 5,
        pause: float = 0,
        seed: int | None = None,
        history: History | None = None,
    ) -> None:
        self.seed = secrets.randbelow(2**32) if seed is None else seed
        print(f"load with seed {self.seed}")
        self.servers = list(servers)
        self._pause = pause
        """Seconds between two calls of a client: without it the load takes every processor that is there."""
        self.history = History() if history is None else history
        self.avoided: set[str] = set()
        """Addresses that all but the last two clients keep away from: one stopped instance must not stop all."""
        self.past: list[Token] = []
        self._names = itertools.count()
        self._slots = [self._new_actor() for _ in range(actors)]
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(number, number >= clients - 2)) for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(3 * PATIENCE)
        if kind is None:
            assert self._failures == []
            assert not any(thread.is_alive() for thread in self._threads), "a client did not come to its end"

    def run(self, seconds: float) -> Self:
        """Run for this long, longer on a slow machine, then read the final state."""
        with self:
            self._over.wait(seconds)
            until(
                lambda: len(self.history) >= LEAST_CALLS or self._over.is_set(), f"{LEAST_CALLS} calls were made", 120
            )
        self.look_back()
        return self

    def look_back(self) -> None:
        """Ask every instance about every actor: all its tokens, dead or alive, and their list."""
        with Client("last", self.history) as client:
            for server, actor in itertools.product(self.servers, self._slots):
                for token in [*actor.live, *actor.dead[-20:]]:
                    client.verify(server, token)
                client.list(server, actor.urn, 1_000)

    def tokens(self) -> list[Token]:
        """Live ones, as far as known."""
        return [token for actor in self._slots for token in actor.live]

    def _new_actor(self) -> Actor:
        return Actor(f"urn:li:corpuser:linear-{self.seed:08x}-{next(self._names)}")

    def _work(self, number: int, steadfast: bool) -> None:
        chance = random.Random(f"{self.seed} {number}")
        try:
            with Client(str(number), self.history) as client:
                while not self._over.is_set():
                    near = [s for s in self.servers if steadfast or s.url not in self.avoided]
                    server = chance.choice(near)
                    if chance.random() < RENEWED:
                        client.renew(server)
                    self._one(client, chance, server)
                    self._over.wait(self._pause)
        except Exception as error:  # noqa: BLE001 - told to the test
            self._failures.append(error)
            self._over.set()

    def _one(self, client: Client, chance: random.Random, server: Server) -> None:
        slot = chance.randrange(len(self._slots))
        actor = self._slots[slot]
        actor.left -= 1
        if actor.left <= 0:
            self.past = [*self.past, *actor.live, *actor.dead][-200:]
            actor = self._slots[slot] = self._new_actor()
        live, dead, past = tuple(actor.live), tuple(actor.dead[-10:]), self.past
        draw = chance.random()
        bearer = chance.choice(live) if live and chance.random() < 0.6 else None
        if not live and draw < 0.20:  # a suspended actor would never get one
            outcome = client.set_status(server, actor.urn, Kind.RESUME)
        elif not live or draw < 0.10:
            outcome = self._create(client, server, actor, bearer)
        elif draw < 0.18:
            outcome = self._revoke(client, server, actor, chance.choice(live + dead[-1:]), bearer)
        elif draw < 0.26:
            outcome = client.list(server, actor.urn, chance.choice((0, 1_000, 1_000)), bearer)
        elif draw < 0.34:
            outcome = client.privileges(server, actor.urn, bearer)
        elif draw < 0.40:
            outcome = client.set_status(server, actor.urn, Kind.RESUME if chance.random() < 0.65 else Kind.SUSPEND)
        elif draw < 0.46 and actor.policies and chance.random() < 0.6:
            outcome = self._withdraw(client, server, actor, chance.choice(tuple(actor.policies)))
        elif draw < 0.46:
            outcome = self._grant(client, server, actor)
        elif draw < 0.47:
            outcome = client.verify(server, self._forged(chance, live[0]))
        elif draw < 0.50 and past:
            outcome = client.verify(server, chance.choice(past))
        else:
            outcome = client.verify(server, chance.choice(dead if dead and chance.random() < 0.3 else live))
        if outcome.verdict is Verdict.UNKNOWN:
            actor.left = 0
        if outcome.verdict in {Verdict.UNKNOWN, Verdict.NOTHING}:
            self._over.wait(UNHEARD)

    def _create(self, client: Client, server: Server, actor: Actor, bearer: Token | None) -> Outcome:
        outcome, token = client.create(server, actor.urn, f"t{next(self._names)}", bearer)
        if token is not None:
            actor.live.append(token)
        return outcome

    def _revoke(self, client: Client, server: Server, actor: Actor, token: Token, bearer: Token | None) -> Outcome:
        outcome = client.revoke(server, token, bearer)
        if outcome.verdict is Verdict.OK:
            actor.dead.append(token)
            with suppress(ValueError):
                actor.live.remove(token)
        return outcome

    def _grant(self, client: Client, server: Server, actor: Actor) -> Outcome:
        name = f"p{next(self._names)}"
        outcome, urn = client.grant(server, actor.urn, name)
        if urn is not None:
            actor.policies.append((name, urn))
        return outcome

    def _withdraw(self, client: Client, server: Server, actor: Actor, policy: tuple[str, str]) -> Outcome:
        outcome = client.withdraw(server, actor.urn, *policy)
        if outcome.verdict is Verdict.OK:
            with suppress(ValueError):
                actor.policies.remove(policy)
        return outcome

    def _forged(self, chance: random.Random, like: Token) -> Token:
        """Looks real, for the same actor, but was never issued."""
        head, claims, _ = like.secret.split(".")
        signature = "".join(chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", k=86))
        return Token(f"forged{next(self._names)}", like.actor, "", f"{head}.{claims}.{signature}")
