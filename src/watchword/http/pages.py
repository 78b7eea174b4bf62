"""The headers of pages, and the files that pages name.

The content security policy allows only scripts, styles and requests of this server, no frames, and markup only through
the escaping function of the console.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path

from watchword.http.requests import Header

ASSETS = "/assets/"

_FOLDER = Path(__file__).parents[1] / "console"
CONTENT_TYPES = {
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
    ("vary", "accept-encoding"),
]


@cache
def console_files() -> dict[str, bytes]:
    found = sorted(file for file in _FOLDER.rglob("*") if file.suffix in CONTENT_TYPES)
    return {str(file.relative_to(_FOLDER)): file.read_bytes() for file in found}


@cache
def assets() -> str:
    """The folder of the files' addresses."""
    digest = sha256()
    for name, content in console_files().items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"{ASSETS}{digest.hexdigest()[:16]}/"
