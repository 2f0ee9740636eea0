"""Data parallelism: partitioning, synchronization, loading and storage (DAT)."""
