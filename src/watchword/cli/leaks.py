"""Watchword's tokens in what was never meant to hold any, found by their form alone, whatever is around them.

They are found in text and in anything else, also when lines, quotes or escapes break them up, in UTF-16, and as base64.
However large the input is, no more than a piece of it is held at a time; pieces overlap by more than a token can take.
Packed content, such as an archive or the history of a repository, is not looked into.
"""

import json
import os
import re
import stat
import sys
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchword.domain.secret import Secret

PIECE = 1024 * 1024
KEPT = 64 * 1024
LONGEST = 8_192
"""Of a token: a longer one could not be sent."""
FARTHEST_DOT = 2_000
"""The first, from where a token begins, however it is broken up."""

# What may stand between two characters of a token: the halves of UTF-16, line ends (continued, quoted, indented or
# escaped), and the seam of two string literals.
_JOINT = (
    rb"(?:\x00"
    rb"|[\\=]?\x00?\r?\x00?\n[\x00 \t>|#*]{0,80}+"
    rb"|\\{1,4}+[rn]"
    rb"|[\"'][ \t]{0,20}+[+\\]?[ \t]{0,20}+(?:\r?\n)?[ \t]{0,80}+\+?[ \t]{0,20}+[\"'])"
)
# Once matched, all of it stays matched. Not by a quantifier's own `+`: after a group it lets Debian's Python 3.11.2
# take what no alternative matched to its end.
_JOINTS_HERE = rb"(?>" + _JOINT + rb"{0,4})"
_CHARACTER = rb"[A-Za-z0-9_-]"


def _run(character: bytes, most: int) -> bytes:
    """So many of these characters in a row, and joints between them."""
    some = character + b"{1,%d}+" % most
    return some + rb"(?>(?:(?>" + _JOINT + rb"{1,4})" + some + b"){0,%d})" % (most // 2) + _JOINTS_HERE


_DOT = rb"(?:\.|%2[eE])" + _JOINTS_HERE
# The signature's length is known (64 bytes), so that it is also known where a token ends in running text.
_SIGNATURE = rb"(?:" + _CHARACTER + _JOINTS_HERE + rb"){85}" + _CHARACTER
# The header is judged before what follows is looked at, and both are bounded: there is no input that takes long.
_HEADER = re.compile(_run(_CHARACTER, 400) + _DOT)
_REST = re.compile(_run(_CHARACTER, 16_384) + _DOT + _SIGNATURE)
_BASE64_HEAD = re.compile(_run(rb"[A-Za-z0-9+/]", 600))
_BASE64_ALL = re.compile(_run(rb"[A-Za-z0-9+/]", 32_768))
_JOINTS = re.compile(_JOINT)
_SEAM = re.compile(rb"[\x00\n\\\"']")
_DOTS = re.compile(rb"\.|%2[eE]")
# How a token begins, which is {"alg: plain, in UTF-16, and as base64.
_PLAIN, _PACKED = b"eyJhbGci", b"ZXlKaGJHY2l"
_BEGINNINGS = (_PLAIN, b"\x00".join(_PLAIN[i : i + 1] for i in range(len(_PLAIN))), _PACKED)


@dataclass(frozen=True, slots=True)
class Leak:
    """A token and where it begins: line and column, in bytes, from 1. What it says of itself is not proven."""

    token: Secret[str]
    line: int
    column: int
    kid: str
    issuer: str
    actor: str
    expires_at: int | None


def leaks(read: Callable[[int], bytes]) -> Iterator[Leak]:
    """All tokens in what is read, in their order, until nothing more comes."""
    held, line, column = b"", 1, 1
    while True:
        piece = read(PIECE)
        held += piece
        end = max(0, len(held) - KEPT) if piece else len(held)
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
    """Where a token begins, before `end`, and where it ends."""
    done = 0
    for start in sorted(place for word in _BEGINNINGS for place in _places(held, word, end)):
        if start < done:
            continue
        found = _packed(held, start) if held.startswith(_PACKED, start) else _plain(held, start)
        if found is not None:
            done, told = found
            yield start, done, told


def _places(held: bytes, word: bytes, end: int) -> Iterator[int]:
    place = held.find(word)
    while 0 <= place < end:
        yield place
        place = held.find(word, place + 1)


def _plain(held: bytes, start: int) -> tuple[int, dict[str, Any]] | None:
    """The token that begins here: its end, and what it says of itself; None where it is none of Watchword's."""
    head = _HEADER.match(held, start) if _DOTS.search(held, start, start + FARTHEST_DOT) else None
    header = {} if head is None else _object(head[0])
    if head is None or header.get("typ") != "at+jwt":
        return None
    rest = _REST.match(held, head.end())
    claims = {} if rest is None else _object(rest[0])
    words = header.get("kid"), claims.get("iss"), claims.get("sub")
    expires = claims.get("exp")
    ours = claims.get("client_id") == "watchword" and all(isinstance(word, str) for word in words)
    token = _bare(held[start : rest.end()]) if rest is not None else b""
    if rest is None or not ours or not isinstance(expires, int | None) or len(token) > LONGEST:
        return None
    kid, issuer, actor = words
    told = {"token": Secret(token.decode()), "kid": kid, "issuer": issuer, "actor": actor}
    return rest.end(), {**told, "expires_at": None if expires is None else expires * 1000}


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
    """The last characters, of which one alone means nothing."""
    left = bare[len(bare) // 4 * 4 :]
    return left + b"=" * (4 - len(left)) if len(left) > 1 else b""


def _bare(text: bytes) -> bytes:
    return _DOTS.sub(b".", _seamless(text))


def _seamless(text: bytes) -> bytes:
    return _JOINTS.sub(b"", text) if _SEAM.search(text) else text


def _object(text: bytes) -> dict[str, Any]:
    """The JSON object that stands before the first dot."""
    part = _bare(text).partition(b".")[0]
    try:
        found = json.loads(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def files_below(path: str, unread: Callable[[OSError], None]) -> Iterator[str]:
    """The regular files at and below a path, which alone may be a link; `unread` is told of what cannot be listed."""
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


def leaks_in(path: str, told: Callable[[int], None], *, given: bool) -> Iterator[Leak]:
    """The tokens in a file, or in standard input (-); none in what is no regular file. A link is followed only where it
    was given. `told` is told how much was read.
    """
    if path == "-":
        yield from leaks(_telling(sys.stdin.buffer.read, told))
        return
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if not given and not stat.S_ISREG(os.lstat(path).st_mode):
        return
    opened = os.open(path, flags if given else flags | os.O_NOFOLLOW)
    try:
        if stat.S_ISREG(os.fstat(opened).st_mode):
            yield from leaks(_telling(lambda size: os.read(opened, size), told))
    finally:
        os.close(opened)


def _telling(read: Callable[[int], bytes], told: Callable[[int], None]) -> Callable[[int], bytes]:
    def reading(size: int) -> bytes:
        piece = read(size)
        told(len(piece))
        return piece

    return reading
