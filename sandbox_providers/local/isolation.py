"""Find out, by trying, what can stand between a sandbox and the rest of this machine."""

import subprocess
from dataclasses import dataclass

from sandbox_providers.contract import CapacityGap, Unavailable
from sandbox_providers.local.images import Image
from sandbox_providers.local.layout import Layout
from sandbox_supervisor.protocol import codec

SHOWN = {"bubblewrap": "bubblewrap", "none": "no isolation"}
_LIMIT = 20.0  # seconds


@dataclass(frozen=True, slots=True)
class Tier:
    tier: str  # bubblewrap or none
    reason: str  # for people


def probe(layout: Layout, image: Image, wanted: str) -> Tier:
    """Ask the image's own code what works here. Raises CapacityGap when ``wanted`` was named and does not."""
    place = layout.image(image.digest)
    bwrap = place / "bin" / "bwrap"
    command = [image.python, "-P", "-s", "-B", "-m", "sandbox_supervisor", "probe-isolation", "--tier", wanted]
    command += ["--bwrap", str(bwrap)] if bwrap.exists() else []
    environment = {"PYTHONPATH": str(place), "LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    try:
        answer = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, check=True, timeout=_LIMIT, stdin=subprocess.DEVNULL
        )
        found = codec.decode(answer.stdout, Tier)
    except (OSError, subprocess.SubprocessError, codec.Malformed) as error:
        raise Unavailable("isolation_unknown", f"The isolation of this machine could not be probed: {error}") from None
    if wanted not in {"auto", found.tier}:
        raise CapacityGap("isolation_missing", f"Isolation by {wanted} was asked for, but: {found.reason}")
    return found
