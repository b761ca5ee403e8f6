"""Wiring: environment, settings, schedule, logging, entry points. Nothing but entry points imports it."""
