"""Attention for transformers' models: documents, windows, sinks, and sequences cut over ranks."""
