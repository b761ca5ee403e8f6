"""The task record, and all that the control plane does to it."""
