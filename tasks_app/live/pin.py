"""TLS to a supervisor whose certificate is known by its fingerprint: no authority vouches for it, no name counts."""

import hmac
import ssl
from hashlib import sha256

from tasks_app.live.errors import WrongInstance


def context() -> ssl.SSLContext:
    """Make a client context that believes any certificate; only ``check`` decides, before a byte of ours is sent."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def check(certificate: bytes | None, fingerprint: str) -> None:
    """Compare the peer's certificate (DER) with the pinned sha-256 (hex). Raises WrongInstance."""
    shown = sha256(certificate or b"").hexdigest()
    if not fingerprint or not hmac.compare_digest(shown, fingerprint.lower()):
        raise WrongInstance("Something else answers where the supervisor of this sandbox should be.")
