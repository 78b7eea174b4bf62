"""The console's static files. Only files of the package are served, each found by its whole name and read once.

A digest of all files is a part of their addresses, so that a browser keeps them for good and never mixes two versions.
Only the page itself is asked for each time; it names the modules that every view imports, so that they load at once.
"""

import gzip
import re
from functools import cache
from hashlib import sha256
from pathlib import Path

from watchword.basics.errors import Fault, Reason
from watchword.http.pages import ASSETS, CONTENT_TYPES, HEADERS, assets, console_files
from watchword.http.requests import MAX_LIST, Header, Request, Response, accepts_gzip

PREFIXES = ("/console/", ASSETS)
INDEX = "index.html"
MIN_GZIP = 256

_START = "main.js"
_STATIC_IMPORT = re.compile(r'^(?:import|export \{)[^"]*"\./([\w/]+\.js)";$', re.MULTILINE)
_PAGE_HEADERS = [*HEADERS, ("cache-control", "no-cache")]
_IMMUTABLE: Header = ("cache-control", "public, max-age=31536000, immutable")
# Of scripts and styles a browser ignores the others, and there are many. A picture can be opened as a page.
_PART_HEADERS = [header for header in HEADERS if header[0] in {"cross-origin-resource-policy", "vary"}]
_PARTS = {".js", ".css"}


def _imported(name: str, known: dict[str, None]) -> dict[str, None]:
    """The module and all that it imports at once, each one once."""
    if name not in known:
        known[name] = None
        for other in _STATIC_IMPORT.findall(console_files()[name].decode()):
            _imported(other, known)
    return known


@cache
def _index() -> tuple[Response, Response]:
    preloads = "".join(f'  <link rel="modulepreload" href="{ASSETS}{name}">\n' for name in _imported(_START, {}))
    text = console_files()[INDEX].decode().replace("</head>", preloads + "</head>").replace(ASSETS, assets())
    return _responses(text.encode(), ".html", _PAGE_HEADERS)


@cache
def _asset(name: str) -> tuple[Response, Response]:
    suffix = Path(name).suffix
    return _responses(console_files()[name], suffix, [*(_PART_HEADERS if suffix in _PARTS else HEADERS), _IMMUTABLE])


def _responses(body: bytes, suffix: str, more: list[Header]) -> tuple[Response, Response]:
    """The content as it is, and compressed if that helps."""
    kind, tag = CONTENT_TYPES[suffix], sha256(body).hexdigest()[:32]
    plain = Response(200, [("content-type", kind), ("etag", f'"{tag}"'), *more], body)
    compressed = gzip.compress(body, mtime=0)
    if len(body) < MIN_GZIP or len(compressed) >= len(body):
        return plain, plain
    headers = [("content-type", kind), ("etag", f'"{tag}-gzip"'), *more, ("content-encoding", "gzip")]
    return plain, Response(200, headers, compressed)


class Console:
    def serves(self, path: str) -> bool:
        return path.startswith(PREFIXES) or path == PREFIXES[0].rstrip("/")

    async def index(self, request: Request) -> Response:
        """Every view is this page; its script routes by the address."""
        return _answer(_index(), request)

    async def answer(self, request: Request) -> Response:
        if not request.path.startswith(ASSETS):
            return await self.index(request)
        name = request.path.removeprefix(assets())
        if name == INDEX or name not in console_files():
            raise Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")
        return _answer(_asset(name), request)


def _answer(responses: tuple[Response, Response], request: Request) -> Response:
    response = responses[accepts_gzip(request.header("accept-encoding"))]
    tag = response.headers[1][1]
    if _matches(tag, request.header("if-none-match")):
        return Response(304, response.headers[1:])
    return response


def _matches(tag: str, if_none_match: str) -> bool:
    return (
        tag in {word.strip().removeprefix("W/") for word in if_none_match.split(",", MAX_LIST)[:MAX_LIST]}
        or if_none_match.strip() == "*"
    )
