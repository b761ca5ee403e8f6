"""Keys that are shown once and kept as a keyed digest: their text form, their digest, the ring of peppers."""

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass

from django.conf import settings

ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 12
SECRET_LENGTH = 43  # 256 bits
CRC_LENGTH = 6
_TEXT = re.compile(
    rf"([a-z]{{3}})_([0-9A-Za-z]{{{ID_LENGTH}}})_([0-9A-Za-z]{{{SECRET_LENGTH}}})([0-9A-Za-z]{{{CRC_LENGTH}}})"
)


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key in clear. It lives in memory for one call; its ``repr`` shows no secret."""

    prefix: str
    key_id: str
    secret: str

    def __repr__(self) -> str:
        return f"Key({self.prefix}_{self.key_id}_•••)"

    @property
    def text(self) -> str:
        """``<prefix>_<id>_<secret><crc>``: what its owner gets to see once."""
        body = f"{self.prefix}_{self.key_id}_{self.secret}"
        return body + _crc(body)


@dataclass(frozen=True, slots=True)
class Digest:
    pepper_id: str
    digest: str  # hex


def make(prefix: str) -> Key:
    return Key(prefix, _random(ID_LENGTH), _random(SECRET_LENGTH))


def read(text: str, prefix: str) -> Key | None:
    """Take a key's text apart; None for anything that ``Key.text`` did not make. No database is needed to say so."""
    match = _TEXT.fullmatch(text) if len(text) < 200 else None
    if match is None or match[1] != prefix:
        return None
    body, crc = text[:-CRC_LENGTH], match[4]
    return Key(prefix, match[2], match[3]) if _crc(body) == crc else None


def seal(key: Key) -> Digest:
    """Give the digest to keep, made with the first pepper of the ring."""
    pepper_id, pepper = settings.TOKEN_PEPPER_RING[0]
    return Digest(pepper_id, _mac(pepper, key))


def opens(key: Key, kept: Digest) -> bool:
    """Say in constant time whether ``kept`` was made of ``key``; no longer once its pepper has left the ring."""
    pepper = next((hexadecimal for name, hexadecimal in settings.TOKEN_PEPPER_RING if name == kept.pepper_id), None)
    return pepper is not None and hmac.compare_digest(_mac(pepper, key), kept.digest)


def _mac(pepper: str, key: Key) -> str:
    message = f"{key.prefix}|{key.key_id}|{key.secret}".encode()
    return hmac.new(bytes.fromhex(pepper), message, hashlib.sha256).hexdigest()


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _crc(text: str) -> str:
    number = zlib.crc32(text.encode())
    digits = []
    for _ in range(CRC_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
