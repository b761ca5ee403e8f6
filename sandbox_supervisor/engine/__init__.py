"""Turn facts into transactions and transactions into effects: the running heart of a sandbox."""
