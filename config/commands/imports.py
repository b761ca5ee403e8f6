"""Check who imports whom (``[tool.importlinter]`` in pyproject.toml)."""

import sys

from importlinter.cli import lint_imports

if __name__ == "__main__":
    sys.exit(lint_imports())
