"""The law of a token's life, said plainly over Python objects: what every store is compared with."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from watchword.domain.tokens import TokenRecord

Seen = tuple[int | None, int | None, int | None, int | None, str | None, int | None]


@dataclass
class Life:
    made: TokenRecord
    end: int | None
    full_end: int | None
    grace: int | None
    revoked_at: int | None = None
    replaced_by: str | None = None
    replaced_at: int | None = None

    def seen(self) -> Seen:
        return (self.revoked_at, self.end, self.full_end, self.grace, self.replaced_by, self.replaced_at)


def seen_of(record: TokenRecord) -> Seen:
    ends = (record.revoked_at, record.expires_at, record.full_end, record.grace)
    return (*ends, record.replaced_by, record.replaced_at)


@dataclass
class Lives:
    now: int
    all: dict[str, Life] = field(default_factory=dict)

    def is_alive(self, token: str | None) -> bool:
        life = self.all.get(token or "")
        return life is not None and life.revoked_at is None and (life.end is None or life.end > self.now)

    def add(self, made: TokenRecord) -> None:
        self.all[made.id] = Life(made, made.expires_at, made.full_end, made.grace)

    def rotate(self, old: str, successor: TokenRecord) -> None:
        unused = self.all[old].replaced_by
        if unused is not None and self.all[unused].revoked_at is None:
            self.all[unused].revoked_at = self.now
        self.add(successor)
        self.all[old].replaced_by = successor.id

    def use_first(self, token: str) -> None:
        life = self.all[token]
        if life.grace is None or not self.is_alive(token):
            return
        end = self.now + life.grace
        life.end, life.grace = life.full_end, None
        old = life.made.replaces
        assert old is not None
        self.all[old].replaced_at = self.now
        for each in self._line(old):
            shortened = self.all[each]
            shortened.end = _sooner(shortened.end, end)
            if shortened.grace is not None:
                shortened.full_end = _sooner(shortened.full_end, end)

    def dying(self, chosen: Iterable[str], *, cascade: bool, expired: bool = True) -> set[str]:
        """The chosen that are not revoked, with `expired` those too that have ended; and of their relatives those that
        live.
        """
        known = {token for token in chosen if token in self.all}
        dead = {token for token in known if self.all[token].revoked_at is None and (expired or self.is_alive(token))}
        met: set[str] = set()
        todo = list(known if cascade else dead)
        while todo:
            token = todo.pop()
            if token in met:
                continue
            met.add(token)
            life, alive = self.all[token], self.is_alive(token)
            dead |= {token} if alive else set()
            todo += [n for n, other in self.all.items() if other.made.parent == token and self.is_alive(n)]
            if cascade:  # which goes on through the dead
                todo += [n for n, other in self.all.items() if other.made.minted_with == token]
            if life.replaced_by and (alive or cascade):
                todo.append(life.replaced_by)
            if life.made.replaces and alive and self.is_alive(life.made.replaces):
                todo.append(life.made.replaces)
        return dead

    def end_all(self, tokens: Iterable[str]) -> None:
        for token in tokens:
            self.all[token].revoked_at = self.now

    def _line(self, token: str) -> list[str]:
        if token not in self.all or self.all[token].revoked_at is not None:
            return []
        children = [n for n, life in self.all.items() if life.made.parent == token]
        return [token, *(each for child in children for each in self._line(child))]


def _sooner(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
