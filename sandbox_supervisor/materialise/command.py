"""``materialise --folder DIR``: make what the specification names. Exits 65 with ``failure.json`` when it cannot."""

import argparse
import os
import sys
from pathlib import Path

from sandbox_supervisor.materialise.failure import Failed
from sandbox_supervisor.materialise.repository import bring_in
from sandbox_supervisor.protocol import codec, folder, handover
from sandbox_supervisor.protocol.spec import TaskSpecification


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="materialise")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--secrets-fd", type=int, help="read by archive downloads only")
    asked = parser.parse_args(argv)
    if asked.secrets_fd is not None:
        os.close(asked.secrets_fd)  # nothing that is brought in now needs a credential
    try:
        materialise(asked.folder)
    except Failed as failed:
        handover.replace(asked.folder / folder.FAILURE, failed.record())
        sys.stderr.write(f"materialise: {failed.code}: {failed}\n")
        return folder.EXIT_MATERIALISATION
    return 0


def materialise(place: Path) -> None:
    """Make the repository at its baseline. Safe to repeat and after a kill at any point. Raises Failed."""
    try:
        specification = handover.read(place / folder.SPECIFICATION, TaskSpecification)
    except codec.Malformed as error:
        raise Failed(
            "specification_unreadable", stage="specification", item=folder.SPECIFICATION, cause=str(error)
        ) from None
    if specification is None:
        raise Failed(
            "specification_unreadable", stage="specification", item=folder.SPECIFICATION, cause="it is missing"
        )
    bring_in(place / "repo", specification.repository)
