"""Run what attempts run: the one process that touches their trees, and the supervisor's end of the line to it."""
