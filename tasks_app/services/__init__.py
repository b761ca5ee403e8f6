"""What the control plane does to a task: one verb per function."""
