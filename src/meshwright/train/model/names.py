"""Canonical names: those that transformers gives the parameters of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn


def name_in(module: nn.Module, name: str) -> str:
    """The canonical name of a parameter or buffer of a stage, or of a plain (wrapped) model."""
    from meshwright.train.stage import canonical_name, shared_name

    return shared_name(module, name) if hasattr(module, "place") else canonical_name(name)


def names_of(modules: Iterable[nn.Module]) -> dict[Any, str]:
    """The canonical name of every parameter."""
    return {p: name_in(m, name) for m in modules for name, p in m.named_parameters()}
