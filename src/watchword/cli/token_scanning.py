"""`watchword token scan`: tokens that lie where they should not, and which of them are live.

A token that was found is never printed, and never used while it may live: a use might be the first one that a successor
waits for. It is sent only to a server whose own key it names, so that nobody learns a token of somebody else's. What
was to be revoked is shown to the server once more: it alone can tell a token that is dead now from one made up.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.common import json_flag
from watchword.cli.leaks import Leak, files_below, leaks_in
from watchword.cli.outcome import plain_errors
from watchword.cli.remote import choose, confirm, connected, connection_flags, is_named, opened, yes_flag
from watchword.cli.show import Column, console, say, show_list, sized
from watchword.cli.streams import WrongUse
from watchword.cli.text import one_line, without_tokens
from watchword.domain.errors import OperatorError, Reason
from watchword.domain.policies import Privilege
from watchword.domain.secret import Secret

if TYPE_CHECKING:
    from watchword.client import Client

EXPIRED, REVOKED, GONE, FOREIGN, UNKNOWN, INVALID = "EXPIRED", "REVOKED", "GONE", "FOREIGN", "UNKNOWN", "INVALID"
DEAD = frozenset({EXPIRED, REVOKED, GONE})
_ENDED = {Reason.TOKEN_REVOKED.word: REVOKED, Reason.TOKEN_EXPIRED.word: EXPIRED}
_TOLD = {
    REVOKED: "Revoked {}",
    EXPIRED: "Not revoked, for it has expired: {}",
    INVALID: "Not revoked, for this server never made it: {}",
}
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Hit:
    """A token at a place; what only its record says is None where that may not be seen."""

    file: str
    line: int
    column: int
    status: str
    live: bool
    id: str | None
    urn: str | None
    name: str | None
    actor_urn: str
    issuer: str
    expires_at: int | None


COLUMNS: list[Column[Hit]] = [
    Column("PLACE", lambda hit: f"{hit.file}:{hit.line}:{hit.column}"),
    Column("STATUS", lambda hit: hit.status),
    Column("NAME", lambda hit: hit.name, free=True),
    Column("ACTOR", lambda hit: hit.actor_urn),
    Column("ID", lambda hit: hit.id),
]


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--revoke", is_flag=True, help="End those that are or may be live: to hold one is enough for that.")
@yes_flag
@json_flag
@connection_flags
def scan(
    paths: tuple[str, ...],
    revoke: bool,
    yes: bool,
    as_json: bool,
    **connection: Any,
) -> None:
    """Find tokens that lie in files, or below folders, or in standard input (-), and say which are live. The tokens
    themselves are not printed. Links are not followed, unless they are given; packed files are not looked into.

    \b
    ACTIVE, EXPIRED, REVOKED   as the server says
    GONE                       this server's, which it knows no more
    FOREIGN                    another server's, which is not asked
    UNKNOWN                    not the caller's to see, or no caller was named; it may be live
    INVALID                    was to be revoked, and is no token that this server would accept: made up, or changed

    Without a caller no server is asked, and only a token's own word that it has expired counts. Exit code 1: there are
    some that are or may be live, or something could not be read; 0: there are none, or all were revoked.

    \b
    Example: watchword token scan . --token-file ~/.watchword
    Example: git log -p --all | watchword token scan -
    Example: watchword token scan /srv/backup --revoke --url https://tokens.example.org
    """
    with plain_errors():
        if paths.count("-") > 1:
            raise WrongUse("Standard input (-) can be read once.")
        asks = is_named(**connection)
        with connected(**connection, nameless=True) as client:
            found = Search(Judge(client, choose(**connection).url, asks=asks, reaches=asks or revoke))
            with _progress() as told:
                for path in paths:
                    found.go_through(path, told)
            _conclude(found, revoke=revoke, yes=yes, as_json=as_json)
            if revoke:
                found.revoke(quiet=as_json)
            if as_json:
                show_list(found.hits, COLUMNS, json=True, empty="")
        _end(found, asks=asks)


def _conclude(found: "Search", *, revoke: bool, yes: bool, as_json: bool) -> None:
    if not as_json:
        show_list(found.hits, COLUMNS, json=False, empty="No tokens.")
    if revoke and found.live:
        confirm(f"Revoke {_tokens(len(found.live))} for good?", yes=yes)


def _end(found: "Search", *, asks: bool) -> None:
    places = sum(hit.live for hit in found.hits)
    if places:
        hint = (
            "" if asks else " No server was asked: sign in, or name a caller by --token-file, WATCHWORD_TOKEN or --as."
        )
        sys.stdout.flush()
        sys.stderr.write(
            f"watchword: Tokens that are or may be live, in {places:,} place{'s' if places > 1 else ''}.{hint}\n"
        )
    if places or found.failed:
        raise SystemExit(1)


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


class Judge:
    """What is known of a token that was found: of each it is asked once."""

    def __init__(self, client: "Client", url: str, *, asks: bool, reaches: bool) -> None:
        self._client = client
        self._url = url
        self._asks = asks
        self._reaches = reaches
        self._now = time.time_ns() // 1_000_000

    def judge(self, leak: Leak) -> Hit:
        over = leak.expires_at is not None and leak.expires_at <= self._now
        hit = Hit("", 0, 0, EXPIRED if over else UNKNOWN, not over, None, None, None, leak.actor, leak.issuer, None)
        hit = replace(hit, expires_at=leak.expires_at)
        if self._reaches and leak.kid not in self._kids:
            return hit if over else replace(hit, status=FOREIGN)
        return self._recorded(leak, hit) if self._asks else hit

    def end(self, token: Secret[str]) -> str:
        """What has become of it."""
        from watchword.client import Unauthenticated

        self._client.surrender_token(token)
        with opened(self._url, token) as holder:
            try:
                holder.verify_token()
            except Unauthenticated as refused:
                return _ENDED.get(refused.reason, INVALID)
        raise OperatorError("The server did not revoke a token that it still accepts. Is this Watchword's address?")

    @cached_property
    def _kids(self) -> frozenset[str]:
        return frozenset(key["kid"] for key in self._client.jwks()["keys"])

    @cached_property
    def _sees_all(self) -> bool:
        return Privilege.MANAGE_ACCESS_TOKENS.name in self._client.granted_privileges(self._client.me().urn)

    def _recorded(self, leak: Leak, hit: Hit) -> Hit:
        from watchword.client import NotFound, Unauthorized

        try:
            record = self._client.find_token(leak.token)
        except NotFound:
            return replace(hit, status=GONE, live=False) if self._sees_all else hit
        except Unauthorized:
            return hit
        return replace(
            hit,
            status=record.status,
            live=record.status not in DEAD,
            id=record.id,
            urn=record.urn,
            name=record.name,
            actor_urn=record.actor_urn,
            expires_at=record.expires_at,
        )


class Search:
    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._known: dict[bytes, Hit] = {}
        self._by_hit: list[bytes] = []
        self._files = self._bytes = 0
        self.hits: list[Hit] = []
        self.live: dict[bytes, Secret[str]] = {}
        """Those that are or may be, of this server."""
        self.failed = False

    def go_through(self, path: str, told: Told) -> None:
        def read(size: int) -> None:
            self._bytes += size
            told(self._files, self._bytes)

        for file in ("-",) if path == "-" else files_below(path, self._unread):
            try:
                self._take(file, leaks_in(file, read, given=file == path))
            except OSError as error:
                self._unread(error)
            self._files += 1

    def revoke(self, *, quiet: bool) -> None:
        """Each as it is ended is told, so that who breaks it off knows what was done."""
        for digest, token in self.live.items():
            status = self._judge.end(token)
            ended = self._known[digest]
            self._known[digest] = replace(ended, status=status, live=False)
            if not quiet:
                where = next(hit for hit, known in zip(self.hits, self._by_hit, strict=True) if known == digest)
                place = ended.id or f"{where.file}:{where.line}:{where.column}"
                say(one_line(_TOLD[status].format(place)))
                sys.stdout.flush()
        now = [self._known[digest] for digest in self._by_hit]
        self.hits = [
            replace(hit, status=known.status, live=known.live) for hit, known in zip(self.hits, now, strict=True)
        ]

    def _take(self, file: str, found: Iterator[Leak]) -> None:
        for leak in found:
            digest = sha256(leak.token.reveal().encode()).digest()
            if digest not in self._known:
                self._known[digest] = hit = self._judge.judge(leak)
                if hit.live and hit.status != FOREIGN:
                    self.live[digest] = leak.token
            self._by_hit.append(digest)
            place = without_tokens(file)
            self.hits.append(replace(self._known[digest], file=place, line=leak.line, column=leak.column))

    def _unread(self, error: OSError) -> None:
        self.failed = True
        name = without_tokens(os.fsdecode(error.filename or "standard input"))
        sys.stderr.write(f"watchword: {one_line(f'{error.strerror}: {name}'.rstrip(': '))}\n")


@contextmanager
def _progress() -> Iterator[Told]:
    """On a terminal, how much was gone through; elsewhere nothing."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = SpinnerColumn(), TextColumn("{task.fields[told]}", markup=False)
    drawn = console(stderr=True)
    with Progress(*columns, console=drawn, transient=True, disable=not drawn.is_terminal) as shown:
        task = shown.add_task("", total=None, told="")
        yield lambda files, size: shown.update(task, told=f"{files:,} files, {sized(size)}")
