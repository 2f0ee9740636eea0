"""Compute parallelism: assignment, scheduling, balance (CMP)."""
