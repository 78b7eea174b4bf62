"""The console's files: those of the package and no others, each found by its whole name, read when first asked for.

What a page may do is said with every one of them: scripts, styles and requests of our own alone, in no frame, nothing
of it to anybody else, and no text made into markup but by the one function of ours that escapes it. They are asked for
again each time, and sent again only when they have changed.
"""

import gzip
import re
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from watchword.domain.errors import Fault, Reason
from watchword.http.requests import Header, Request, Response

PREFIXES = ("/console/", "/assets/")
ASSETS = "/assets/"
FRONT = "index.html"
SMALLEST_PACKED = 256

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".png": "image/png",
}
_NEVER = re.compile(r"q\s*=\s*0(\.0*)?")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types watchword"
)
_POWERS = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen",
    "geolocation", "gyroscope", "hid", "identity-credentials-get", "idle-detection", "magnetometer", "microphone",
    "midi", "payment", "picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "serial", "usb",
    "xr-spatial-tracking",
)  # fmt: skip
HEADERS: list[Header] = [
    ("content-security-policy", _POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", ", ".join(f"{power}=()" for power in _POWERS)),
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
]


class _File:
    def __init__(self, source: Traversable, kind: str) -> None:
        self._source = source
        self._kind = kind

    @cached_property
    def plain(self) -> Response:
        body = self._source.read_bytes()
        return self._response(body, f'"{_mark(body)}"', [])

    @cached_property
    def packed(self) -> Response:
        """As it is where packing would not help."""
        body = self.plain.body
        smaller = gzip.compress(body, mtime=0) if len(body) >= SMALLEST_PACKED else body
        if len(smaller) >= len(body):
            return self.plain
        return self._response(smaller, f'"{_mark(body)}-gzip"', [("content-encoding", "gzip")])

    def _response(self, body: bytes, tag: str, more: list[Header]) -> Response:
        return Response(200, [("content-type", self._kind), ("etag", tag), *HEADERS, *more], body)


class Console:
    @cached_property
    def _files(self) -> dict[str, _File]:
        return dict(_below(files("watchword") / "console", PurePosixPath()))

    def serves(self, path: str) -> bool:
        return path.startswith(PREFIXES) or path == PREFIXES[0].rstrip("/")

    async def front(self, request: Request) -> Response:
        """Every view is the one page, which looks at its address itself."""
        return _answer(self._files[FRONT], request)

    async def answer(self, request: Request) -> Response:
        if not request.path.startswith(ASSETS):
            return await self.front(request)
        found = self._files.get(request.path[len(ASSETS) :])
        if found is None:
            raise Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")
        return _answer(found, request)


def _below(folder: Traversable, path: PurePosixPath) -> Iterator[tuple[str, _File]]:
    for entry in folder.iterdir():
        name = path / entry.name
        if entry.is_dir():
            yield from _below(entry, name)
        elif name.suffix in _KINDS:
            yield str(name), _File(entry, _KINDS[name.suffix])


def _answer(file: _File, request: Request) -> Response:
    response = file.packed if _takes_gzip(request.header("accept-encoding")) else file.plain
    tag = response.headers[1][1]
    if _is_known(tag, request.header("if-none-match")):
        return Response(304, response.headers[1:])
    return response


def _takes_gzip(accepted: str) -> bool:
    for word in accepted.lower().split(","):
        coding, _, weight = word.partition(";")
        if coding.strip() == "gzip":
            return not _NEVER.fullmatch(weight.strip())
    return False


def _is_known(tag: str, given: str) -> bool:
    return tag in {word.strip().removeprefix("W/") for word in given.split(",")} or given.strip() == "*"


def _mark(body: bytes) -> str:
    return sha256(body).hexdigest()[:32]
