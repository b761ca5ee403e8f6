"""The embedded provider: a sandbox is a folder under the state directory and a detached process tree."""
