"""Finished shards on disk: Megatron's .bin and .idx, the pack plan, and what is said of them."""
