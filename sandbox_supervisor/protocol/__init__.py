"""What crosses the border of a sandbox: specification, states, events, messages.

The one part of ``sandbox_supervisor`` that the control plane may import. Unknown fields are ignored in both directions.
"""

PROTOCOL = 1
