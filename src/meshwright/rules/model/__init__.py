"""Model parallelism: partitioning, sharing, communication (MOD)."""
