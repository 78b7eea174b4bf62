"""`watchword token scan`: find leaked tokens, report which are live, revoke them.

A found token is never used while it may be live: a use might be the first use that a successor waits for. It is sent
only to a server whose signing key it names, so that no server learns tokens of another; a token of DataHub, which names
no key, only to a server that accepts such tokens. After a revocation the token is
shown to the server again: only the server can tell a revoked token from a forged one.

Where a folder holds a git repository, its history is searched too.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from watchword import client as api
from watchword.authority.privileges import Privilege
from watchword.basics.errors import OperatorError, Reason
from watchword.basics.secret import Secret
from watchword.cli import output as out
from watchword.cli.git_history import repository_of, versions
from watchword.cli.leaks import Leak, files_below, leaks, leaks_in
from watchword.cli.options import format_flags, yes_flag
from watchword.cli.remote import ServerFlags, confirm, need_confirmation, open_client, with_connection
from watchword.cli.run import Command, WrongUse
from watchword.client.errors import NotFound, Unauthenticated, Unauthorized
from watchword.client.profiles import ChosenServer
from watchword.client.records import from_millis
from watchword.tokens.rules import DATAHUB_TOKENS

EXPIRED, REVOKED, GONE, FOREIGN, UNKNOWN, INVALID = "EXPIRED", "REVOKED", "GONE", "FOREIGN", "UNKNOWN", "INVALID"
DEAD = frozenset({EXPIRED, REVOKED, GONE})
_STATUSES = {Reason.TOKEN_REVOKED.word: REVOKED, Reason.TOKEN_EXPIRED.word: EXPIRED}
_OUTCOMES = {
    REVOKED: "Revoked {}",
    EXPIRED: "Not revoked, it has expired: {}",
    INVALID: "Not revoked, this server did not issue it: {}",
}


@dataclass(slots=True)
class Verdict:
    """Whether a token is live, shared by all its places. What the caller may not see of its record is None."""

    status: str
    live: bool
    id: str | None
    urn: str | None
    name: str | None
    actor_urn: str
    issuer: str
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Hit:
    file: str
    line: int
    column: int
    verdict: Verdict
    commit: str | None = None
    """The oldest that has the token in this file; None: found outside of a repository's history."""

    @property
    def place(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return place if self.commit is None else f"{self.commit[:12]}:{place}"

    @property
    def json(self) -> dict[str, Any]:
        place = {"file": self.file, "line": self.line, "column": self.column}
        return {**place, **out.json_value(self.verdict), "commit": self.commit}


COLUMNS = out.columns("place, STATUS=verdict.status, NAME=verdict.name*, ACTOR=verdict.actor_urn, ID=verdict.id")


@click.command(cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--revoke", is_flag=True, help="Revoke those that are or may be live. This needs no privilege.")
@yes_flag
@format_flags
@with_connection
def scan(paths: tuple[str, ...], revoke: bool, connection: ServerFlags) -> None:
    """Tokens are never printed.

    In a folder with a git repository, its history is searched too: COMMIT:FILE:LINE:COLUMN names the oldest commit.
    Links are followed only where you name them; compressed files are not searched.

    \b
    ACTIVE, EXPIRED, REVOKED   as the server says
    GONE                       issued by this server, which has since deleted its record
    FOREIGN                    issued by another server, which is not asked; or by DataHub, and not imported here
    UNKNOWN                    the caller may not see it, or no caller was named; it may be live
    INVALID                    was to be revoked, but this server would not accept it: forged or changed

    Without a caller no server is asked, and only tokens whose own expiry time has passed count as expired. Exit code 1:
    some are or may be live, or something could not be read; 0: none are live, or all were revoked.

    Example: watchword token scan . --token-file ~/.watchword
    Example: watchword token scan /srv/backup --revoke --yes --url https://tokens.example.org
    """
    if revoke:
        need_confirmation()
    if paths.count("-") > 1:
        raise WrongUse("Standard input (-) can be read once.")
    asks = connection.has_caller
    with connection.open(anonymous=True) as client:
        search = TokenSearch(client, connection.target.url, asks=asks, reaches=asks or revoke)
        with out.progress(bar=False) as update:
            for path in paths:
                search.search(path, lambda files: update(f"{files:,} files"))
        out.show_table(search.hits, COLUMNS, "No tokens.")
        if revoke:
            if search.live:
                confirm(f"Revoke {out.plural(len(search.live), 'token')}? This cannot be undone.")
            search.revoke()
        if out.is_data():
            out.show_list([hit.json for hit in search.hits], [], "")
    places = sum(hit.verdict.live for hit in search.hits)
    if places:
        hint = "" if asks else " No server was asked: sign in, or pass --token-file, WATCHWORD_TOKEN or --as."
        out.warn(f"Tokens that are or may be live, in {out.plural(places, 'place')}.{hint}")
    if places or search.failed:
        raise SystemExit(1)


class TokenSearch:
    """Finds tokens and decides once for each whether it is live.

    With `reaches`, the server's keys tell which tokens are its own; with `asks`, the caller looks those up.
    """

    def __init__(self, client: "api.Client", url: str, *, asks: bool, reaches: bool) -> None:
        self._client = client
        self._url = url
        self._asks = asks
        self._reaches = reaches
        self._now = time.time_ns() // 1_000_000
        self._known: dict[bytes, Verdict] = {}
        self._files = 0
        self.hits: list[Hit] = []
        self.live: list[tuple[Secret[str], Hit]] = []
        """Tokens of this server that are or may be live, and where each was found first."""
        self.failed = False

    def search(self, path: str, update: Callable[[int], None]) -> None:
        for file in files_below(path, self._report_unread):
            try:
                for leak in leaks_in(file, given=file == path):
                    self._add(out.without_tokens(file), leak)
                if file != path and (repository := repository_of(file)) is not None:
                    self._search_history(repository, update)
            except OSError as error:
                self._report_unread(error)
            self._count(update)

    def _search_history(self, repository: Path, update: Callable[[int], None]) -> None:
        found: set[tuple[bytes, str]] = set()
        for commit, path, read in versions(repository):
            for leak in leaks(read):
                if (place := (_digest(leak), path)) not in found:
                    found.add(place)
                    self._add(out.without_tokens(str(repository / path)), leak, commit)
            self._count(update)

    def _count(self, update: Callable[[int], None]) -> None:
        self._files += 1
        update(self._files)

    def revoke(self) -> None:
        """Report each revocation as it happens, so that an interrupted run shows what was done."""
        for token, hit in self.live:
            hit.verdict.status = self._revoke(token)
            hit.verdict.live = False
            out.say(_OUTCOMES[hit.verdict.status].format(hit.verdict.id or hit.place))
            sys.stdout.flush()

    def _add(self, file: str, leak: Leak, commit: str | None = None) -> None:
        digest = _digest(leak)
        first = digest not in self._known
        verdict = self._known[digest] = self._check(leak) if first else self._known[digest]
        self.hits.append(hit := Hit(file, leak.line, leak.column, verdict, commit))
        if first and verdict.live and verdict.status != FOREIGN:
            self.live.append((leak.token, hit))

    def _report_unread(self, error: OSError) -> None:
        self.failed = True
        name = out.without_tokens(os.fsdecode(error.filename or "standard input"))
        out.warn(f"{error.strerror}: {name}".rstrip(": "))

    def _check(self, leak: Leak) -> Verdict:
        expired = leak.expires_at is not None and leak.expires_at <= self._now
        status = EXPIRED if expired else UNKNOWN
        ends = None if leak.expires_at is None else from_millis(leak.expires_at)
        verdict = Verdict(status, not expired, None, None, None, leak.actor, leak.issuer, ends)
        if self._reaches and not (self._knows_datahub if leak.kid is None else leak.kid in self._kids):
            verdict.status = EXPIRED if expired else FOREIGN
        elif self._asks:
            self._look_up(leak, verdict)
        return verdict

    def _look_up(self, leak: Leak, verdict: Verdict) -> None:
        try:
            record = self._client.tokens.find(leak.token)
        except NotFound:
            if self._sees_all and leak.kid is None:
                verdict.status = FOREIGN if verdict.live else EXPIRED  # not imported: DataHub may accept it
            elif self._sees_all:
                verdict.status, verdict.live = GONE, False
        except Unauthorized:
            pass
        else:
            for name in ("status", "id", "urn", "name", "actor_urn", "expires_at"):
                setattr(verdict, name, getattr(record, name))
            verdict.live = record.status not in DEAD

    @cached_property
    def _knows_datahub(self) -> bool:
        return DATAHUB_TOKENS in self._client.server_info().capabilities

    @cached_property
    def _kids(self) -> frozenset[str]:
        return frozenset(key["kid"] for key in self._client.jwks()["keys"])

    @cached_property
    def _sees_all(self) -> bool:
        return Privilege.MANAGE_ACCESS_TOKENS.name in self._client.privileges.granted(self._client.me().urn)

    def _revoke(self, token: Secret[str]) -> str:
        """Its status afterwards."""
        self._client.tokens.revoke_by_possession(token, by_scan=True)
        with open_client(ChosenServer(self._url), token) as holder:
            try:
                holder.tokens.verify()
            except Unauthenticated as refused:
                return _STATUSES.get(refused.reason, INVALID)
        raise OperatorError("The server did not revoke a token that it still accepts. Is this Watchword's address?")


def _digest(leak: Leak) -> bytes:
    return sha256(leak.token.reveal().encode()).digest()
