"""What DeepSpeed's engine, its ZeRO optimizers and its pipeline demand of a configuration."""
