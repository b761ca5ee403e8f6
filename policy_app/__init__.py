"""The runtime policy: one pointer, immutable revisions, and the one way to publish a new one."""
