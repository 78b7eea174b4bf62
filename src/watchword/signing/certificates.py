"""Certificates, as far as `doctor` looks at them: when the one that is served ends."""

from datetime import datetime
from pathlib import Path

from cryptography.x509 import load_pem_x509_certificate


def validity(path: Path) -> tuple[datetime, datetime]:
    """From when to when the first certificate of the file is valid. ValueError where there is none."""
    certificate = load_pem_x509_certificate(path.read_bytes())
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc
