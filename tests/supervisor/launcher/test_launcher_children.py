"""What the launcher starts ends with it, also when the launcher ends in the middle of starting it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

# The launcher dies between fork and exec of its child: before that asks the kernel to end it together with its parent.
DYING = """
import os, signal, socket, sys, time
from pathlib import Path
from sandbox_supervisor import processes
from sandbox_supervisor.launcher.certificate import make_certificate
from sandbox_supervisor.launcher.children import Children, Instance
from sandbox_supervisor.protocol.folder import Order

what, dies, place = sys.argv[1], sys.argv[2] == "dies", Path(sys.argv[3])
launcher, ask = os.getpid(), processes.die_with_parent

def late(*number):
    if dies:
        os.kill(launcher, signal.SIGKILL)
        while os.getppid() == launcher:
            time.sleep(0.01)
    ask(*number)

processes.die_with_parent = late
order = Order(key="k", name="n", task_id="t", uid="u", digest="d", image_digest="i", image=str(place),
              python=str(place / "python"), tier="none", tier_reason="", state=str(place))
listening = socket.create_server(("127.0.0.1", 0))
instance = Instance(identity="boot:1:2", listening=listening, certificate=make_certificate("n", "127.0.0.1"))
children = Children(place=place, order=order, instance=instance, secrets={}, nonce="nonce")
begun = getattr(children, what)()
os.waitpid(begun[0] if what == "supervisor" else begun, 0)
"""


@pytest.mark.parametrize("what", ["materialise", "supervisor", "runner"])
@pytest.mark.parametrize(("dies", "said"), [("lives", "begun\n"), ("dies", "")])
def test_a_child_whose_launcher_died_before_it_began_never_begins(tmp_path, what, dies, said):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho begun\n")
    program.chmod(0o700)
    argv = [sys.executable, "-c", DYING, what, dies, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stdout == said  # read to the end: nothing that could still say it is left
