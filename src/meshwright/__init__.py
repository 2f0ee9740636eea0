"""Plans, checks, runs and diagnoses parallel training of large language models."""
