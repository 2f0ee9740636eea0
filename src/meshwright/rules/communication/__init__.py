"""Communication: protocol, pattern, resources (COM)."""
