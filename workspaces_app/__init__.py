"""Tenants: workspaces, members and roles, repositories, tokens, sign-in links, audit events, and who may do what."""
