"""Where sandboxes come from: the provider contract and the providers. No Django."""
