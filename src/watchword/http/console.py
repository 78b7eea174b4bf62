"""The console's static files. Only files of the package are served, each found by its whole name and read once.

The content security policy allows only scripts, styles and requests of this server, no frames, and markup only through
the escaping function of the console. Browsers revalidate a file each time and download it only when it has changed.
"""

import gzip
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from watchword.domain.errors import Fault, Reason
from watchword.http.compression import accepts_gzip
from watchword.http.requests import Header, Request, Response

PREFIXES = ("/console/", "/assets/")
ASSETS = "/assets/"
INDEX = "index.html"
MIN_GZIP = 256

_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml; charset=utf-8",
    ".png": "image/png",
}
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types watchword"
)
_DENIED_FEATURES = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen",
    "geolocation", "gyroscope", "hid", "identity-credentials-get", "idle-detection", "magnetometer", "microphone",
    "midi", "payment", "picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "serial", "usb",
    "xr-spatial-tracking",
)  # fmt: skip
HEADERS: list[Header] = [
    ("content-security-policy", _CONTENT_SECURITY_POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", ", ".join(f"{feature}=()" for feature in _DENIED_FEATURES)),
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
]


@cache
def _responses(file: Path) -> tuple[Response, Response]:
    """The file as it is, and compressed if that helps."""
    body, kind = file.read_bytes(), _CONTENT_TYPES[file.suffix]
    tag = sha256(body).hexdigest()[:32]
    plain = Response(200, [("content-type", kind), ("etag", f'"{tag}"'), *HEADERS], body)
    compressed = gzip.compress(body, mtime=0)
    if len(body) < MIN_GZIP or len(compressed) >= len(body):
        return plain, plain
    headers = [("content-type", kind), ("etag", f'"{tag}-gzip"'), *HEADERS, ("content-encoding", "gzip")]
    return plain, Response(200, headers, compressed)


class Console:
    @cached_property
    def _files(self) -> dict[str, Path]:
        folder = Path(__file__).parents[1] / "console"
        return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.suffix in _CONTENT_TYPES}

    def serves(self, path: str) -> bool:
        return path.startswith(PREFIXES) or path == PREFIXES[0].rstrip("/")

    async def index(self, request: Request) -> Response:
        """Every view is this page; its script routes by the address."""
        return _answer(self._files[INDEX], request)

    async def answer(self, request: Request) -> Response:
        if not request.path.startswith(ASSETS):
            return await self.index(request)
        found = self._files.get(request.path[len(ASSETS) :])
        if found is None:
            raise Fault(Reason.NO_SUCH_ADDRESS, "Nothing is served at this address.")
        return _answer(found, request)


def _answer(file: Path, request: Request) -> Response:
    response = _responses(file)[accepts_gzip(request.header("accept-encoding"))]
    tag = response.headers[1][1]
    if _matches(tag, request.header("if-none-match")):
        return Response(304, response.headers[1:])
    return response


def _matches(tag: str, if_none_match: str) -> bool:
    return tag in {word.strip().removeprefix("W/") for word in if_none_match.split(",")} or if_none_match.strip() == "*"
