"""NCCL's debug logs and PyTorch's memory snapshots."""
