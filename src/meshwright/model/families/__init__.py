"""One file per model family: a Hugging Face configuration to a `Model`."""
