"""The model itself: transformers' configuration, its first values, weights from files."""
