"""Tables and terminal text of results."""
