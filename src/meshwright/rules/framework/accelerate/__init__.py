"""What accelerate demands. Programs on top of it (axolotl, trl, LLaMA-Factory) meet the same."""
