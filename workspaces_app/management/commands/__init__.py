"""Thin: each command reads its arguments and calls one service."""
