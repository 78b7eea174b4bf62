"""Reference model of the token lifecycle, on Python objects. Every store is compared with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from watchword.tokens.rules import TokenRecord

Seen = tuple[int | None, int | None, int | None, int | None, str | None, int | None]


@dataclass
class TokenState:
    made: TokenRecord
    end: int | None
    full_end: int | None
    grace: int | None
    revoked_at: int | None = None
    replaced_by: str | None = None
    replaced_at: int | None = None

    def observed(self) -> Seen:
        return (self.revoked_at, self.end, self.full_end, self.grace, self.replaced_by, self.replaced_at)


def observed_of(record: TokenRecord) -> Seen:
    ends = (record.revoked_at, record.expires_at, record.full_end, record.grace)
    return (*ends, record.replaced_by, record.replaced_at)


@dataclass
class TokenModel:
    now: int
    all: dict[str, TokenState] = field(default_factory=dict)

    def is_alive(self, token: str | None) -> bool:
        state = self.all.get(token or "")
        return state is not None and state.revoked_at is None and (state.end is None or state.end > self.now)

    def add(self, made: TokenRecord) -> None:
        self.all[made.id] = TokenState(made, made.expires_at, made.full_end, made.grace)

    def rotate(self, old: str, successor: TokenRecord) -> None:
        unused = self.all[old].replaced_by
        if unused is not None and self.all[unused].revoked_at is None:
            self.all[unused].revoked_at = self.now
        self.add(successor)
        self.all[old].replaced_by = successor.id

    def use_first(self, token: str) -> None:
        state = self.all[token]
        if state.grace is None or not self.is_alive(token):
            return
        end = self.now + state.grace
        state.end, state.grace = state.full_end, None
        old = state.made.replaces
        assert old is not None
        self.all[old].replaced_at = self.now
        for each in self._derived_line(old):
            shortened = self.all[each]
            shortened.end = _earlier(shortened.end, end)
            if shortened.grace is not None:
                shortened.full_end = _earlier(shortened.full_end, end)

    def to_revoke(self, chosen: Iterable[str], *, cascade: bool, expired: bool = True) -> set[str]:
        """The selected tokens that are not revoked (`expired`: also expired ones) and their live relatives."""
        known = {token for token in chosen if token in self.all}
        dead = {token for token in known if self.all[token].revoked_at is None and (expired or self.is_alive(token))}
        met: set[str] = set()
        todo = list(known if cascade else dead)
        while todo:
            token = todo.pop()
            if token in met:
                continue
            met.add(token)
            state, alive = self.all[token], self.is_alive(token)
            dead |= {token} if alive else set()
            todo += [n for n, other in self.all.items() if other.made.parent == token and self.is_alive(n)]
            if cascade:  # a cascade also passes through dead tokens
                todo += [n for n, other in self.all.items() if other.made.created_with == token]
            if state.replaced_by and (alive or cascade):
                todo.append(state.replaced_by)
            if state.made.replaces and alive and self.is_alive(state.made.replaces):
                todo.append(state.made.replaces)
        return dead

    def revoke_all(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            self.all[token].revoked_at = self.now

    def _derived_line(self, token: str) -> list[str]:
        if token not in self.all or self.all[token].revoked_at is not None:
            return []
        children = [n for n, state in self.all.items() if state.made.parent == token]
        return [token, *(each for child in children for each in self._derived_line(child))]


def _earlier(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
