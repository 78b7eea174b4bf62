"""A token in a file that renews itself: whoever reads it gets one that lives, and rotates it when its time has come.

    token = TokenFile("/etc/shop/token", "https://tokens.example.org")
    with Client("https://tokens.example.org", token=token) as watchword: ...

It is looked at before each use, so that a rotation by anybody else is seen as well. Where it cannot be renewed now, the
old token goes on while it lives, and `problem` says why; it is tried again later.
"""

import logging
import os
import ssl
import threading
import time
from datetime import timedelta
from pathlib import Path

from watchword.client.claims import life_of
from watchword.client.connection import DEFAULT_URL
from watchword.client.errors import WatchwordError
from watchword.client.files import Span, read_token_file, rotate_file
from watchword.domain.secret import Secret

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 3_600.0
_log = logging.getLogger("watchword.client")


class TokenFile:
    """`after` says when it is renewed: a part of the token's life (two thirds of it), or its age. A token that never
    ends is renewed by age alone. The token in the file must be allowed to ask for its own successor.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        url: str = DEFAULT_URL,
        *,
        after: float | timedelta = 2 / 3,
        overlap: Span = None,
        grace: Span = None,
        timeout: float = 30.0,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        if not (after > timedelta(0) if isinstance(after, timedelta) else 0 < after < 1):
            raise ValueError("after must be a part of the token's life between 0 and 1, or a timedelta.")
        self._path = Path(path)
        self._url = url
        self._after = after
        self._how = {"overlap": overlap, "grace": grace, "timeout": timeout, "verify": verify}
        self._renewing = threading.Lock()
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self.problem: str | None = None
        """Why it could not be renewed when it was last tried."""

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def read(self) -> Secret[str]:
        """The token to use now. May take as long as a rotation does, once in a token's life."""
        token = read_token_file(self._path)
        if not self.is_due(token) or not self._renewing.acquire(blocking=False):
            return token  # somebody else is at it; this one goes on meanwhile
        try:
            self._renew()
        finally:
            self._renewing.release()
        return read_token_file(self._path)

    def is_due(self, token: Secret[str]) -> bool:
        life = life_of(token)
        if life is None or time.monotonic() < self._not_before:
            return False
        if isinstance(self._after, timedelta):
            return time.time() - life.begins >= self._after.total_seconds()
        return life.spent() >= self._after

    def _renew(self) -> None:
        try:
            rotated = rotate_file(self._path, self._url, **self._how)  # type: ignore[arg-type]
        except (WatchwordError, OSError, ValueError) as error:
            self.problem = str(error)
            self._not_before = time.monotonic() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            _log.warning("the token in %s could not be renewed: %s", self._path, error)
        else:
            self.problem = rotated.problem
            self._pause = FIRST_PAUSE
            _log.info("the token in %s was renewed", self._path)
