"""What the frameworks around Hugging Face share: FSDP's words, DeepSpeed under a trainer, widths.

accelerate, transformers' trainer, LLaMA-Factory and axolotl name the same things differently; each
tells the functions here what its settings mean. No framework is defined in this package.
"""
