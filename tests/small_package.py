"""A package of a few files for set-up to install, with no registry asked."""

import base64
import hashlib
import zipfile
from pathlib import Path


def requirement(folder: Path, files: dict[str, str]) -> str:
    """Write a wheel of ``files`` into ``folder`` and give the line that requires it."""
    wheel = folder / "small-1.0-py3-none-any.whl"
    about = {
        "small-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        "small-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    whole = files | about
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in whole.items():
            archive.writestr(name, text)
        record = "".join(f"{name},sha256={_record_hash(text)},{len(text)}\n" for name, text in whole.items())
        archive.writestr("small-1.0.dist-info/RECORD", record + "small-1.0.dist-info/RECORD,,\n")
    return f"small @ {wheel.as_uri()} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
