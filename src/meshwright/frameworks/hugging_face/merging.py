"""A launcher's line and the file it starts from, by the name that the trainer's package uses."""

from meshwright.frameworks.meanings import with_files as whole

__all__ = ["whole"]
