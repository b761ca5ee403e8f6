"""The server's side of TLS, from a certificate and key that are only in memory."""

import base64
import os
import re
import ssl
from hashlib import sha256

CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def server_context(pem: bytes) -> ssl.SSLContext:
    """Make a context of TLS 1.2 or newer. ``pem`` holds the certificate and its key; neither touches a disk."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    memory = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        os.write(memory, pem)
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


def fingerprint(pem: bytes) -> str:
    """Give the sha-256 of the first certificate in ``pem``, hex. Raises ValueError when there is none."""
    found = CERTIFICATE.search(pem)
    if found is None:
        raise ValueError("no certificate in the PEM data")
    return sha256(base64.b64decode(found.group(1))).hexdigest()
