"""What supervisors call. Never in the public schema; the task token is the only key, within the task's state."""
