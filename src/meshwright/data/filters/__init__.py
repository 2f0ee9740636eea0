"""Which documents are worth training on: the published heuristics, each in one file."""
