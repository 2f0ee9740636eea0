"""What a checkpoint holds of a rank: weights and optimizer state under canonical names.

Optimizer state is flat, one tensor for each parameter and kind of state, as torch's
`StateDictOptions(flatten_optimizer_state_dict=True)` has it: a pipeline rank finds its part of what
ranks without a pipeline wrote. It is read from the optimizers themselves and not by
`get_optimizer_state_dict`, which wants one module for all of them, and a state for every parameter:
here are several stages a rank, pairs of optimizers (Muon and AdamW), parameters never touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.train.model.names import named_tensors, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn
    from torch.optim import Optimizer

WEIGHTS, OPTIMIZER, RANDOM = "weights/", "optimizer/", "random/"
Value = bool | int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Parameters of one optimizer with the same options."""

    kind: str  # class of the optimizer
    options: dict[str, Any]  # learning rate, betas, ...: what JSON can hold of them
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Tensors by name. `copies` are further ones that must hold the same (a tied weight's twin).

    `values` are what optimizers keep beside tensors, `groups` what they were told.
    """

    tensors: dict[str, Tensor]
    copies: tuple[tuple[str, Tensor], ...] = ()
    values: dict[str, Value]
    groups: tuple[Group, ...] = ()


def state_of(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer] = ()) -> State:
    """The state of this rank's stages and optimizers; nothing is copied.

    MeshwrightError for an optimizer whose state cannot be told apart by rank.
    """
    modules, optimizers = list(modules), list(optimizers)
    tensors: dict[str, Tensor] = {}
    copies: list[tuple[str, Tensor]] = []
    values: dict[str, Value] = {}
    for module in modules:
        _reshard(module)
        for name, tensor in named_tensors(module):
            _add(tensors, copies, WEIGHTS + name, tensor)
    names = names_of(modules)
    for optimizer in optimizers:
        for name, value in _optimizer_state(optimizer, names):
            if isinstance(value, torch.Tensor):
                _add(tensors, copies, OPTIMIZER + name, value)
            else:
                values[OPTIMIZER + name] = value
    groups = tuple(g for optimizer in optimizers for g in _groups(optimizer, names))
    return State(tensors=tensors, copies=tuple(copies), values=values, groups=groups)


def _add(
    tensors: dict[str, Tensor], copies: list[tuple[str, Tensor]], name: str, tensor: Tensor
) -> None:
    if name in tensors:
        if tensors[name] is not tensor:
            copies.append((name, tensor))
    else:
        tensors[name] = tensor


def _reshard(module: nn.Module) -> None:
    """Lets go of gathered parameters: after an evaluation the root's are still whole."""
    for inner in module.modules():
        if isinstance(inner, FSDPModule):
            inner.reshard()


def _optimizer_state(
    optimizer: Optimizer, names: dict[Any, str]
) -> Iterator[tuple[str, Tensor | Value]]:
    """`NAME/KEY` and the state, for every parameter that has one."""
    for parameter, state in optimizer.state.items():
        name = names.get(parameter)
        if name is None:
            raise MeshwrightError(f"{type(optimizer).__name__} holds a parameter of no stage")
        for key, value in state.items():
            yield f"{name}/{key}", _checked(value, parameter, optimizer, key)


def _checked(value: Any, parameter: Tensor, optimizer: Optimizer, key: str) -> Tensor | Value:
    """The state, if it is of a kind that every layout can read back."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    if isinstance(value, DTensor) or (plain and value.numel() == 1):
        return value
    if plain and not isinstance(parameter, DTensor):
        return value
    raise MeshwrightError(
        f"{type(optimizer).__name__} keeps {key!r} as {type(value).__name__}, which no other "
        "layout could read back",
        hint="use AdamW or Muon, or train without sharding (dp_replicate only)",
    )


def _groups(optimizer: Optimizer, names: dict[Any, str]) -> Iterator[Group]:
    for group in optimizer.param_groups:
        options = {k: _plain(v) for k, v in group.items() if k != "params"}
        yield Group(
            kind=type(optimizer).__name__,
            options={k: v for k, v in options.items() if v is not ...},
            names=tuple(names[p] for p in group["params"] if p in names),
        )


def _plain(value: Any) -> Any:
    """An option as JSON holds it, Ellipsis for what it cannot."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else ...
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return ... if ... in items else items
    return value if value is None or isinstance(value, bool | int | float | str) else ...
