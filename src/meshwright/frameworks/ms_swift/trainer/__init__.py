"""The arguments of `swift sft` and its kin, on transformers' trainer."""
