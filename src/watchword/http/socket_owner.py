"""Socket owner: which user's process holds the other end of a connection on this machine. The kernel answers.

The question is one exact `sock_diag` query (man 7 sock_diag). It needs no privilege, walks no table, and also finds a
socket that was opened as IPv6 for an IPv4-mapped address. A process that sends and closes at once owns nothing any
more: the kernel then reports uid 0 and inode 0. So the state and the inode count before the uid does.
"""

import ipaddress
import os
import pwd
import socket
import struct
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

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
"""The same, further: interface, cookie."""
_FOUND = struct.Struct(f"=BBxx{_ENDS.size + _REST_OF_ID.size}x12xII")
"""inet_diag_msg: family, state; then uid and inode."""


class End(NamedTuple):
    """One end of a TCP connection."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> "End":
        """Read `127.0.0.1:8080` or `[::1]:8080`; ValueError for anything else."""
        host, _, port = text.rpartition(":")
        return cls(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")), int(port))


class OwnUser:
    """The user that the server runs as."""

    def __init__(self) -> None:
        self._uid = os.geteuid()
        self._overflow = _overflow_uid()

    def objection(self, client: str, server: str) -> str | None:
        """Why the client's end of this connection is not known to be this user's; None when it is."""
        try:
            owner = socket_owner(End.parse(client), End.parse(server))
        except (OSError, ValueError):
            return "the server cannot look up which user's process connected (sock_diag)"
        if owner is None:
            return "the client has closed its end of the connection, so its user is unknown"
        if owner == self._overflow:  # stands for every user without a number in our namespace
            return f"the connection comes from a process of a user that the server cannot identify (uid {owner})"
        if owner != self._uid:
            return f"the connection comes from a process of {_name(owner)}; the server runs as {_name(self._uid)}"
        return None


def socket_owner(local: End, remote: End) -> int | None:
    """The uid that owns the established socket with these ends; None where there is no such socket, or no process
    holds it. OSError where the kernel does not answer.
    """
    family = socket.AF_INET if isinstance(local.address, ipaddress.IPv4Address) else socket.AF_INET6
    query = (
        _QUERY.pack(family, socket.IPPROTO_TCP, 0, _EVERY_STATE)
        + _ENDS.pack(local.port, remote.port, local.address.packed, remote.address.packed)
        + _REST_OF_ID.pack(0, *_NO_COOKIE)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + query)
        # The kernel answers before `send` returns, and is the one sender whose number is 0.
        answer, (sender, _) = kernel.recvfrom(8_192, socket.MSG_DONTWAIT)
    if (
        sender != 0
        or len(answer) < _HEADER.size + _FOUND.size
        or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY
    ):
        return None
    # Where there is no such connection, the kernel finds who listens at its local end: another state.
    _, state, uid, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return int(uid) if state == _ESTABLISHED and inode != 0 else None


@lru_cache(maxsize=64)
def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _overflow_uid() -> int:
    try:
        return int(_OVERFLOW_UID.read_text())
    except (OSError, ValueError):  # systemd's ProcSubset=pid hides it
        return _DEFAULT_OVERFLOW_UID
