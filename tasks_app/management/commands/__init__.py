"""One module per command; each is a thin caller of a service."""
