"""The tests of pantry; the standard library runs them."""
