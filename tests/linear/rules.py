"""Simple rules that follow from linearizability and give shorter messages."""

from collections.abc import Iterator

from tests.linear.history import NEVER, Call, History, Kind, Verdict

Broken = tuple[str, tuple[Call, ...]]

ACCEPTED_AFTER_REVOKE = "a verify that began after a revoke had returned true was accepted"
ACCEPTED_AFTER_REFUSAL = "a token that was refused as revoked was accepted later"
NEVER_CREATED = "a token was accepted that nobody had begun to create"
TOTAL_DIFFERS = "the total of a list differs from its rows"
LISTED_AFTER_REVOKE = "a list that began after a revoke had returned true shows the token"
ACCEPTED_WHILE_SUSPENDED = "a verify that began after a suspend had returned, with no resume begun, was accepted"


def broken_rules(history: History) -> Iterator[Broken]:
    for calls in history.by_actor().values():
        yield from _tokens(calls)
        yield from _lists(calls)
        yield from _suspensions(calls)


def _tokens(calls: list[Call]) -> Iterator[Broken]:
    revoked, refused_as_revoked, created = _first_revokes(calls), dict[str, Call](), dict[str, Call]()
    for call in sorted(calls, key=lambda c: c.end):
        if call.kind is Kind.CREATE and call.outcome.verdict in {Verdict.OK, Verdict.UNKNOWN}:
            created.setdefault(call.name, call)
        if call.kind is Kind.VERIFY and call.outcome.reason == "token_revoked":
            refused_as_revoked.setdefault(call.name, call)
    for call in calls:
        if call.kind is not Kind.VERIFY or call.outcome.verdict is not Verdict.OK:
            continue
        for first, law in ((revoked, ACCEPTED_AFTER_REVOKE), (refused_as_revoked, ACCEPTED_AFTER_REFUSAL)):
            before = first.get(call.name)
            if before is not None and before.end < call.start:
                yield law, (call, before)
        maker = created.get(call.name)
        if maker is None or maker.start > call.end:
            yield NEVER_CREATED, (call,) if maker is None else (call, maker)


def _first_revokes(calls: list[Call]) -> dict[str, Call]:
    first: dict[str, Call] = {}
    for call in sorted(calls, key=lambda c: c.end):
        if call.kind is Kind.REVOKE and call.outcome.verdict is Verdict.OK:
            first.setdefault(call.name, call)
    return first


def _lists(calls: list[Call]) -> Iterator[Broken]:
    revoked = _first_revokes(calls)
    for call in calls:
        if call.kind is not Kind.LIST or call.outcome.names is None:
            continue
        if call.outcome.total != len(call.outcome.names):
            yield TOTAL_DIFFERS, (call,)
        for name in call.outcome.names & revoked.keys():
            if revoked[name].end < call.start:
                yield LISTED_AFTER_REVOKE, (call, revoked[name])


def _suspensions(calls: list[Call]) -> Iterator[Broken]:
    """The last suspend before it had returned, and every resume ended before that or began after it."""
    suspends = [c for c in calls if c.kind is Kind.SUSPEND and c.outcome.verdict is Verdict.OK]
    resumes = [c for c in calls if c.kind is Kind.RESUME and c.outcome.verdict in {Verdict.OK, Verdict.UNKNOWN}]
    for call in calls:
        if call.kind is not Kind.VERIFY or call.outcome.verdict is not Verdict.OK:
            continue
        before = [s for s in suspends if s.end < call.start]
        if not before:
            continue
        last = max(before, key=lambda s: s.end)
        if not any(r.start <= call.end and (r.end >= last.start or _lost(r)) for r in resumes):
            yield ACCEPTED_WHILE_SUSPENDED, (call, last)


def _lost(call: Call) -> bool:
    return call.outcome.verdict is Verdict.UNKNOWN or call.end == NEVER
