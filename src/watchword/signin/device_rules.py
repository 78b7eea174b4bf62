"""Device authorization (RFC 8628): a terminal gets two codes, and a signed-in person approves it in a browser.

The device code is the terminal's secret: it polls with it and gets the token. The user code is short, for a person to
compare and type; it only finds the terminal. The store keeps the digests of both.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from watchword.basics.errors import Fault, Reason, invalid
from watchword.basics.names import check_name
from watchword.basics.secret import Secret
from watchword.journal.events import Action, Event
from watchword.tokens.rules import identifier

CODE_MILLIS = 600_000
KEPT = CODE_MILLIS
"""How long an expired code is kept, so that its terminal learns that it has expired."""
INTERVAL = 5_000
SLOWER = 5_000
LONGEST_INTERVAL = 60_000
"""The last interval that is stored: a terminal that keeps polling too fast causes no more writes."""
LENIENCE = 1_000
"""Requests that were sent in time may arrive this much closer together."""
MAX_HOST = 100
CONSONANTS = "BCDFGHJKLMNPQRSTVWXZ"  # they form no words, and none looks like a digit
USER_CODE = 8
_USER_CODE = re.compile(f"[{CONSONANTS}]{{{USER_CODE}}}")


class DeviceLimits(NamedTuple):
    """How many codes may be open at once."""

    pending: int = 10_000  # in all; beyond, the oldest of the network with the most is dropped
    of_origin: int = 50
    of_site: int = 100
    of_network: int = 500
    decided: int = 50  # by one actor; beyond, the oldest is dropped


class DeviceStatus(Enum):
    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"


class Device(NamedTuple):
    """A terminal that waits for a token."""

    id: str  # the digest of the device code
    user_code: str  # the digest of the user code
    client: str
    host: str | None  # claimed by the terminal
    scopes: tuple[str, ...] | None
    peer: str
    origin: str  # for limits: see `origins_of`
    site: str
    network: str
    created_at: int
    ends_at: int
    interval: int = INTERVAL
    polled_at: int | None = None
    status: DeviceStatus = DeviceStatus.PENDING
    actor: str | None = None  # who approved or denied it
    session_id: str | None = None  # the session in which that was

    def is_too_fast(self, now: int) -> bool:
        return self.polled_at is not None and now < self.polled_at + self.interval - LENIENCE

    def polled(self, now: int) -> "Device":
        """After a poll. One that comes too fast makes the interval longer."""
        if self.is_too_fast(now):
            return self._replace(interval=min(self.interval + SLOWER, LONGEST_INTERVAL))
        return self._replace(polled_at=now)

    def decided(self) -> Event:
        """The event of an approval or a denial."""
        action = Action.DEVICE_APPROVED if self.status is DeviceStatus.APPROVED else Action.DEVICE_DENIED
        return Event(action, str(self.actor), {"client": self.client, "host": self.host, "address": self.peer})

    @property
    def token_name(self) -> str:
        return f"{self.client} login" + ("" if self.host is None else f" on {self.host}")


def code_digests(salt: Secret[bytes]) -> tuple[Callable[[Secret[str]], str], Callable[[str], str]]:
    """Functions that compute the digests of device codes and of user codes; they never equal a token id."""
    digest = identifier(salt)
    return (
        lambda code: digest(b"device code:" + code.reveal().encode()),
        lambda code: digest(b"user code:" + code.encode()),
    )


def check_user_code(text: str) -> str:
    """The letters of a user code as a person typed it, in any case, with any separators."""
    code = re.sub(r"[\s-]", "", text).upper()
    if not _USER_CODE.fullmatch(code):
        raise invalid("userCode", f"userCode must have {USER_CODE} letters of {CONSONANTS}, such as BCDF-GHJK.")
    return code


def shown(code: str) -> str:
    """A user code in two groups."""
    return f"{code[: USER_CODE // 2]}-{code[USER_CODE // 2 :]}"


def check_host(text: str) -> str | None:
    if not text:
        return None
    if len(text) > MAX_HOST:
        raise invalid("host", f"host must have at most {MAX_HOST} characters.")
    return check_name(text, "host")


def no_device() -> Fault:
    """The same for a wrong, an expired and a used code."""
    return Fault(Reason.DEVICE_NOT_FOUND, "No terminal is waiting with this code. Compare it, or start again there.")


def no_grant() -> Fault:
    return Fault(Reason.INVALID_GRANT, "The device code is unknown, used, or of another client. Start again.")
