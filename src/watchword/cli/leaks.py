"""Find tokens in bytes, for `watchword token scan`.

Tokens are found by their form alone, also when line ends, quotes or escapes split them, in UTF-16, and as base64. The
input is read in pieces that overlap by more than the longest token.
"""

import json
import os
import re
import stat
import sys
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from watchword.basics.names import USER_PREFIX
from watchword.basics.secret import Secret
from watchword.tokens.rules import TokenType

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
