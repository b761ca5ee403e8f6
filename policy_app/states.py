"""The closed vocabularies of this app."""

from enum import StrEnum


class PermissionPolicy(StrEnum):
    """Who answers an agent's permission requests."""

    FLOW = "flow"  # as each node of the flow says
    ASK = "ask"  # always a person, whatever the flow says
