"""The contract as cases that any provider can be held against: in the tests, and by ``python -m`` for a plugin."""
