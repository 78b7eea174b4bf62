"""Where the event stream goes: standard output, a file, or syslog. One JSON line for each event."""

import errno
import os
import select
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from watchword.basics.errors import OperatorError
from watchword.basics.files import open_bits, sync, user_name
from watchword.journal.events import EventSink, KeptEvent, StreamTarget, Transport, ecs_fields

PATIENCE_SECONDS = 5.0
"""How long a pipe or a connection may take nothing."""
PIPE_CHUNK = 4096
"""A pipe that is ready takes as much without blocking (PIPE_BUF)."""
MAX_DATAGRAM = 60_000
"""A datagram has at most 65,507 bytes. An event that is larger comes without its details."""
# Facility authpriv (10), severity info (6).
PRIORITY = 10 * 8 + 6


def open_sink(target: StreamTarget) -> EventSink:
    match target.transport:
        case Transport.STDOUT:
            return _StdoutSink()
        case Transport.FILE:
            return _FileSink(Path(target.path))
        case _:
            return _SyslogSink(target)


def check_target(target: StreamTarget) -> None:
    """At start. Whether the target takes events is seen later, and does not stop the service."""
    folder = Path(target.path).parent
    if target.transport is Transport.FILE and not folder.is_dir():
        raise OperatorError(f"WATCHWORD_EVENT_STREAM must name a file in an existing folder; {folder} is none.")


def _line(event: KeptEvent, most: int | None = None) -> bytes:
    fields = ecs_fields(event)
    line = orjson.dumps(fields)
    if most is not None and len(line) > most:
        fields["watchword"] |= {"detail": {}, "truncated": True}
        line = orjson.dumps(fields)
    return line


def _lines(events: Sequence[KeptEvent]) -> bytes:
    return b"".join(_line(event) + b"\n" for event in events)


class _StdoutSink:
    """A failed write, or another process before this one, may have cut off a line. The event comes again, on a line of
    its own.
    """

    def __init__(self) -> None:
        self._is_line_start = False

    def write(self, events: Sequence[KeptEvent]) -> None:
        left = memoryview((b"" if self._is_line_start else b"\n") + _lines(events))
        self._is_line_start = False
        ready = select.poll()
        ready.register(1, select.POLLOUT)
        while left:
            if not ready.poll(PATIENCE_SECONDS * 1000):
                raise TimeoutError("nothing reads standard output")
            left = left[os.write(1, left[:PIPE_CHUNK]) :]
        self._is_line_start = True

    def close(self) -> None:
        """Standard output stays open."""


class _FileSink:
    """Appends. A file that was renamed or removed, as by logrotate, is created again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, events: Sequence[KeptEvent]) -> None:
        try:
            file = self._opened()
            left = memoryview(_lines(events))
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        except OSError:
            self.close()  # the last line may be incomplete: see `_opened`
            raise

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), self._path.lstat()):
                    return self._file
            self.close()
        # Without O_NONBLOCK a named pipe would block here.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(self._path, flags, 0o600)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise OSError(f"{self._path} is a link, which is not followed") from None
        seen = os.fstat(self._file)
        if problem := _objection(seen):
            raise OSError(f"{self._path} {problem}")
        # A crash or a full disk may have cut off a line. The event comes again, on a line of its own.
        if seen.st_size and os.pread(self._file, 1, seen.st_size - 1) != b"\n":
            os.write(self._file, b"\n")
        sync(self._path.parent)
        return self._file


def _objection(seen: os.stat_result) -> str | None:
    """Why the file is not written to: another user may have planted it, or can read or change it. Its group may read
    it, as a collector does.
    """
    if not stat.S_ISREG(seen.st_mode):
        return "is not a regular file"
    if seen.st_uid != os.geteuid():
        return f"belongs to another user ({user_name(seen.st_uid)})"
    if seen.st_nlink > 1:
        return "is a hard link to another file"
    if open_bits(seen, 0o027):
        return f"is open to other users (mode {stat.S_IMODE(seen.st_mode):04o}); 0600 or 0640 is right"
    return None


class _SyslogSink:
    """RFC 5424 by UDP, or by TCP with the length before each message (RFC 6587). At a local socket the older form,
    which journald and rsyslog read there.
    """

    def __init__(self, target: StreamTarget) -> None:
        self._target = target
        self._name = socket.gethostname() or "-"
        self._socket: socket.socket | None = None

    def write(self, events: Sequence[KeptEvent]) -> None:
        try:
            opened = self._opened()
            for event in events:
                opened.sendall(self._message(event))
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _opened(self) -> socket.socket:
        target = self._target
        is_tcp = target.transport is Transport.TCP
        if self._socket is not None:
            # A TCP server that has closed the connection sends nothing else. What is sent then is lost.
            if not is_tcp or not select.select([self._socket], [], [], 0)[0]:
                return self._socket
            self.close()
        if is_tcp:
            self._socket = socket.create_connection((target.host, target.port), PATIENCE_SECONDS)
            return self._socket
        family, address = socket.AF_UNIX, target.path
        if target.transport is not Transport.UNIX:
            family, _, _, _, address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_DGRAM)[0]  # type: ignore[assignment]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.connect(address)
        return self._socket

    def _message(self, event: KeptEvent) -> bytes:
        if self._target.transport is Transport.UNIX:
            return b"<%d>watchword[%d]: %s" % (PRIORITY, os.getpid(), _line(event, MAX_DATAGRAM))
        is_tcp = self._target.transport is Transport.TCP
        line = _line(event, None if is_tcp else MAX_DATAGRAM)
        at = ecs_fields(event)["@timestamp"]
        head = f"<{PRIORITY}>1 {at} {self._name} watchword {os.getpid()} {event.action} - "
        message = head.encode("ascii", "replace") + line
        return b"%d %s" % (len(message), message) if is_tcp else message
