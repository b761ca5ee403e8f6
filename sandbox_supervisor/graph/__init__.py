"""The graph as pure functions over values: rows and a fact in, one change out. No clock, no I/O, no process."""
