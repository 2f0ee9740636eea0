"""What is trained: architectures, parameter and FLOP counts, families and presets."""
