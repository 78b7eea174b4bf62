"""Sealing: secrets in the store are encrypted by a master key, which is kept outside the store."""

import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from watchword.domain.errors import OperatorError
from watchword.domain.secret import Secret
from watchword.files import draft, sync

MASTER_KEY_BYTES = 32
NONCE_BYTES = 12
MAX_BYTES = 1_024

Randomness = Callable[[int], bytes]


class MasterKeyError(OperatorError):
    """The master key cannot be used."""


def load_master_key(path: Path, *, create: bool) -> Secret[bytes]:
    """The key in this file. With `create`, a missing key is created."""
    if create and not path.exists():
        make_master_key(path)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        raise MasterKeyError(
            f"There is no master key at {path}. Put the key of this store there, or create one for a new store: "
            f"watchword keys master {path}"
        ) from None
    except (OSError, UnicodeDecodeError):
        raise MasterKeyError(f"The master key at {path} cannot be read.") from None
    if mode & 0o077:
        raise MasterKeyError(f"Other users can read the master key {path}. Run: chmod 600 {path}")
    try:
        key = b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) != MASTER_KEY_BYTES:
        raise MasterKeyError(f"The file {path} does not hold a master key: 32 bytes, as base64.")
    return Secret(key)


def make_master_key(path: Path) -> bool:
    """Create a key in this file; False if the file exists. It is linked into place, so that of two processes that start
    together one wins.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with draft(path, b64encode(os.urandom(MASTER_KEY_BYTES)) + b"\n") as written:
        try:
            path.hardlink_to(written)
        except FileExistsError:
            return False
    sync(path.parent)
    return True


class Sealer:
    """AES-256-GCM under the master key. A secret opens only with the label it was sealed with."""

    def __init__(self, master_key: Secret[bytes], randomness: Randomness = os.urandom) -> None:
        self._cipher = AESGCM(master_key.reveal())
        self._randomness = randomness

    def seal(self, plain: Secret[bytes], label: str) -> bytes:
        nonce = self._randomness(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain.reveal(), label.encode())

    def open(self, sealed: bytes, label: str) -> Secret[bytes]:
        try:
            return Secret(self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], label.encode()))
        except InvalidTag:
            raise MasterKeyError(
                "The store is sealed with another master key. Set WATCHWORD_MASTER_KEY_FILE to the right one."
            ) from None
