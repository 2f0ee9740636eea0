"""Python configurations read by their syntax tree, never executed."""

from __future__ import annotations

from meshwright.frameworks.text.python.module import parse_python, parse_recipe, recipes

__all__ = ["parse_python", "parse_recipe", "recipes"]
