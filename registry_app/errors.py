"""What the registry refuses."""

from dataclasses import asdict

from registry_app.flows.problems import Problem, counted
from workspaces_app.errors import Refused


class FlowInvalid(Refused):
    """A flow file that does not compile. ``problems`` holds all that is wrong with it."""

    default_code = "flow_invalid"

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(
            f"The flow has {counted(problems)}; the first: {problems[0].message}",
            problems=[asdict(problem) for problem in problems],
        )
        self.problems = problems


class DriverInvalid(Refused):
    """A driver's entry that no sandbox could use. ``problems`` holds all that is wrong with it."""

    default_code = "driver_invalid"

    def __init__(self, problems: list[str]) -> None:
        super().__init__(" ".join(problems), problems=problems)
        self.problems = problems
