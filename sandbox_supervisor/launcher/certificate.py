"""Make the key and certificate that a sandbox shows for all its life; they exist in memory only."""

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address

from sandbox_supervisor.protocol import handover

_VALID_FOR = timedelta(days=3650)  # clients pin the fingerprint; the dates are a formality
_FINGERPRINT = 64  # hex digits
_LIMIT = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    pem: bytes = field(repr=False)  # private key, then certificate
    fingerprint: str  # sha-256 of the DER form, hex


def make_certificate(name: str, host: str) -> Certificate:
    """Give a fresh self-signed certificate (EC P-256) for ``name`` at the address ``host``.

    It is made in a child, so that a launcher, which lives for days, does not carry the library. One thread only.
    """
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        _make_and_exit(name, host, told)
    os.close(told)
    try:
        made = handover.read_to_end(heard, _LIMIT)
    finally:
        os.close(heard)
        _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError("no certificate could be made")
    return Certificate(fingerprint=made[:_FINGERPRINT].decode(), pem=made[_FINGERPRINT:])


def _make_and_exit(name: str, host: str, told: int) -> None:
    code = 1
    try:
        with os.fdopen(told, "wb") as pipe:
            pipe.write(_make(name, host))
        code = 0
    finally:
        os._exit(code)


def _make(name: str, host: str) -> bytes:
    """Give fingerprint, private key and certificate, one after the other."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fingerprint = sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    return fingerprint.encode() + secret + certificate.public_bytes(serialization.Encoding.PEM)
