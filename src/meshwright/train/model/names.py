"""Canonical names: those that transformers gives the parameters of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.train.stage import Stage, canonical_name, shared_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn


def name_in(module: nn.Module, name: str) -> str:
    """The canonical name of a parameter or buffer of a stage, or of a plain (wrapped) model."""
    return shared_name(module, name) if isinstance(module, Stage) else canonical_name(name)


def names_of(modules: Iterable[nn.Module]) -> dict[Any, str]:
    """The canonical name of every parameter."""
    return {p: name_in(m, name) for m in modules for name, p in m.named_parameters()}


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and those buffers that files hold (a router's correction, no frequencies)."""
    for name, parameter in module.named_parameters():
        yield name_in(module, name), parameter
    for path, inner in module.named_modules():
        for name, buffer in inner.named_buffers(recurse=False):
            if name not in inner._non_persistent_buffers_set:
                yield name_in(module, f"{path}.{name}" if path else name), buffer
