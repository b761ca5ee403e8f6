"""Bring in what a task has frozen, before its supervisor starts: whole and verified, or a structured failure."""
