"""``probe-isolation [--tier auto|bubblewrap|none] [--bwrap PATH]``: say as JSON what really works on this machine."""

import argparse
import sys
from pathlib import Path

from sandbox_supervisor import isolation
from sandbox_supervisor.protocol import codec


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="probe-isolation")
    parser.add_argument("--tier", choices=["auto", "bubblewrap", "none"], default="auto")
    parser.add_argument("--bwrap", type=Path)
    asked = parser.parse_args(argv)
    try:
        chosen = isolation.choose(asked.tier, bwrap=asked.bwrap)
    except isolation.IsolationMissing as missing:
        chosen = isolation.Isolation(tier=isolation.Tier.NONE, reason=str(missing))
    sys.stdout.buffer.write(codec.encode({"tier": chosen.tier, "reason": chosen.reason}) + b"\n")
    return 0
