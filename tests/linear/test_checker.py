"""The checker itself: compared with brute force on small histories, and with hand-written violations."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.linear import rules
from tests.linear.checker import NO_ORDER, judge, unexplained
from tests.linear.history import NEVER, OK, UNKNOWN, Call, History, Kind, Outcome, Verdict, refused
from tests.linear.model import State, Step, respond, steps_of

ACTOR = "a"
REASONS = ("token_revoked", "invalid_token", "already_revoked", "token_not_found", "missing_privilege")


def call(kind: Kind, start: int, end: int, outcome: Outcome = OK, name: str = "t", **how: Any) -> Call:
    return Call(kind, ACTOR, outcome, start, end, name, **how)


def listed(*names: str, total: int | None = None) -> Outcome:
    return Outcome(Verdict.OK, names=frozenset(names), total=len(names) if total is None else total)


CREATED = call(Kind.CREATE, 0, 1)
REVOKED = call(Kind.REVOKE, 10, 11)
GRANTED = call(Kind.GRANT, 2, 3, name="p")


def brute_force(calls: list[Call]) -> bool:
    """Whether any order of the steps, optional ones omitted at will, respects the times and matches the model."""
    steps = steps_of(calls)
    needed = [step for step in steps if not step.optional]
    optional = [step for step in steps if step.optional]
    return any(
        _explains(order)
        for count in range(len(optional) + 1)
        for some in itertools.combinations(optional, count)
        for order in itertools.permutations([*needed, *some])
    )


def _explains(order: tuple[Step, ...]) -> bool:
    latest_start, state = -1, State()
    for step in order:
        if step.end < latest_start:
            return False
        latest_start = max(latest_start, step.call.start)
        new = step.after(state)
        if new is None:
            return False
        state = new
    return True


KINDS = st.sampled_from([*Kind, Kind.VERIFY, Kind.VERIFY, Kind.CREATE, Kind.REVOKE])


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    """A run of the model with each moment stretched to a span, and sometimes an answer changed or lost."""
    state = draw(st.sampled_from([State(), State(live=frozenset("x"), policies=frozenset("p"))]))
    calls = []
    if state.live:
        calls = [call(Kind.CREATE, 0, 0, name="x"), call(Kind.GRANT, 0, 0, name="p")]
        state = State(live=frozenset("x"), policies=frozenset("p"))
    for moment in range(1, draw(st.integers(2, 5)) + 1):
        kind = draw(KINDS)
        name = draw(st.sampled_from("pq" if kind in {Kind.GRANT, Kind.WITHDRAW} else "xy"))
        fresh = kind not in {Kind.CREATE, Kind.GRANT} or not any(c.kind is kind and c.name == name for c in calls)
        if not fresh:  # clients choose a new name for each create
            kind = Kind.VERIFY if kind is Kind.CREATE else Kind.PRIVILEGES
        own = kind in {Kind.CREATE, Kind.REVOKE, Kind.LIST, Kind.PRIVILEGES}
        bearer = draw(st.sampled_from([None, "x"])) if own else None
        outcome, state = respond(state, kind, name, bearer)
        start, end = 100 * moment - draw(st.integers(0, 250)), 100 * moment + draw(st.integers(0, 250))
        calls.append(call(kind, max(start, 1), end, outcome, name, bearer=bearer))
    at = draw(st.integers(0, 3 * len(calls)))
    if at < len(calls):
        calls[at] = replace(calls[at], outcome=_another_outcome(draw, calls[at]))
    return calls


def _another_outcome(draw: st.DrawFn, one: Call) -> Outcome:
    others = [OK, *(refused(reason) for reason in REASONS)]
    match one.kind:
        case Kind.LIST:
            others = [listed(*names) for names in ("", "x", "y", "xy")] + [listed("x", total=2)]
        case Kind.PRIVILEGES:
            others = [Outcome(Verdict.OK, granted=granted) for granted in (True, False)]
        case kind if kind.writes:
            others += [UNKNOWN] * 4
    return draw(st.sampled_from(others))


def test_search_agrees_with_brute_force() -> None:
    verdicts: Counter[bool] = Counter()

    @settings(max_examples=400)
    @given(histories())
    def compare(calls: list[Call]) -> None:
        explained = unexplained(calls) is None
        assert explained == brute_force(calls)
        verdicts[explained] += 1

    compare()
    assert min(verdicts[True], verdicts[False]) > 20, verdicts


@given(histories())
def test_simple_rule_fails_only_if_no_order_exists(calls: list[Call]) -> None:
    if any(rules.broken_rules(History(calls))):
        assert unexplained(calls) is not None


@pytest.mark.parametrize(
    ("law", "calls"),
    [
        (rules.ACCEPTED_AFTER_REVOKE, [CREATED, REVOKED, call(Kind.VERIFY, 12, 13)]),
        (
            rules.ACCEPTED_AFTER_REFUSAL,
            [
                CREATED,
                call(Kind.REVOKE, 2, 90),
                call(Kind.VERIFY, 3, 4, refused("token_revoked")),
                call(Kind.VERIFY, 5, 6),
            ],
        ),
        (rules.NEVER_CREATED, [call(Kind.VERIFY, 0, 1, name="forged")]),
        (rules.NEVER_CREATED, [call(Kind.VERIFY, 0, 1), call(Kind.CREATE, 2, 3)]),
        (rules.TOTAL_DIFFERS, [CREATED, call(Kind.LIST, 2, 3, listed("t", total=2))]),
        (rules.LISTED_AFTER_REVOKE, [CREATED, REVOKED, call(Kind.LIST, 12, 13, listed("t"))]),
        (
            rules.ACCEPTED_WHILE_SUSPENDED,
            [CREATED, call(Kind.RESUME, 2, 3), call(Kind.SUSPEND, 4, 5), call(Kind.VERIFY, 6, 7)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_simple_rule_detects_its_violation(law: str, calls: list[Call]) -> None:
    objections = judge(History(calls))
    assert [o.law for o in objections] == [law, NO_ORDER]


VIOLATIONS = {
    "a create that returned is missing from a later list": [CREATED, call(Kind.LIST, 2, 3, listed())],
    "a list saw a second token and not the first": [
        CREATED,
        call(Kind.CREATE, 2, 3, name="u"),
        call(Kind.LIST, 4, 5, listed("u")),
    ],
    "two lists one after the other saw two concurrent creates in two orders": [
        call(Kind.CREATE, 0, 90, name="t"),
        call(Kind.CREATE, 0, 90, name="u"),
        call(Kind.LIST, 1, 2, listed("t")),
        call(Kind.LIST, 3, 4, listed("u")),
    ],
    "a token was revoked twice": [CREATED, REVOKED, call(Kind.REVOKE, 10, 12)],
    "a revoke was refused as made before though none was": [
        CREATED,
        call(Kind.REVOKE, 2, 3, refused("already_revoked")),
    ],
    "a token is live again after its unanswered revoke was seen": [
        CREATED,
        call(Kind.REVOKE, 2, NEVER, UNKNOWN),
        call(Kind.VERIFY, 3, 4, refused("token_revoked")),
        call(Kind.LIST, 5, 6, listed("t")),
    ],
    "a token was created with a bearer that was revoked": [
        CREATED,
        GRANTED,
        REVOKED,
        call(Kind.CREATE, 12, 13, name="u", bearer="t"),
    ],
    "a token was created under a policy that was withdrawn": [
        CREATED,
        GRANTED,
        call(Kind.WITHDRAW, 4, 5, name="p"),
        call(Kind.CREATE, 6, 7, name="u", bearer="t"),
    ],
    "a policy in force does not grant": [
        CREATED,
        GRANTED,
        call(Kind.LIST, 4, 5, refused("missing_privilege"), bearer="t"),
    ],
    "a withdrawn policy still grants": [
        GRANTED,
        call(Kind.WITHDRAW, 4, 5, name="p"),
        call(Kind.PRIVILEGES, 6, 7, Outcome(Verdict.OK, granted=True)),
    ],
    "a policy was withdrawn twice": [GRANTED, *(call(Kind.WITHDRAW, 4, 5 + n, name="p") for n in range(2))],
    "a resumed actor is refused": [
        CREATED,
        call(Kind.SUSPEND, 2, 3),
        call(Kind.RESUME, 4, 5),
        call(Kind.VERIFY, 6, 7, refused("invalid_token")),
    ],
    "an unsuspended actor's live token is refused as revoked": [
        CREATED,
        call(Kind.VERIFY, 2, 3, refused("token_revoked")),
    ],
    "a suspension is seen and then not, with no resume": [
        CREATED,
        call(Kind.SUSPEND, 2, 90),
        call(Kind.VERIFY, 3, 4, refused("invalid_token")),
        call(Kind.VERIFY, 5, 6),
    ],
    "an answer that is never right": [CREATED, call(Kind.VERIFY, 2, 3, refused("internal"))],
}


@pytest.mark.parametrize("calls", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_checker_rejects_unexplainable_histories(calls: list[Call]) -> None:
    assert judge(History(calls))


EXPLAINED = {
    "a policy may count for a look before a suspension that was answered before it": [
        CREATED,
        call(Kind.GRANT, 2, 90, name="p"),
        call(Kind.SUSPEND, 3, 5),
        call(Kind.PRIVILEGES, 2, 10, Outcome(Verdict.OK, granted=True), bearer="t"),
    ],
    "a suspension may have been undone before it was answered": [
        CREATED,
        call(Kind.SUSPEND, 2, 90),
        call(Kind.RESUME, 2, 5),
        call(Kind.VERIFY, 91, 92),
    ],
    "a list may have seen the one of two creates that came first": [
        call(Kind.CREATE, 0, 5, name="u"),
        call(Kind.CREATE, 0, 6, name="w"),
        call(Kind.LIST, 1, 20, listed("u")),
    ],
    "a verify that overlaps the revoke may go either way": [
        CREATED,
        REVOKED,
        call(Kind.VERIFY, 5, 20),
        call(Kind.VERIFY, 5, 10, refused("token_revoked")),
    ],
    "an unanswered revoke may come late": [
        CREATED,
        call(Kind.REVOKE, 2, NEVER, UNKNOWN),
        call(Kind.VERIFY, 50, 51),
        call(Kind.VERIFY, 52, 53, refused("token_revoked")),
    ],
    "an unanswered revoke may never come": [CREATED, call(Kind.REVOKE, 2, NEVER, UNKNOWN), call(Kind.VERIFY, 50, 51)],
    "an unanswered create may be seen and then be undone": [
        call(Kind.CREATE, 0, NEVER, UNKNOWN),
        call(Kind.LIST, 2, 3, listed()),
        call(Kind.LIST, 4, 5, listed("t")),
        call(Kind.LIST, 6, 7, listed()),
    ],
    "a list may see rows of a later moment than its right": [
        CREATED,
        GRANTED,
        call(Kind.WITHDRAW, 10, 11, name="p"),
        call(Kind.CREATE, 12, 13, name="u"),
        call(Kind.LIST, 9, 14, listed("t", "u"), bearer="t"),
    ],
}


@pytest.mark.parametrize("calls", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_checker_accepts_explainable_histories(calls: list[Call]) -> None:
    assert judge(History(calls)) == []


def test_violation_names_calls_with_client_instance_and_times() -> None:
    calls = [
        replace(CREATED, client="1", instance="one"),
        replace(REVOKED, client="2", instance="two", start=1_500_000_000, end=2_000_000_000),
        replace(CREATED, kind=Kind.VERIFY, client="3", instance="three", start=2_250_000_000, end=2_500_000_000),
    ]
    first, second = judge(History(calls))
    assert first.told(0).splitlines() == [
        f"{rules.ACCEPTED_AFTER_REVOKE}:",
        "  verify t by client 3 at three [2.250000, 2.500000]: ok",
        "  revoke t by client 2 at two [1.500000, 2.000000]: ok",
    ]
    assert [c.kind for c in second.calls] == [Kind.VERIFY, Kind.REVOKE, Kind.CREATE]


def model_run(
    seed: int, count: int, actors: int, clients: int, spoil: Callable[[random.Random, Call], Call] = lambda _, c: c
) -> History:
    """A long explainable history of several clients, each with one call at a time."""
    chance, states, names = random.Random(seed), [State() for _ in range(actors)], itertools.count()
    free, history = [0] * clients, History()
    for moment in range(1, count + 1):
        client = min(range(clients), key=free.__getitem__)
        now = 1_000 * moment
        actor = chance.randrange(actors)
        state = states[actor]
        kind = chance.choice([*Kind, Kind.CREATE, Kind.REVOKE, *[Kind.VERIFY] * 6])
        some = sorted(state.policies if kind is Kind.WITHDRAW else state.live | set(sorted(state.dead)[-3:]))
        name = f"n{next(names)}" if kind in {Kind.CREATE, Kind.GRANT} or not some else chance.choice(some)
        own = kind in {Kind.CREATE, Kind.REVOKE, Kind.LIST, Kind.PRIVILEGES} and bool(state.live) and moment % 2
        bearer = chance.choice(sorted(state.live)) if own else None
        outcome, states[actor] = respond(state, kind, name, bearer)
        start, end = max(free[client] + 1, now - chance.randrange(6_000)), now + chance.randrange(1, 6_000)
        free[client] = end
        made = Call(kind, f"a{actor}", outcome, min(start, now), end, name, bearer, f"{client}", "model")
        history.note(spoil(chance, made))
    return history


def test_checker_finds_one_wrong_answer_in_twenty_thousand_calls() -> None:
    def lose(chance: random.Random, made: Call) -> Call:
        lost = made.kind.writes and made.outcome is OK and chance.random() < 0.01
        return replace(made, outcome=UNKNOWN) if lost else made

    began = time.monotonic()
    history = model_run(1, 20_000, 60, 12, lose)
    print(f"made in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    assert judge(history) == []
    print(f"judged in {time.monotonic() - began:.1f} s")

    calls = list(history)
    at = max(n for n, c in enumerate(calls) if c.kind is Kind.VERIFY and c.outcome.reason == "token_revoked")
    calls[at] = replace(calls[at], outcome=OK)
    assert calls[at] in {objection.calls[0] for objection in judge(History(calls))}


def test_history_survives_a_round_trip(tmp_path: Path) -> None:
    history = model_run(2, 200, 2, 4)
    history.write(tmp_path / "history.jsonl")
    assert list(History.read(tmp_path / "history.jsonl")) == list(history)
