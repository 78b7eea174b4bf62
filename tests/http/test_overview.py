"""Uses by day, networks, and the overview: from the verification to GraphQL and the command line."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.in_process import watchword
from tests.support.postgres import Address, home
from tests.support.server import ADMIN, GENERATE, SET_STATUS, GraphQLRefused, Server

ANN, BOB = "urn:li:corpuser:ann", "urn:li:corpuser:bob"
OVERVIEW = """query ($all: Boolean) { overview(input: {all: $all}) {
  live expiring7Days unused90Days neverExpiring suspended usesByDay { day count } expiriesByDay { day count }
  denialsByDay { day count } failedSignInsByDay { day count } owners { actorUrn actorName count } } }"""
LIST = """query ($actor: String!, $days: Int) {
  listAccessTokens(input: {filters: [{field: "actorUrn", value: $actor}]}) {
    tokens { name networks usesByDay { day count } week: usesByDay(days: 7) { count } more: usesByDay(days: $days) {
      count } } } }"""
PLANNED = LIST.replace("usesByDay(days: $days)", "usesByDay(days: 30)").replace(", $days: Int", "")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def used(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose uses were written, because it was stopped since."""
    folder: Path = tmp_path_factory.mktemp("overview")
    if request.param == "sqlite":
        with Server(folder / "server") as server:
            yield furnished(server)
        return
    postgres: Address = request.getfixturevalue("postgres")
    with home(postgres, folder) as place, Server(folder / "server", "--local-mode", "on", env=place.env) as server:
        yield furnished(server)


def furnished(server: Server) -> Server:
    server.grant(ANN)
    server.grant(BOB, privileges=(GENERATE, "MANAGE_ACCESS_TOKENS"))
    server.ask(f'mutation {{ setActor(input: {{urn: "{ANN}", displayName: "Ann"}}) }}', actor=ADMIN)
    made = [server.create(ANN, name=name, duration="ONE_DAY") for name in ("much", "little", "idle")]
    server.create(ADMIN, of=ANN, name="monthly", duration="ONE_MONTH")
    bobs = server.create(BOB, name="bob's")
    for token, times in zip(made, (5, 1, 0), strict=True):
        for _ in range(times):
            assert server.verify(token["accessToken"]).status_code == 204
    assert server.verify(bobs["accessToken"]).status_code == 204
    assert server.verify("eyJ.not.ours").status_code == 401
    with pytest.raises(GraphQLRefused):
        server.ask(OVERVIEW, {"all": True}, actor=ANN)
    server.stop()
    server.start()
    return server


def days(back: int, ahead: int) -> list[str]:
    today = datetime.now(UTC).date()
    return [str(today + timedelta(number)) for number in range(-back, ahead)]


def counts(listed: list[dict[str, Any]]) -> list[int]:
    return [one["count"] for one in listed]


def test_lists_show_uses_by_day_and_networks(used: Server) -> None:
    for query, variables in ((LIST, {"days": 30}), (PLANNED, {})):
        rows = used.ask(query, {"actor": ANN, **variables}, actor=ANN)["listAccessTokens"]["tokens"]
        found = {row["name"]: row for row in rows}
        assert {name: sum(counts(row["usesByDay"])) for name, row in found.items()} == {
            "much": 5, "little": 1, "idle": 0, "monthly": 0,
        }  # fmt: skip
        much = found["much"]
        assert [one["day"] for one in much["usesByDay"]][1:-1] == days(12, 0)  # whatever midnight came between
        assert [len(much[name]) for name in ("usesByDay", "week", "more")] == [14, 7, 30]
        assert sum(counts(much["week"])) == sum(counts(much["more"])) == 5
        assert (much["networks"], found["idle"]["networks"]) == (["127.0.0.0/24"], [])


def test_uses_by_day_are_read_on_the_fast_path(used: Server) -> None:
    name = 'watchword_graphql_fallbacks_total{cause="unsupported_operation"}'
    before = used.samples()[name]
    used.ask(PLANNED, {"actor": ANN}, actor=ANN)
    assert used.samples()[name] == before


@pytest.mark.parametrize("number", [0, 31])
def test_number_of_days_is_limited(used: Server, number: int) -> None:
    with pytest.raises(GraphQLRefused, match=r"days must be from 1 to 30\.") as refused:
        used.ask(LIST, {"actor": ANN, "days": number}, actor=ANN)
    assert refused.value.errors[0]["extensions"]["field"] == "days"


def test_own_overview_has_own_tokens_and_no_denials(used: Server) -> None:
    found = used.ask(OVERVIEW, actor=ANN)["overview"]
    numbers = {"live": 4, "expiring7Days": 3, "unused90Days": 0, "neverExpiring": 0, "suspended": 0}
    assert {name: found[name] for name in numbers} == numbers
    assert found["owners"] == [
        {"actorUrn": ANN, "actorName": "Ann", "count": 3},
        {"actorUrn": ADMIN, "actorName": None, "count": 1},
    ]
    assert (found["denialsByDay"], found["failedSignInsByDay"]) == (None, None)
    assert len(found["usesByDay"]) == 30
    assert sum(counts(found["usesByDay"])) == 6
    assert len(found["expiriesByDay"]) == 84
    assert [one["day"] for one in found["expiriesByDay"]][1:] == days(0, 84)[1:]
    assert sum(counts(found["expiriesByDay"])) == 4


def test_overview_of_all_tokens_needs_the_privilege(used: Server) -> None:
    with pytest.raises(GraphQLRefused, match="MANAGE_ACCESS_TOKENS"):
        used.ask(OVERVIEW, {"all": True}, actor=ANN)
    found = used.ask(OVERVIEW, {"all": True}, actor=BOB)["overview"]
    assert (found["live"], found["expiring7Days"], sum(counts(found["usesByDay"]))) == (5, 4, 7)
    assert found["denialsByDay"] is None
    with pytest.raises(GraphQLRefused):
        used.ask(OVERVIEW, actor="urn:li:corpuser:nobody")


def test_denials_and_failed_sign_ins_are_shown_with_the_audit_log(used: Server) -> None:
    found = used.ask(OVERVIEW, {"all": True}, actor=ADMIN)["overview"]
    assert sum(counts(found["denialsByDay"])) >= 1
    assert sum(counts(found["failedSignInsByDay"])) == 1
    assert len(found["denialsByDay"]) == len(found["failedSignInsByDay"]) == 30


def test_suspended_actors_tokens_are_not_live_anywhere(used: Server) -> None:
    used.ask(SET_STATUS, {"urn": BOB, "status": "SUSPENDED"}, actor=ADMIN)
    try:
        found = used.ask(OVERVIEW, {"all": True}, actor=ADMIN)["overview"]
        assert (found["live"], found["suspended"]) == (4, 1)
        assert BOB not in [owner["actorUrn"] for owner in found["owners"]]
        holds = used.ask(f'{{ getActor(urn: "{BOB}") {{ liveTokenCount suspendedTokenCount }} }}', actor=ADMIN)
        assert holds["getActor"] == {"liveTokenCount": 0, "suspendedTokenCount": 1}
    finally:
        used.ask(SET_STATUS, {"urn": BOB, "status": "ACTIVE"}, actor=ADMIN)


def test_commands_print_the_same_numbers(used: Server) -> None:
    def run(*words: str) -> str:
        ran = watchword(*words, "--url", used.url, "--as", ADMIN)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout

    printed = dict(line.split("  ", 1) for line in run("token", "overview", "--all-actors").splitlines())
    assert printed["Live"].strip() == "5"
    assert printed["Uses, 30 days"].split()[1] == "7"
    assert len(printed["Uses, 30 days"].split()[0]) == 30
    assert len(printed["Expiries, 12 weeks"].split()[0]) == 12
    assert "Ann 3" in printed["Most created by"]
    assert json.loads(run("token", "overview", "--all-actors", "--json"))["expiring7Days"] == 4
    (much,) = [t for t in json.loads(run("token", "list", "--all-actors", "--json")) if t["name"] == "much"]
    shown = run("token", "show", much["id"])
    (line,) = [line for line in shown.splitlines() if line.startswith("14 days")]
    assert line.split()[-1].strip("·") == "█"
    assert json.loads(run("token", "show", much["id"], "--json"))["networks"] == ["127.0.0.0/24"]
