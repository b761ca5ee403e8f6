"""Every write of this app: one module-level function per verb."""
