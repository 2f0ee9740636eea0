"""Communication parallelism: protocol, pattern, resources (COM)."""
