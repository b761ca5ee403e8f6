"""What a flow may refer to: drivers and flows with immutable versions, the flow compiler, capability resolution."""
