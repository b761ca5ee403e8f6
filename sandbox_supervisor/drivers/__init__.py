"""Adapters to coding agents. They run in a driver host inside the attempt, never in supervisor or runner."""
