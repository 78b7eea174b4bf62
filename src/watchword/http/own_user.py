"""Whether a request comes directly from a process of the server's own user."""

import ipaddress
import os
import re
import socket
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple

from watchword.basics.files import user_name
from watchword.basics.networks import is_loopback
from watchword.http.requests import Request

MAX_HEADER_NAME = 60

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]/@]+)(?::\d{1,5})?")
_FORWARDED = frozenset({"forwarded", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip", "x-client-ip"})
_FORWARDED_PREFIXES = ("x-forwarded-", "x-envoy-", "tailscale-")
_OWN_SITES = frozenset({"same-origin", "none"})
_OVERFLOW_UID = Path("/proc/sys/kernel/overflowuid")
_DEFAULT_OVERFLOW_UID = 65_534

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ESTABLISHED = 1
_NO_COOKIE = (0xFFFF_FFFF, 0xFFFF_FFFF)
_EVERY_STATE = 0xFFFF_FFFF

_HEADER = struct.Struct("=IHHII")
"""nlmsghdr: length, type, flags, sequence, port."""
_QUERY = struct.Struct("=BBBxI")
"""inet_diag_req_v2 up to its socket id: family, protocol, extensions, states."""
_ENDS = struct.Struct("!HH16s16s")
"""inet_diag_sockid: local and remote port, local and remote address."""
_REST_OF_ID = struct.Struct("=III")
"""inet_diag_sockid, continued: interface, cookie."""
_FOUND = struct.Struct(f"=BBxx{_ENDS.size + _REST_OF_ID.size}x12xII")
"""inet_diag_msg: family, state; then uid and inode."""


def not_of_own_user(request: Request) -> str | None:
    """Why a request does not come directly from a process of the server's own user; None: it does. The query to the
    kernel comes last.
    """
    if not is_loopback(request.peer):
        return "the connection does not come from loopback"
    if not request.is_direct:
        return "it is not an HTTP/1.1 request in origin form, so a proxy may have sent it"
    forwarded = next(filter(is_forwarded, request.headers), None)
    if forwarded is not None:
        return f"the header {forwarded[:MAX_HEADER_NAME]} shows a proxy"
    if request.is_repeated("host") or not is_loopback_host(request.header("host")):
        return "Host is not a loopback name"
    if not is_own_origin(request):
        return "Origin is another site"
    if "sec-fetch-site" in request.headers and (
        request.is_repeated("sec-fetch-site") or request.header("sec-fetch-site") not in _OWN_SITES
    ):
        return "Sec-Fetch-Site shows a page of another site"
    return _other_user(request.scope.client, request.scope.server)


def is_forwarded(name: str) -> bool:
    return name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)


def is_loopback_host(host: str) -> bool:
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    name = match["name"].strip("[]").lower()
    return name == "localhost" or is_loopback(name)


def is_own_origin(request: Request) -> bool:
    if "origin" not in request.headers:
        return True
    own = f"{request.scope.scheme}://{request.header('host')}"
    return not request.is_repeated("origin") and request.header("origin").lower() == own.lower()


class SocketAddress(NamedTuple):
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> "SocketAddress":
        """Read `127.0.0.1:8080` or `[::1]:8080`; ValueError for anything else."""
        host, _, port = text.rpartition(":")
        return cls(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")), int(port))


def _other_user(client: str, server: str) -> str | None:
    """Why the client of this connection is not known to be the user that the server runs as; None: it is."""
    try:
        owner = socket_owner(SocketAddress.parse(client), SocketAddress.parse(server))
    except (OSError, ValueError):
        return "the server cannot look up which user's process connected (sock_diag)"
    if owner is None:
        return "the client has closed its end of the connection, so its user is unknown"
    if owner == _overflow_uid():  # every user that is not mapped in our namespace
        return f"the connection comes from a process of a user that the server cannot identify (uid {owner})"
    if owner != os.geteuid():
        return f"the connection comes from a process of {_name(owner)}; the server runs as {_name(os.geteuid())}"
    return None


def socket_owner(local: SocketAddress, remote: SocketAddress) -> int | None:
    """The uid that owns the established socket with these addresses, by one exact `sock_diag` query (man 7 sock_diag).
    None: there is no such socket, or no process holds it. OSError: the kernel does not answer.

    The query needs no privilege, walks no table, and finds a socket opened as IPv6 for an IPv4-mapped address. For a
    process that sends and closes, the kernel reports uid 0 and inode 0: state and inode are checked before the uid.
    """
    family = socket.AF_INET if isinstance(local.address, ipaddress.IPv4Address) else socket.AF_INET6
    query = (
        _QUERY.pack(family, socket.IPPROTO_TCP, 0, _EVERY_STATE)
        + _ENDS.pack(local.port, remote.port, local.address.packed, remote.address.packed)
        + _REST_OF_ID.pack(0, *_NO_COOKIE)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + query)
        # The kernel answers before `send` returns; only the kernel has the sender number 0.
        answer, (sender, _) = kernel.recvfrom(8_192, socket.MSG_DONTWAIT)
    if (
        sender != 0
        or len(answer) < _HEADER.size + _FOUND.size
        or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY
    ):
        return None
    # Without such a connection the kernel returns the listening socket at the local address, in another state.
    _, state, uid, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return int(uid) if state == _ESTABLISHED and inode != 0 else None


def _name(uid: int) -> str:
    return f"user {user_name(uid)} (uid {uid})"


@cache
def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):  # systemd's ProcSubset=pid hides it
        return _DEFAULT_OVERFLOW_UID
