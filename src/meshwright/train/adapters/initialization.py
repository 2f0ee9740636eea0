"""How a family draws its first weights, recorded from transformers' own scheme on a meta model.

`PreTrainedModel.initialize_weights` and `_init_weights` are private to transformers (5.24,
modeling_utils.py, initialization.py). They fill whole tensors in place, each by a few elementwise
operations; what is recorded can be done again for any part of a tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.train.model.twin import twin_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

_ELEMENTWISE = frozenset(
    f"aten::{name}_"
    for name in ("normal", "uniform", "zero", "fill", "mul", "add", "sub", "div", "erfinv", "clamp")
)
_VIEWS = frozenset({"aten::detach", "aten::alias"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One in-place operation on a tensor, or on its row `row` alone."""

    name: str  # as aten has it, without "aten::"
    arguments: tuple[Any, ...]
    row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A parameter's whole shape and how it gets its first value."""

    shape: tuple[int, ...]
    operations: tuple[Operation, ...]


def recipes_of(config: Any) -> dict[str, Recipe]:
    """How every parameter of a causal language model starts, by name; tied ones once.

    MeshwrightError for a family that starts one in a way that cannot be done in parts.
    """
    twin = twin_of(config)
    recorder = _Recorder({id(p): name for name, p in twin.named_parameters()})
    for module in twin.modules():
        module._is_hf_initialized = False
    with recorder:
        twin.initialize_weights()
    recipes = {}
    for name, parameter in twin.named_parameters():
        operations = recorder.operations.get(name)
        if not operations or name in recorder.refused:
            how = recorder.refused.get(name, "nothing that its family does on its own")
            raise MeshwrightError(
                f"{config.model_type} starts {name} by {how}",
                hint="start from weights: they need no first values",
            )
        recipes[name] = Recipe(shape=tuple(parameter.shape), operations=tuple(operations))
    return recipes


def initialize_buffers(model: Any) -> None:
    """Gives every buffer of a model its value (rotary frequencies, scales, router corrections).

    Parameters, of whatever kind they are, stay as they are.
    """
    for module in model.modules():
        if not module._buffers or all(b is None for b in module._buffers.values()):
            continue
        stand_in = object.__new__(type(module))  # copy.copy calls FSDP2's constructor
        stand_in.__dict__ = dict(module.__dict__)
        stand_in._parameters = {
            name: None if p is None else torch.nn.Parameter(torch.empty(1, 1, device="meta"))
            for name, p in module._parameters.items()
        }
        with torch.no_grad():
            model._init_weights(stand_in)


class _Recorder(TorchDispatchMode):
    """Notes what is done in place to the tensors in `names`, which has their ids."""

    def __init__(self, names: Mapping[int, str]) -> None:
        super().__init__()
        self.names: dict[int, tuple[str, int | None]] = {i: (n, None) for i, n in names.items()}
        self.operations: dict[str, list[Operation]] = {}
        self.refused: dict[str, str] = {}
        self._views: list[Tensor] = []  # kept, so that no id is given to another one

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        known = self.names.get(id(args[0])) if args else None
        if known is not None:
            self._note(func._schema.name, known, args[1:], kwargs or {}, out=out)
        return out

    def _note(
        self,
        name: str,
        known: tuple[str, int | None],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        *,
        out: Any,
    ) -> None:
        parameter, row = known
        if name in _ELEMENTWISE and _are_numbers((*arguments, *options.values())):
            numbers = tuple(a for a in arguments if a is not None)
            step = Operation(name=name.removeprefix("aten::"), arguments=numbers, row=row)
            self.operations.setdefault(parameter, []).append(step)
        elif name in _VIEWS:
            self._follow(out, known)
        elif name == "aten::select" and row is None and arguments[0] == 0:
            self._follow(out, (parameter, int(arguments[1])))
        elif name.endswith("_") or (isinstance(out, torch.Tensor) and out._is_view()):
            self.refused[parameter] = name

    def _follow(self, view: Tensor, known: tuple[str, int | None]) -> None:
        self._views.append(view)
        self.names[id(view)] = known


def _are_numbers(values: tuple[Any, ...]) -> bool:
    return all(v is None or isinstance(v, bool | int | float) for v in values)
