"""The HTTP service against a small model: every response matches the model, and an actor without Manage All never sees
others' tokens by any combination of filters, paging, aliases and mutations."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.model.drawing import (
    ADD_MEMBERS,
    CREATE,
    CREATE_GROUP,
    EVERYTHING_USED,
    FIND,
    LIFETIMES,
    LIST,
    NAMES,
    NOBODYS,
    REMOVE_GROUP,
    REMOVE_MEMBERS,
    REVOKE,
    UPDATE_POLICY,
    draw_list,
)
from tests.model.reference import (
    ADMIN,
    GENERATE,
    MANAGE_ALL,
    MAX_EFFORT,
    Listed,
    Policy,
    Refused,
    Token,
    World,
    effort,
)
from tests.support.properties import run_machine
from tests.support.server import Server

_numbers = itertools.count()


def outcome_of(error: dict[str, Any]) -> Refused:
    told = error["extensions"]
    about = [told[name] for name in ("privilege", "field", "revokedAt") if name in told]
    return Refused(told["code"], told["reason"], about[0] if about else None)


def seen(token: Token) -> Token:
    """Everything compared: all but the last use, which is written in the background."""
    return {name: value for name, value in token.items() if name not in {"lastUsedAt", "secret"}}


class Service(RuleBasedStateMachine):
    """Actors: the admin, two that may generate, one without privileges, one that manages all, and a group."""

    def __init__(self, server: Server, world: World) -> None:
        super().__init__()
        self.server = server
        self.world = world
        self.tag = f"urn:li:corpuser:m{next(_numbers)}-"
        self.actors = [self.tag + name for name in ("ann", "bob", "none", "mona")]
        self.mine: list[Token] = []
        self.group = ""

    @initialize()
    def begin(self) -> None:
        ann, bob, _, mona = self.actors
        wanted = {"id": self.tag.rsplit(":", 1)[1] + "ops", "name": "ops"}
        self.group = self.server.ask(CREATE_GROUP, {"i": wanted}, actor=ADMIN)["createGroup"]
        self.world.groups[self.group] = set()
        self._grant({GENERATE}, {ann, bob}, set())
        self._grant({MANAGE_ALL}, {mona}, set())
        for number, (owner, actor) in enumerate([(ann, ann), (ann, ann), (bob, bob), (mona, bob), (ADMIN, mona)]):
            self._create(owner, None, actor, NAMES[number], None, *LIFETIMES[number % 3])

    def teardown(self) -> None:
        for urn in list(self.world.policies):
            self.server.withdraw(urn)
            del self.world.policies[urn]
        for actor in list(self.world.suspended):
            self._set_status(actor, suspended=False)
        if self.group:
            self.server.ask(REMOVE_GROUP, {"urn": self.group}, actor=ADMIN)
            del self.world.groups[self.group]

    # Tokens

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        actor, bearer = self._caller(data)
        target = data.draw(st.sampled_from([actor, actor, *self.actors]), label="for")
        name, description = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from([None, *NAMES]))
        self._create(actor, bearer, target, name, description, *data.draw(st.sampled_from(LIFETIMES)))

    def _create(
        self,
        actor: str,
        bearer: Token | None,
        target: str,
        name: str,
        description: str | None,
        lifetime: dict[str, str],
        length: int,
    ) -> None:
        wanted = {"type": "PERSONAL", "actorUrn": target, "name": name, "description": description, **lifetime}
        expected = self.world.create(actor, bearer, target)
        answer = self._ask(actor, bearer, CREATE, {"input": wanted})
        if expected is not None:
            assert answer == expected
            return
        made = answer["createAccessToken"]
        token = {**made["metadata"], "secret": made["accessToken"]}
        assert token["expiresAt"] == token["createdAt"] + length
        assert (token["actorUrn"], token["ownerUrn"]) == (target, actor)
        assert (token["name"], token["description"], token["status"]) == (name, description, "ACTIVE")
        assert token["urn"] == "urn:li:serviceAccessToken:" + token["id"]
        self.mine.append(token)
        self.world.tokens.append(token)

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        actor, bearer = self._caller(data)
        token = self._some_token(data)
        named = token["id"] if token else data.draw(st.sampled_from(NOBODYS))
        if token and data.draw(st.booleans(), label="by urn"):
            named = token["urn"]
        expected = self.world.revoke(actor, bearer, token)
        answer = self._ask(actor, bearer, REVOKE, {"id": named})
        if expected is not None:
            assert answer == expected
            return
        assert answer == {"revokeAccessToken": True}
        assert token is not None
        known = self._ask(ADMIN, None, FIND, {"token": token["secret"]})["getAccessTokenMetadata"]
        assert known["revokedAt"] is not None
        token["status"], token["revokedAt"] = "REVOKED", known["revokedAt"]
        assert seen(known) == seen(token)

    @rule(data=st.data())
    def find_by_token(self, data: st.DataObject) -> None:
        actor, bearer = self._caller(data)
        token = self._some_token(data)
        expected = self.world.metadata(actor, bearer, token)
        answer = self._ask(actor, bearer, FIND, {"token": token["secret"] if token else "not.a.token"})
        if isinstance(expected, Refused):
            assert answer == expected
        else:
            assert seen(answer["getAccessTokenMetadata"]) == seen(expected)

    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.mine))
        refused = self.world.identity(token["actorUrn"], token)
        response = self.server.verify(token["secret"])
        assert response.status_code == (401 if refused else 204)
        if refused:
            told = response.headers["WWW-Authenticate"]
            assert ("revoked at" in told) == (refused.reason == "token_revoked")

    # Lists

    @rule(data=st.data())
    def list_tokens(self, data: st.DataObject) -> None:
        actor, bearer = self._caller(data)
        wanted = {alias: draw_list(data, actor, self.mine, self.actors) for alias in "abc"}
        self._list_all(actor, bearer, wanted)

    @rule(data=st.data())
    def list_allowed(self, data: st.DataObject) -> None:
        """Valid lists by allowed callers, so that most responses have rows."""
        may = [actor for actor in self.actors if self.world.create(actor, None, actor) is None]
        actor = data.draw(st.sampled_from(may or [ADMIN]), label="actor")
        wanted = {alias: draw_list(data, actor, self.mine, self.actors, sound=True) for alias in "abc"}
        self._list_all(actor, None, wanted)

    def _list_all(self, actor: str, bearer: Token | None, wanted: dict[str, Any]) -> None:
        """In one request, unless that exceeds the limit per request."""
        if sum(map(effort, wanted.values())) <= MAX_EFFORT:
            self._list(actor, bearer, wanted)
        else:
            for entry in wanted.values():
                self._list(actor, bearer, {"a": entry})

    def _list(self, actor: str, bearer: Token | None, wanted: dict[str, Any]) -> None:
        by_use = any("lastUsedAt" in str(entry) for entry in wanted.values())
        while True:
            before = self._learn_uses() if by_use else None
            response = self._post(actor, bearer, LIST, wanted)
            if not by_use or self._learn_uses() == before:
                break
        refused = self.world.identity(actor, bearer)
        if refused is not None:
            assert [outcome_of(error) for error in response["errors"]] == [refused]
            assert not response.get("data")
            return
        errors = {error["path"][0]: outcome_of(error) for error in response.get("errors", ())}
        for alias, entry in wanted.items():
            self._check_list(actor, entry, response["data"][alias], errors.get(alias))

    def _check_list(self, actor: str, wanted: dict[str, Any], found: Any, error: Refused | None) -> None:
        if found is not None and MANAGE_ALL not in self.world.privileges(actor):
            # Checked independently of the model: an actor sees only its own tokens.
            assert all(actor in (row["actorUrn"], row["ownerUrn"]) for row in found["tokens"])
            own = [t for t in self.world.tokens if actor in (t["actorUrn"], t["ownerUrn"])]
            assert found["total"] <= len(own)
        expected = self.world.listing(actor, wanted)
        if isinstance(expected, Listed):
            assert error is None
            assert found["total"] == expected.total
            assert [seen(row) for row in found["tokens"]] == [seen(row) for row in expected.rows]
            assert found["start"] == (wanted.get("start") or 0)
            assert found["count"] == (20 if wanted.get("count") is None else wanted["count"])
        else:
            assert (found, error) == (None, expected)

    # Privileges

    @rule(data=st.data())
    def change_privileges(self, data: st.DataObject) -> None:
        """One rule, so that most callers keep some privileges."""
        changes = [self._add_privileges, self._add_privileges, self._change_members, self._change_status, self._switch]
        data.draw(st.sampled_from([*changes, self._withdraw]), label="change")(data)

    def _add_privileges(self, data: st.DataObject) -> None:
        privileges = data.draw(st.sampled_from([{GENERATE}, {GENERATE}, {MANAGE_ALL}, {GENERATE, MANAGE_ALL}]))
        users = data.draw(st.sets(st.sampled_from(self.actors), max_size=2))
        self._grant(privileges, users, data.draw(st.sampled_from([set(), {self.group}])))

    def _withdraw(self, data: st.DataObject) -> None:
        if self.world.policies:
            urn = data.draw(st.sampled_from(list(self.world.policies)), label="policy")
            self.server.withdraw(urn)
            del self.world.policies[urn]

    def _switch(self, data: st.DataObject) -> None:
        """Deactivate a policy, or reactivate all."""
        off = [urn for urn, policy in self.world.policies.items() if not policy.active]
        on = [urn for urn in self.world.policies if urn not in off]
        for urn in off or ([data.draw(st.sampled_from(on), label="policy")] if on else []):
            policy = self.world.policies[urn]
            policy.active = not policy.active
            self.server.ask(UPDATE_POLICY, {"urn": urn, "i": self._policy_input(policy)}, actor=ADMIN)

    def _change_status(self, data: st.DataObject) -> None:
        """Suspend an actor, or resume all."""
        suspended = sorted(self.world.suspended)
        for actor in suspended or [data.draw(st.sampled_from(self.actors), label="suspend")]:
            self._set_status(actor, suspended=not suspended)

    def _change_members(self, data: st.DataObject) -> None:
        members = data.draw(st.sets(st.sampled_from(self.actors), min_size=1, max_size=2))
        joins = data.draw(st.booleans(), label="join")
        change = {"groupUrn": self.group, "userUrns": sorted(members)}
        self.server.ask(ADD_MEMBERS if joins else REMOVE_MEMBERS, {"i": change}, actor=ADMIN)
        kept = self.world.groups[self.group]
        self.world.groups[self.group] = kept | members if joins else kept - members

    # Requests

    def _caller(self, data: st.DataObject) -> tuple[str, Token | None]:
        """An actor by its header, or the actor of a bearer token, live or dead."""
        if len(self.mine) > 0 and data.draw(st.booleans(), label="with a bearer"):
            bearer = data.draw(st.sampled_from(self.mine))
            return bearer["actorUrn"], bearer
        ann, bob, none, mona = self.actors
        return data.draw(st.sampled_from([ann, ann, ann, bob, bob, mona, mona, none, ADMIN]), label="actor"), None

    def _some_token(self, data: st.DataObject) -> Token | None:
        return data.draw(st.sampled_from([*self.mine, *self.mine, None]), label="token")

    def _ask(self, actor: str, bearer: Token | None, query: str, variables: dict[str, Any]) -> Any:
        """The data, or the error."""
        answer = self._post(actor, bearer, query, variables)
        if "errors" not in answer:
            return answer["data"]
        (error,) = answer["errors"]
        assert not any((answer.get("data") or {}).values())
        return outcome_of(error)

    def _post(self, actor: str, bearer: Token | None, query: str, variables: dict[str, Any]) -> Any:
        how = {"token": bearer["secret"]} if bearer else {"actor": actor}
        response = self.server.post(query, variables, **how)
        answer = response.json()
        assert response.status_code in ((200,) if answer.get("data") is not None else (200, 401))
        return answer

    def _learn_uses(self) -> dict[str, int]:
        """The last use is written in the background: read it before and after."""
        uses: dict[str, int] = {}
        for start in itertools.count(0, 1_000):
            found = self.server.ask(LIST, {"a": {**EVERYTHING_USED, "start": start}}, actor=ADMIN)["a"]
            uses |= {row["id"]: row["lastUsedAt"] for row in found["tokens"]}
            if start + 1_000 >= found["total"]:
                break
        for token in self.world.tokens:
            token["lastUsedAt"] = uses.get(token["id"])
        return uses

    def _grant(self, privileges: set[str], users: set[str], groups: set[str]) -> None:
        urn = self.server.grant(*sorted(users), privileges=tuple(sorted(privileges)), groups=sorted(groups))
        self.world.policies[urn] = Policy(privileges, users, groups)

    def _policy_input(self, policy: Policy) -> dict[str, Any]:
        return {
            "type": "PLATFORM",
            "name": "test policy",
            "state": "ACTIVE" if policy.active else "INACTIVE",
            "privileges": sorted(policy.privileges),
            "actors": {"users": sorted(policy.users), "groups": sorted(policy.groups)},
        }

    def _set_status(self, actor: str, *, suspended: bool) -> None:
        self.server.set_status(actor, "SUSPENDED" if suspended else "ACTIVE")
        (self.world.suspended.add if suspended else self.world.suspended.discard)(actor)


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for this test alone, so that the model knows all its data."""
    with Server(tmp_path_factory.mktemp("model"), "--actor-daily-changes", "0") as running:
        yield running


def explore(server: Server, examples: int, steps: int) -> None:
    world = World()

    class Bound(Service):
        def __init__(self) -> None:
            super().__init__(server, world)

    run_machine(Bound, max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck))
    check = server.command_line("db", "check")
    assert check.returncode == 0, check.stdout


@pytest.mark.long
def test_every_response_matches_the_model(alone: Server) -> None:
    explore(alone, examples=30, steps=40)


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(12))
def test_every_response_matches_the_model_in_a_long_run(alone: Server, round_: int) -> None:
    explore(alone, examples=100, steps=60)
