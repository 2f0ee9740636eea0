"""First values of parameters: a function of seed and name alone, whatever the layout.

A parameter is cut into blocks of whole rows. Each block has a random stream of its own (Philox,
keyed by seed, name and number of the block), and a rank draws only the blocks that it holds some
of, one at a time: under FSDP that is its share and no more. Values are drawn in float32 by the
family's own scheme (transformers' `_init_weights`), then cast.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from meshwright.base.errors import MeshwrightError
from meshwright.train.adapters.initialization import initialize_buffers, recipes_of
from meshwright.train.adapters.lora import first_value, is_adapter
from meshwright.train.model.names import name_in
from meshwright.train.model.share import boxes_of, part_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor, nn

    from meshwright.train.adapters.initialization import Operation, Recipe
    from meshwright.train.model.share import Box

BLOCK = 1 << 20  # elements of a block of several rows; changing it changes every first value


def initialize(
    modules: Iterable[nn.Module], config: Any, *, seed: int, device: torch.device | str
) -> None:
    """Fills parameters and buffers of a rank's stages, on meta or empty, in their own types.

    `config` is the transformers configuration of the whole model. Stages on meta get memory on
    `device` first. MeshwrightError for a parameter that the family's model has not, or starts in a
    way that cannot be done in parts.
    """
    recipes = recipes_of(config)
    for module in modules:
        materialize(module, device=device)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                known = name_in(module, name)
                fill(parameter, _recipe(recipes, known, parameter), seed=seed, name=known)
        fill_buffers(module)


def materialize(module: nn.Module, *, device: torch.device | str) -> None:
    """Takes memory for what is on meta; weights that were one stay one (`to_empty` parts them)."""
    if not any(t.is_meta for t in itertools.chain(module.parameters(), module.buffers())):
        return
    places: dict[Any, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        places[parameter].append(name)
    module.to_empty(device=device)
    for first, *others in places.values():
        for name in others:
            owner, _, last = name.rpartition(".")
            setattr(module.get_submodule(owner), last, module.get_parameter(first))


def fill_buffers(module: nn.Module) -> None:
    """Computes the buffers of a stage, or of a model; an error if one is left without a value."""
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.fill_(torch.nan)
    initialize_buffers(getattr(module, "lm", module))
    for name, buffer in module.named_buffers():
        if buffer.is_floating_point() and buffer.isnan().any():
            raise MeshwrightError(f"the family gives the buffer {name} no value")


def _recipe(recipes: dict[str, Recipe], name: str, parameter: Tensor) -> Recipe:
    recipe = first_value(name, parameter) if is_adapter(name) else recipes.get(name)
    if recipe is None:
        raise MeshwrightError(f"the model's configuration has no parameter {name}")
    if recipe.shape != tuple(parameter.shape):
        shapes = f"{list(parameter.shape)}, in the model {list(recipe.shape)}"
        raise MeshwrightError(f"{name} is {shapes}")
    return recipe


def fill(parameter: Tensor, recipe: Recipe, *, seed: int, name: str) -> None:
    """Writes this rank's part of a parameter."""
    part = part_of(parameter)
    constant = _constant(recipe)
    if constant is not None:
        part.fill_(constant)
        return
    columns = recipe.shape[-1] if recipe.shape else 1
    rows = max(BLOCK // max(columns, 1), 1)
    last: tuple[int, Tensor] | None = None
    for box in boxes_of(parameter):
        for first, view in _slabs(box, box.of(part), recipe.shape):
            start = box.start[-1] if box.start else 0
            for number, inside, outside in _pieces(first, view.shape[0], rows):
                if last is None or last[0] != number:
                    last = (number, _block(recipe, number, rows=rows, seed=seed, name=name))
                values = last[1][inside, start : start + view.shape[1]]
                view[outside].copy_(values)


def _constant(recipe: Recipe) -> float | None:
    """The one value of a parameter that is not drawn, as a norm's."""
    step = recipe.operations[-1]
    if step.row is not None:
        return None
    if step.name == "zero_":
        return 0.0
    return float(step.arguments[0]) if step.name == "fill_" else None


def _slabs(box: Box, view: Tensor, shape: tuple[int, ...]) -> Iterator[tuple[int, Tensor]]:
    """A box as matrices: the number of the first row in the whole tensor, and the view."""
    if len(shape) < 2:
        yield 0, view.reshape(1, -1)
        return
    leading = shape[:-2]
    for place in itertools.product(*(range(n) for n in box.size[:-2])):
        at = tuple(s + p for s, p in zip(box.start[:-2], place, strict=True))
        slab = int(np.ravel_multi_index(at, leading)) if leading else 0
        yield slab * shape[-2] + box.start[-2], view[place]


def _pieces(first: int, count: int, rows: int) -> Iterator[tuple[int, slice, slice]]:
    """Blocks that hold the rows from `first` on: number, rows inside of it, rows of the view."""
    for number in range(first // rows, (first + count - 1) // rows + 1):
        start, end = max(number * rows, first), min((number + 1) * rows, first + count)
        yield (
            number,
            slice(start - number * rows, end - number * rows),
            slice(start - first, end - first),
        )


def _block(recipe: Recipe, number: int, *, rows: int, seed: int, name: str) -> Tensor:
    """Block `number` of a parameter, [rows, columns] float32."""
    columns = recipe.shape[-1] if recipe.shape else 1
    total = prod(recipe.shape[:-1])
    first, count = number * rows, min(rows, total - number * rows)
    key = hashlib.blake2b(f"{seed}\0{name}\0{number}".encode(), digest_size=16).digest()
    draw = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
    values = torch.empty(count, columns)
    for step in recipe.operations:
        if step.row is None:
            _do(step, values, draw)
        elif first <= step.row < first + count and len(recipe.shape) == 2:
            _do(step, values[step.row - first], draw)
    return values


def _do(step: Operation, values: Tensor, draw: np.random.Generator) -> None:
    """One operation of a recipe."""
    if step.name == "normal_":
        mean, std = _two(step, (0.0, 1.0))
        values.copy_(torch.from_numpy(draw.standard_normal(values.shape, dtype=np.float32)))
        values.mul_(std).add_(mean)
    elif step.name == "uniform_":
        low, high = _two(step, (0.0, 1.0))
        values.copy_(torch.from_numpy(draw.random(values.shape, dtype=np.float32)))
        values.mul_(high - low).add_(low)
    else:
        getattr(values, step.name)(*step.arguments)


def _two(step: Operation, usual: tuple[float, float]) -> tuple[float, float]:
    """The two numbers of a distribution, as far as they are given."""
    both = [*step.arguments, *usual[len(step.arguments) :]]
    return float(both[0]), float(both[1])
