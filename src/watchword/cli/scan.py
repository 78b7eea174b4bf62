"""`watchword token scan`: find leaked tokens, report which are live, revoke them.

A found token is never used while it may be live: a use might be the first use that a successor waits for. It is sent
only to a server whose signing key it names, so that no server learns tokens of another; a token of DataHub, which names
no key, only to a server that accepts such tokens. After a revocation the token is
shown to the server again: only the server can tell a revoked token from a forged one.

Tokens are found by their form alone, also when line ends, quotes or escapes split them, in UTF-16, and as base64. The
input is read in pieces that overlap by more than the longest token. Where a folder holds a git repository, its history
is searched too.
"""

import json
import os
import re
import stat
import sys
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.git_history import repository_of, versions
from watchword.cli.options import json_flag, yes_flag
from watchword.cli.output import Column, json_value, plural, progress, say, show_list, warn, without_tokens
from watchword.cli.remote import ServerFlags, confirm, need_confirmation, open_client, with_connection
from watchword.cli.run import Command, WrongUse
from watchword.client.errors import NotFound, Unauthenticated, Unauthorized
from watchword.client.profiles import ChosenServer
from watchword.client.records import from_millis
from watchword.domain.errors import OperatorError, Reason
from watchword.domain.names import USER_PREFIX
from watchword.domain.policies import Privilege
from watchword.domain.secret import Secret
from watchword.domain.tokens import DATAHUB_TOKENS, TokenType

if TYPE_CHECKING:
    from watchword.client import Client

EXPIRED, REVOKED, GONE, FOREIGN, UNKNOWN, INVALID = "EXPIRED", "REVOKED", "GONE", "FOREIGN", "UNKNOWN", "INVALID"
DEAD = frozenset({EXPIRED, REVOKED, GONE})
_STATUSES = {Reason.TOKEN_REVOKED.word: REVOKED, Reason.TOKEN_EXPIRED.word: EXPIRED}
_OUTCOMES = {
    REVOKED: "Revoked {}",
    EXPIRED: "Not revoked, it has expired: {}",
    INVALID: "Not revoked, this server did not issue it: {}",
}


@dataclass(frozen=True, slots=True)
class Leak:
    """A token and where it begins: line and column in bytes, from 1. Its claims are not verified."""

    token: Secret[str]
    line: int
    column: int
    kid: str | None  # None: a token of DataHub
    issuer: str
    actor: str
    expires_at: int | None


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
        return {**place, **json_value(self.verdict), "commit": self.commit}


COLUMNS: list[Column[Hit]] = [
    Column("PLACE", lambda hit: hit.place),
    Column("STATUS", lambda hit: hit.verdict.status),
    Column("NAME", lambda hit: hit.verdict.name, free=True),
    Column("ACTOR", lambda hit: hit.verdict.actor_urn),
    Column("ID", lambda hit: hit.verdict.id),
]


@click.command(cls=Command)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--revoke", is_flag=True, help="Revoke those that are or may be live. This needs no privilege.")
@yes_flag
@json_flag
@with_connection
def scan(paths: tuple[str, ...], revoke: bool, yes: bool, as_json: bool, connection: ServerFlags) -> None:
    """Find tokens in files, folders or standard input (-) and report which are live. Tokens are never printed.

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
        need_confirmation(yes=yes)
    if paths.count("-") > 1:
        raise WrongUse("Standard input (-) can be read once.")
    asks = connection.has_caller
    with connection.open(anonymous=True) as client:
        search = TokenSearch(client, connection.target.url, asks=asks, reaches=asks or revoke)
        with progress(bar=False) as update:
            for path in paths:
                search.search(path, lambda files: update(f"{files:,} files"))
        if not as_json:
            show_list(search.hits, COLUMNS, json=False, empty="No tokens.")
        if revoke:
            if search.live:
                confirm(f"Revoke {plural(len(search.live), 'token')}? This cannot be undone.", yes=yes)
            search.revoke(quiet=as_json)
        if as_json:
            show_list([hit.json for hit in search.hits], [], json=True, empty="")
    places = sum(hit.verdict.live for hit in search.hits)
    if places:
        hint = "" if asks else " No server was asked: sign in, or pass --token-file, WATCHWORD_TOKEN or --as."
        warn(f"Tokens that are or may be live, in {plural(places, 'place')}.{hint}")
    if places or search.failed:
        raise SystemExit(1)


class TokenSearch:
    """Finds tokens and decides once for each whether it is live.

    With `reaches`, the server's keys tell which tokens are its own; with `asks`, the caller looks those up.
    """

    def __init__(self, client: "Client", url: str, *, asks: bool, reaches: bool) -> None:
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
                    self._add(without_tokens(file), leak)
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
                    self._add(without_tokens(str(repository / path)), leak, commit)
            self._count(update)

    def _count(self, update: Callable[[int], None]) -> None:
        self._files += 1
        update(self._files)

    def revoke(self, *, quiet: bool) -> None:
        """Report each revocation as it happens, so that an interrupted run shows what was done."""
        for token, hit in self.live:
            hit.verdict.status = self._revoke(token)
            hit.verdict.live = False
            if not quiet:
                say(_OUTCOMES[hit.verdict.status].format(hit.verdict.id or hit.place))
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
        name = without_tokens(os.fsdecode(error.filename or "standard input"))
        warn(f"{error.strerror}: {name}".rstrip(": "))

    def _check(self, leak: Leak) -> Verdict:
        expired = leak.expires_at is not None and leak.expires_at <= self._now
        status = EXPIRED if expired else UNKNOWN
        ends = None if leak.expires_at is None else from_millis(leak.expires_at)
        verdict = Verdict(status, not expired, None, None, None, leak.actor, leak.issuer, ends)
        if self._reaches and not self._may_know(leak):
            verdict.status = EXPIRED if expired else FOREIGN
        elif self._asks:
            self._look_up(leak, verdict)
        return verdict

    def _look_up(self, leak: Leak, verdict: Verdict) -> None:
        try:
            record = self._client.find_token(leak.token)
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

    def _may_know(self, leak: Leak) -> bool:
        return self._knows_datahub if leak.kid is None else leak.kid in self._kids

    @cached_property
    def _knows_datahub(self) -> bool:
        return DATAHUB_TOKENS in self._client.get_server_info().capabilities

    @cached_property
    def _kids(self) -> frozenset[str]:
        return frozenset(key["kid"] for key in self._client.jwks()["keys"])

    @cached_property
    def _sees_all(self) -> bool:
        return Privilege.MANAGE_ACCESS_TOKENS.name in self._client.granted_privileges(self._client.me().urn)

    def _revoke(self, token: Secret[str]) -> str:
        """Its status afterwards."""
        self._client.revoke_by_possession(token, by_scan=True)
        with open_client(ChosenServer(self._url), token) as holder:
            try:
                holder.verify_token()
            except Unauthenticated as refused:
                return _STATUSES.get(refused.reason, INVALID)
        raise OperatorError("The server did not revoke a token that it still accepts. Is this Watchword's address?")


def _digest(leak: Leak) -> bytes:
    return sha256(leak.token.reveal().encode()).digest()


# Finding tokens in bytes.

PIECE_BYTES = 1024 * 1024
OVERLAP_BYTES = 64 * 1024
MAX_TOKEN_LENGTH = 8_192
"""A longer token could not be sent in a header."""
MAX_HEADER_LENGTH = 2_000
"""Bytes from the start of a token to its first dot, however it is split."""

# What may split a token: the zero bytes of UTF-16, line ends (continued, quoted, indented or escaped), and the seam
# between two string literals.
_JOINT = (
    rb"(?:\x00"
    rb"|[\\=]?\x00?\r?\x00?\n[\x00 \t>|#*]{0,80}+"
    rb"|\\{1,4}+[rn]"
    rb"|[\"'][ \t]{0,20}+[+\\]?[ \t]{0,20}+(?:\r?\n)?[ \t]{0,80}+\+?[ \t]{0,20}+[\"'])"
)
# An atomic group, not a possessive `+`: after a group, Debian's Python 3.11.2 matches too much with the latter.
_JOINTS_HERE = rb"(?>" + _JOINT + rb"{0,4})"
_CHARACTER = rb"[A-Za-z0-9_-]"


def _run(character: bytes, most: int) -> bytes:
    """Up to this many of these characters, with joints between them."""
    some = character + b"{1,%d}+" % most
    return some + rb"(?>(?:(?>" + _JOINT + rb"{1,4})" + some + b"){0,%d})" % (most // 2) + _JOINTS_HERE


_DOT = rb"(?:\.|%2[eE])" + _JOINTS_HERE


def _rest(signature: int) -> re.Pattern[bytes]:
    """After the header: the claims, and a signature of this many characters."""
    characters = rb"(?:" + _CHARACTER + _JOINTS_HERE + b"){%d}" % (signature - 1) + _CHARACTER
    return re.compile(_run(_CHARACTER, 16_384) + _DOT + characters)


# The header is checked before the rest is matched, and both are bounded, so no input takes long. By the algorithm: the
# length of the signature tells where a token ends in running text.
_HEADER = re.compile(_run(_CHARACTER, 400) + _DOT)
_RESTS = {"EdDSA": _rest(86), "RS256": _rest(342)}
_DATAHUB_HEADER, _DATAHUB_REST = {"alg": "HS256"}, _rest(43)
_DATAHUB_TYPES = tuple(kind.value for kind in TokenType)
_BASE64_HEAD = re.compile(_run(rb"[A-Za-z0-9+/]", 600))
_BASE64_ALL = re.compile(_run(rb"[A-Za-z0-9+/]", 32_768))
_JOINTS = re.compile(_JOINT)
_SEAM = re.compile(rb"[\x00\n\\\"']")
_DOTS = re.compile(rb"\.|%2[eE]")
# How a token begins ({"alg): plain, in UTF-16, and as base64.
_PLAIN, _PACKED = b"eyJhbGci", b"ZXlKaGJHY2l"
_BEGINNINGS = (_PLAIN, b"\x00".join(_PLAIN[i : i + 1] for i in range(len(_PLAIN))), _PACKED)


def leaks(read: Callable[[int], bytes]) -> Iterator[Leak]:
    """All tokens in the input, in order."""
    held, line, column = b"", 1, 1
    while True:
        piece = read(PIECE_BYTES)
        held += piece
        end = max(0, len(held) - OVERLAP_BYTES) if piece else len(held)
        done = 0
        for start, stop, found in _within(held, end):
            line, column = _moved(held, done, start, line, column)
            done = start
            yield Leak(line=line, column=column, **found)
            end = max(end, stop)
        line, column = _moved(held, done, end, line, column)
        held = held[end:]
        if not piece:
            return


def _moved(held: bytes, start: int, stop: int, line: int, column: int) -> tuple[int, int]:
    last = held.rfind(b"\n", start, stop)
    return (line, column + stop - start) if last < 0 else (line + held.count(b"\n", start, stop), stop - last)


def _within(held: bytes, end: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The start and end of each token that begins before `end`."""
    done = 0
    for start in sorted(place for word in _BEGINNINGS for place in _places(held, word, end)):
        if start < done:
            continue
        found = _packed(held, start) if held.startswith(_PACKED, start) else _plain(held, start)
        if found is not None:
            done, claims = found
            yield start, done, claims


def _places(held: bytes, word: bytes, end: int) -> Iterator[int]:
    place = held.find(word)
    while 0 <= place < end:
        yield place
        place = held.find(word, place + 1)


def _plain(held: bytes, start: int) -> tuple[int, dict[str, Any]] | None:
    """The end and the claims of the token that begins here; None where it is neither one of Watchword's nor one of
    DataHub's.
    """
    head = _HEADER.match(held, start) if _DOTS.search(held, start, start + MAX_HEADER_LENGTH) else None
    header = {} if head is None else _object(head[0])
    form = _form(header)
    if head is None or form is None or (rest := form.match(held, head.end())) is None:
        return None
    claims, token = _object(rest[0]), _bare(held[start : rest.end()])
    words, expires = _words(header, claims), claims.get("exp")
    if words is None or not isinstance(expires, int | None) or len(token) > MAX_TOKEN_LENGTH:
        return None
    expires_at = None if expires is None else expires * 1000
    return rest.end(), {"token": Secret(token.decode()), **words, "expires_at": expires_at}


def _form(header: dict[str, Any]) -> re.Pattern[bytes] | None:
    """The rest of a token with this header; None where it is the header of something else."""
    if header == _DATAHUB_HEADER:
        return _DATAHUB_REST
    return _RESTS.get(str(header.get("alg"))) if header.get("typ") == "at+jwt" else None


def _words(header: dict[str, Any], claims: dict[str, Any]) -> dict[str, str | None] | None:
    """The key, the issuer and the actor of a token; None where the claims are those of something else."""
    is_datahub = header == _DATAHUB_HEADER
    if is_datahub:
        known = claims.get("actorType") == "USER" and claims.get("type") in _DATAHUB_TYPES
        named = {"issuer": claims.get("iss"), "actor": claims.get("actorId")}
    else:
        known = claims.get("client_id") == "watchword"
        named = {"issuer": claims.get("iss"), "actor": claims.get("sub"), "kid": header.get("kid")}
    if not known or not all(isinstance(word, str) for word in named.values()):
        return None
    return {**named, "kid": None, "actor": f"{USER_PREFIX}{named['actor']}"} if is_datahub else named


def _packed(held: bytes, start: int) -> tuple[int, dict[str, Any]] | None:
    head = _BASE64_HEAD.match(held, start)
    first = None if head is None else _HEADER.match(_unpacked(head[0]))
    if first is None or _form(_object(first[0])) is None:
        return None
    whole = _BASE64_ALL.match(held, start)
    found = None if whole is None else _plain(_unpacked(whole[0]), 0)
    return None if found is None else (start + len(_PACKED), found[1])  # another may follow in the same lines


def _unpacked(text: bytes) -> bytes:
    bare = _seamless(text)
    if len(bare) % 4 == 1:  # a single character at the end encodes nothing
        bare = bare[:-1]
    return b64decode(bare + b"=" * (-len(bare) % 4))


def _bare(text: bytes) -> bytes:
    return _DOTS.sub(b".", _seamless(text))


def _seamless(text: bytes) -> bytes:
    return _JOINTS.sub(b"", text) if _SEAM.search(text) else text


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object before the first dot."""
    part = _bare(text).partition(b".")[0]
    try:
        found = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def files_below(path: str, unread: Callable[[OSError], None]) -> Iterator[str]:
    """The path itself, or the files below a folder; only the path may be a link. `unread` gets errors of listing."""
    if path == "-" or not Path(path).is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=unread):
        folders.sort()
        yield from (str(Path(folder, name)) for name in sorted(names))


def leaks_in(path: str, *, given: bool) -> Iterator[Leak]:
    """The tokens in a regular file or in standard input (-). A link is followed only where it was given."""
    if path == "-":
        yield from leaks(sys.stdin.buffer.read)
        return
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not given and not stat.S_ISREG(os.lstat(path).st_mode):
        return
    opened = os.open(path, flags if given else flags | os.O_NOFOLLOW)
    try:
        if stat.S_ISREG(os.fstat(opened).st_mode):
            yield from leaks(partial(os.read, opened))
    finally:
        os.close(opened)
