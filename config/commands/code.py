"""Tell one state of the product's code from another: the files of a checkout change under a product that runs."""

from hashlib import sha256
from pathlib import Path


def fingerprint(checkout: Path) -> str:
    """Give one word for all that a product loads from its checkout: packages, templates, static files and pins."""
    packages = [path.parent for path in checkout.glob("*/__init__.py") if path.parent.name != "tests"]
    whole = sha256((checkout / "requirements.txt").read_bytes())
    for folder in sorted([*packages, checkout / "templates", checkout / "static"]):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(f"{path.relative_to(checkout)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()
