"""Data parallelism: partitioning, synchronisation, loading (DAT)."""
