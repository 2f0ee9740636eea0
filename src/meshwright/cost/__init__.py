"""What it costs: memory, time, money, each a tree of named terms."""
