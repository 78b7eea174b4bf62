"""`watchword token scan`: find leaked tokens, report which are live, revoke them.

A token that was found is never printed, and never used while it may be live: a use might be the first use that a
successor waits for. It is sent only to a server whose signing key it names, so that no server learns tokens of another.
After a revocation the token is shown to the server again: only the server can tell a revoked token from a forged one.

Tokens are found by their form alone, in text and binary files, also when line ends, quotes or escapes split them, in
UTF-16, and as base64. The input is read in pieces that overlap by more than the longest token, so its size does not
matter. Compressed content, such as an archive or a repository's history, is not searched.
"""

import json
import os
import re
import stat
import sys
import time
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from watchword.cli.options import json_flag, yes_flag
from watchword.cli.output import Column, byte_size, one_line, plural, progress, say, show_list, warn, without_tokens
from watchword.cli.remote import choose_target, confirm, connected, connection_flags, has_caller, open_client
from watchword.cli.run import WrongUse, plain_errors
from watchword.client.records import to_millis
from watchword.domain.errors import OperatorError, Reason
from watchword.domain.policies import Privilege
from watchword.domain.secret import Secret

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
    kid: str
    issuer: str
    actor: str
    expires_at: int | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A token at a place; fields of its record are None where the caller may not see it."""

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
@click.option(
    "--revoke", is_flag=True, help="Revoke those that are or may be live; holding a token is enough for that."
)
@yes_flag
@json_flag
@connection_flags
def scan(paths: tuple[str, ...], revoke: bool, yes: bool, as_json: bool, **connection: Any) -> None:
    """Find tokens in files, folders or standard input (-) and report which are live. The tokens themselves are not
    printed. Links are followed only where you name them; compressed files are not searched.

    \b
    ACTIVE, EXPIRED, REVOKED   as the server says
    GONE                       issued by this server, which has since deleted its record
    FOREIGN                    issued by another server, which is not asked
    UNKNOWN                    the caller may not see it, or no caller was named; it may be live
    INVALID                    was to be revoked, but this server would not accept it: forged or changed

    Without a caller no server is asked, and only tokens whose own expiry time has passed count as expired. Exit code 1:
    some are or may be live, or something could not be read; 0: none are live, or all were revoked.

    \b
    Example: watchword token scan . --token-file ~/.watchword
    Example: git log -p --all | watchword token scan -
    Example: watchword token scan /srv/backup --revoke --url https://tokens.example.org
    """
    with plain_errors():
        if paths.count("-") > 1:
            raise WrongUse("Standard input (-) can be read once.")
        asks = has_caller(**connection)
        with connected(**connection, anonymous=True) as client:
            judge = TokenJudge(client, choose_target(**connection).url, asks=asks, reaches=asks or revoke)
            search = TokenSearch(judge)
            with progress(bar=False) as update:
                for path in paths:
                    search.search(path, lambda files, size: update(f"{files:,} files, {byte_size(size)}"))
            if not as_json:
                show_list(search.hits, COLUMNS, json=False, empty="No tokens.")
            if revoke:
                if search.live:
                    confirm(f"Revoke {plural(len(search.live), 'token')}? This cannot be undone.", yes=yes)
                search.revoke(quiet=as_json)
            if as_json:
                show_list(search.hits, COLUMNS, json=True, empty="")
        places = sum(hit.live for hit in search.hits)
        if places:
            hint = "" if asks else " No server was asked: sign in, or pass --token-file, WATCHWORD_TOKEN or --as."
            warn(f"Tokens that are or may be live, in {plural(places, 'place')}.{hint}")
        if places or search.failed:
            raise SystemExit(1)


class TokenJudge:
    """Decides whether a found token is live."""

    def __init__(self, client: "Client", url: str, *, asks: bool, reaches: bool) -> None:
        self._client = client
        self._url = url
        self._asks = asks
        self._reaches = reaches
        self._now = time.time_ns() // 1_000_000

    def judge(self, leak: Leak) -> Hit:
        expired = leak.expires_at is not None and leak.expires_at <= self._now
        status = EXPIRED if expired else UNKNOWN
        hit = Hit("", 0, 0, status, not expired, None, None, None, leak.actor, leak.issuer, leak.expires_at)
        if self._reaches and leak.kid not in self._kids:
            return hit if expired else replace(hit, status=FOREIGN)
        return self._look_up(leak, hit) if self._asks else hit

    def revoke(self, token: Secret[str]) -> str:
        """Its status afterwards."""
        from watchword.client import Unauthenticated

        self._client.surrender_token(token)
        with open_client(self._url, token) as holder:
            try:
                holder.verify_token()
            except Unauthenticated as refused:
                return _STATUSES.get(refused.reason, INVALID)
        raise OperatorError("The server did not revoke a token that it still accepts. Is this Watchword's address?")

    @cached_property
    def _kids(self) -> frozenset[str]:
        return frozenset(key["kid"] for key in self._client.jwks()["keys"])

    @cached_property
    def _sees_all(self) -> bool:
        return Privilege.MANAGE_ACCESS_TOKENS.name in self._client.granted_privileges(self._client.me().urn)

    def _look_up(self, leak: Leak, hit: Hit) -> Hit:
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
            expires_at=None if record.expires_at is None else to_millis("expires_at", record.expires_at),
        )


class TokenSearch:
    """Every token found so far, each judged once."""

    def __init__(self, judge: TokenJudge) -> None:
        self._judge = judge
        self._known: dict[bytes, Hit] = {}
        self._by_hit: list[bytes] = []
        self._files = self._bytes = 0
        self.hits: list[Hit] = []
        self.live: dict[bytes, Secret[str]] = {}
        """Tokens of this server that are or may be live."""
        self.failed = False

    def search(self, path: str, update: Callable[[int, int], None]) -> None:
        def count(size: int) -> None:
            self._bytes += size
            update(self._files, self._bytes)

        for file in ("-",) if path == "-" else files_below(path, self._report_unread):
            try:
                self._add(file, leaks_in(file, count, given=file == path))
            except OSError as error:
                self._report_unread(error)
            self._files += 1

    def revoke(self, *, quiet: bool) -> None:
        """Report each revocation as it happens, so that an interrupted run shows what was done."""
        for digest, token in self.live.items():
            status = self._judge.revoke(token)
            revoked = self._known[digest]
            self._known[digest] = replace(revoked, status=status, live=False)
            if not quiet:
                where = next(hit for hit, known in zip(self.hits, self._by_hit, strict=True) if known == digest)
                place = revoked.id or f"{where.file}:{where.line}:{where.column}"
                say(one_line(_OUTCOMES[status].format(place)))
                sys.stdout.flush()
        now = [self._known[digest] for digest in self._by_hit]
        self.hits = [
            replace(hit, status=known.status, live=known.live) for hit, known in zip(self.hits, now, strict=True)
        ]

    def _add(self, file: str, found: Iterator[Leak]) -> None:
        for leak in found:
            digest = sha256(leak.token.reveal().encode()).digest()
            if digest not in self._known:
                self._known[digest] = hit = self._judge.judge(leak)
                if hit.live and hit.status != FOREIGN:
                    self.live[digest] = leak.token
            self._by_hit.append(digest)
            place = without_tokens(file)
            self.hits.append(replace(self._known[digest], file=place, line=leak.line, column=leak.column))

    def _report_unread(self, error: OSError) -> None:
        self.failed = True
        name = without_tokens(os.fsdecode(error.filename or "standard input"))
        warn(f"{error.strerror}: {name}".rstrip(": "))


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
# A signature has 64 bytes, which tells where a token ends in running text.
_SIGNATURE = rb"(?:" + _CHARACTER + _JOINTS_HERE + rb"){85}" + _CHARACTER
# The header is checked before the rest is matched, and both are bounded, so no input takes long.
_HEADER = re.compile(_run(_CHARACTER, 400) + _DOT)
_REST = re.compile(_run(_CHARACTER, 16_384) + _DOT + _SIGNATURE)
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
    """The end and the claims of the token that begins here; None where it is not one of Watchword's."""
    head = _HEADER.match(held, start) if _DOTS.search(held, start, start + MAX_HEADER_LENGTH) else None
    header = {} if head is None else _object(head[0])
    if head is None or header.get("typ") != "at+jwt":
        return None
    rest = _REST.match(held, head.end())
    claims = {} if rest is None else _object(rest[0])
    words = header.get("kid"), claims.get("iss"), claims.get("sub")
    expires = claims.get("exp")
    ours = claims.get("client_id") == "watchword" and all(isinstance(word, str) for word in words)
    token = _bare(held[start : rest.end()]) if rest is not None else b""
    if rest is None or not ours or not isinstance(expires, int | None) or len(token) > MAX_TOKEN_LENGTH:
        return None
    kid, issuer, actor = words
    found = {"token": Secret(token.decode()), "kid": kid, "issuer": issuer, "actor": actor}
    return rest.end(), {**found, "expires_at": None if expires is None else expires * 1000}


def _packed(held: bytes, start: int) -> tuple[int, dict[str, Any]] | None:
    head = _BASE64_HEAD.match(held, start)
    first = None if head is None else _HEADER.match(_unpacked(head[0]))
    if first is None or _object(first[0]).get("typ") != "at+jwt":
        return None
    whole = _BASE64_ALL.match(held, start)
    found = None if whole is None else _plain(_unpacked(whole[0]), 0)
    return None if found is None else (start + len(_PACKED), found[1])  # another may follow in the same lines


def _unpacked(text: bytes) -> bytes:
    bare = _seamless(text)
    return b64decode(bare[: len(bare) // 4 * 4] + _rest_of(bare))


def _rest_of(bare: bytes) -> bytes:
    """The last characters, padded; a single one encodes nothing."""
    left = bare[len(bare) // 4 * 4 :]
    return left + b"=" * (4 - len(left)) if len(left) > 1 else b""


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
    """The regular files at and below a path; only the path itself may be a link. `unread` gets errors of listing."""
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        unread(error)
        return
    if not stat.S_ISDIR(mode):
        yield path
        return
    for folder, folders, names in os.walk(path, onerror=unread):
        folders.sort()
        yield from (str(Path(folder, name)) for name in sorted(names))


def leaks_in(path: str, count: Callable[[int], None], *, given: bool) -> Iterator[Leak]:
    """The tokens in a regular file or in standard input (-). A link is followed only where it was given. `count`
    gets the number of bytes read.
    """
    if path == "-":
        yield from leaks(_counting(sys.stdin.buffer.read, count))
        return
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not given and not stat.S_ISREG(os.lstat(path).st_mode):
        return
    opened = os.open(path, flags if given else flags | os.O_NOFOLLOW)
    try:
        if stat.S_ISREG(os.fstat(opened).st_mode):
            yield from leaks(_counting(lambda size: os.read(opened, size), count))
    finally:
        os.close(opened)


def _counting(read: Callable[[int], bytes], count: Callable[[int], None]) -> Callable[[int], bytes]:
    def reading(size: int) -> bytes:
        piece = read(size)
        count(len(piece))
        return piece

    return reading
