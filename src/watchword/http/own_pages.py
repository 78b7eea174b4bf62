"""Own pages: which requests the console's pages make, and the session that those carry.

A browser sends a cookie along with whatever any page asks of us, so a cookie alone proves nothing. It counts only in a
request with a header that no form, link or image can send and no foreign script may (we answer no preflight), from an
`Origin` of our own. In local mode, where one signs in without a secret, our own origin must be one that no stranger's
name can lead to: a name of his that he has point at this machine is his origin, and not ours.
"""

from urllib.parse import urlsplit

from watchword.domain.errors import Fault, Reason
from watchword.domain.secret import Secret
from watchword.domain.token_limits import Network, within
from watchword.http.callers import CONSOLE_HEADER, is_loopback_host
from watchword.http.requests import Header, Request

PLAIN, SECURE = "watchword", "__Host-watchword"
_READING = frozenset({"GET", "HEAD"})
_PORTS = {"http": ":80", "https": ":443"}


class OwnPages:
    def __init__(self, public_url: str | None, proxies: tuple[Network, ...], *, local_mode: bool) -> None:
        self._public = None if public_url is None else _origin(*urlsplit(public_url)[:2])
        self._proxies = proxies
        self._local_mode = local_mode

    def check(self, request: Request) -> bool:
        """Whether it came by https. Raises unless it is a request of our own pages."""
        if request.header(CONSOLE_HEADER) != "1" or request.is_repeated(CONSOLE_HEADER):
            raise _foreign("A session counts only with the header X-Watchword-Console: 1.")
        own = self._told(request)
        if self._local_mode and own != self._public and not is_loopback_host(own.partition("://")[2]):
            raise _foreign(
                "In local mode the console is reached at a loopback address, such as http://127.0.0.1:8080, or at "
                "WATCHWORD_PUBLIC_URL; not under this Host."
            )
        if "origin" in request.headers:
            origin = request.header("origin").lower()
            if request.is_repeated("origin") or origin not in {own, self._public}:
                raise _foreign("The header Origin must be the address of this service: ask from its own pages.")
            return origin.startswith("https:")
        # Browsers leave it out where nothing is changed and nothing foreign; not all say so in words.
        if request.method not in _READING or request.header("sec-fetch-site") not in {"", "same-origin"}:
            raise _foreign("The header Origin must be sent, with the address of this service.")
        return own.startswith("https:")

    def carried(self, request: Request) -> Secret[str] | None:
        """The session that a request brings along; then it must be one of our own pages."""
        cookies = _cookies(request)
        if not (PLAIN in cookies or SECURE in cookies):
            return None
        secure = self.check(request)
        # The plain one may have been put there by others who share a part of our name.
        value = cookies.get(SECURE) or (None if secure else cookies.get(PLAIN))
        return Secret(value) if value else None

    def _told(self, request: Request) -> str:
        """Our address as the browser knows it, from the request or from a trusted proxy."""
        scheme, host = request.scheme, _one(request, "host")
        if self._proxies and within(request.peer, self._proxies):
            told = _one(request, "x-forwarded-proto").lower()
            scheme = told if told in _PORTS else scheme
            host = _one(request, "x-forwarded-host") or host
        return _origin(scheme, host)


def kept(held: Secret[str], *, secure: bool) -> Header:
    """The cookie: for no script to read, and for no other site's pages to send."""
    return "set-cookie", _cookie(held.reveal(), secure=secure)


def forgotten(*, secure: bool) -> Header:
    return "set-cookie", _cookie("", secure=secure) + "; Max-Age=0"


def _cookie(value: str, *, secure: bool) -> str:
    name, more = (SECURE, "; Secure") if secure else (PLAIN, "")
    return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{more}"


def _cookies(request: Request) -> dict[str, str]:
    """By name; one that came twice is empty, since nobody knows whose it is."""
    found: dict[str, str] = {}
    for line in request.headers.get_all("cookie"):
        for part in line.split(";"):
            name, _, value = part.strip().partition("=")
            found[name] = "" if name in found else value
    return found


def _one(request: Request, name: str) -> str:
    """Of several, as of a list, nobody knows who said which."""
    value = request.header(name).strip()
    return "" if request.is_repeated(name) or "," in value else value


def _origin(scheme: str, host: str) -> str:
    return f"{scheme}://{host.lower().removesuffix(_PORTS.get(scheme, ' '))}".lower()


def _foreign(message: str) -> Fault:
    return Fault(Reason.FOREIGN_REQUEST, message)
