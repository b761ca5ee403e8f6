"""Run the scripted agent as a program of its own."""

import sys

from sandbox_supervisor.drivers.scripted import main

sys.exit(main(sys.argv[1:]))
