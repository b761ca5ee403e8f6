"""An agent without a model: it plays a playbook over the Agent Client Protocol, as a process of its own like any other.

It serves the demo, codemods and tests, and says what it is wherever its name is shown.
"""

PLAY = "caisson.dev/play"  # where in ``_meta`` of ``session/new`` the playbook travels


def main(argv: list[str]) -> int:
    """Serve on standard input and output until the input ends."""
    from sandbox_supervisor.drivers.scripted.agent import main as serve

    return serve(argv)
