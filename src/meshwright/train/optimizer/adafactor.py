"""Adafactor (arXiv 1804.04235): second moments of matrices as a row and a column of statistics.

The sums behind them go over ranks where a matrix is cut; a statistic lies as its matrix does along
the dims that it keeps, and is whole along the other one, so that checkpoints read it like any
parameter. Sums of all parameters travel together: three small exchanges a step and axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor, Replicate

from meshwright.base.noun import dataclass
from meshwright.train.adapters.placements import cut_dim
from meshwright.train.model.share import part_of
from meshwright.train.optimizer.sums import summed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

DECAY, LEAST_SCALE = -0.8, 1e-3  # beta2_decay and eps2 of torch.optim.Adafactor (torch 2.13)


@dataclass(frozen=True, kw_only=True)
class Item:
    """A parameter at work: local parts, and by dim the groups that it is cut over.

    `newest` is the weight of this step's squares, `rho` the largest relative step.
    """

    parameter: nn.Parameter
    states: dict[str, Any]
    cuts: dict[int, tuple[Any, ...]]
    newest: float
    rho: float

    @property
    def weight(self) -> Tensor:
        """This rank's part of the parameter."""
        return part_of(self.parameter)

    @property
    def gradient(self) -> Tensor:
        """This rank's part of the gradient, in the format of the statistics."""
        return part_of(self.parameter.grad).to(wide(self.parameter))

    @property
    def is_factored(self) -> bool:
        """Whether it has rows and columns."""
        return bool(self.parameter.ndim > 1)

    @property
    def everywhere(self) -> tuple[Any, ...]:
        """The groups over which the whole parameter lies."""
        return tuple(group for groups in self.cuts.values() for group in groups)

    def over(self, dim: int) -> tuple[Any, ...]:
        """The groups over which a dim (counted from the end) is cut."""
        return self.cuts.get(self.parameter.ndim + dim, ())


class Adafactor(torch.optim.Optimizer):
    """torch.optim.Adafactor (torch 2.13, beta2_decay -0.8, d 1) over parameters cut in any way.

    Statistics are at least fp32. All ranks that hold parts of a parameter step together.
    """

    def __init__(self, params: Iterable[dict[str, Any]], *, lr: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self) -> None:
        """Updates every parameter that has a gradient."""
        chosen = [
            (p, group) for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        items = [self._item(p, float(group["lr"])) for p, group in chosen]
        scales = _scales(items)
        for parameter, group in chosen:
            if group["weight_decay"]:
                part_of(parameter).mul_(1 - float(group["lr"]) * group["weight_decay"])
        _take_squares(items)
        means = _row_means(items)
        for item, mean, factor in zip(items, means, _factors(items, means, scales), strict=True):
            item.weight.sub_((_update(item, mean) * factor).to(item.weight.dtype))

    def _item(self, parameter: nn.Parameter, lr: float) -> Item:
        states = self.state[parameter]
        if not states:
            states.update(_first_states(parameter))
        states["step"] += 1
        step = states["step"]
        return Item(
            parameter=parameter,
            states=states,
            cuts=_cuts(parameter),
            newest=step**DECAY,
            rho=min(lr, step**-0.5),
        )


def wide(parameter: Tensor) -> torch.dtype:
    """What statistics of a parameter are kept in."""
    return torch.promote_types(parameter.dtype, torch.float32)


def _first_states(parameter: nn.Parameter) -> dict[str, Any]:
    if parameter.ndim < 2:
        return {"step": 0, "variance": torch.zeros_like(parameter, dtype=wide(parameter))}
    return {
        "step": 0,
        "row_var": _statistic(parameter, without=parameter.ndim - 1),
        "col_var": _statistic(parameter, without=parameter.ndim - 2),
    }


def _statistic(parameter: nn.Parameter, *, without: int) -> Tensor:
    """Zeros of size 1 along a dim, along the others cut as the parameter is."""
    part = part_of(parameter)
    sizes = [1 if dim == without else size for dim, size in enumerate(part.shape)]
    zeros = torch.zeros(sizes, dtype=wide(parameter), device=part.device)
    if not isinstance(parameter, DTensor):
        return zeros
    shape = [1 if dim == without else size for dim, size in enumerate(parameter.shape)]
    placements = [
        Replicate() if cut_dim(placement, parameter.ndim) == without else placement
        for placement in parameter.placements
    ]
    return DTensor.from_local(
        zeros,
        parameter.device_mesh,
        placements,
        run_check=False,
        shape=torch.Size(shape),
        stride=torch.empty(shape, device="meta").stride(),
    )


def _cuts(parameter: Any) -> dict[int, tuple[Any, ...]]:
    """The process groups by the dim that they cut."""
    found: dict[int, tuple[Any, ...]] = {}
    if isinstance(parameter, DTensor):
        mesh = parameter.device_mesh
        for axis, placement in enumerate(parameter.placements):
            dim = cut_dim(placement, parameter.ndim)
            if dim is not None and mesh.size(axis) > 1:
                found[dim] = (*found.get(dim, ()), mesh.get_group(axis))
    return found


def _scales(items: list[Item]) -> list[Tensor]:
    """The absolute step of each parameter: its root mean square times rho."""
    squares = [i.weight.to(wide(i.weight)).square().sum() for i in items]
    whole = summed([(s, i.everywhere) for s, i in zip(squares, items, strict=True)])
    return [
        (square / item.parameter.numel()).sqrt().clamp(min=LEAST_SCALE) * item.rho
        for square, item in zip(whole, items, strict=True)
    ]


def _take_squares(items: list[Item]) -> None:
    """Moves statistics towards the squares of this step's gradients."""
    factored = [item for item in items if item.is_factored]
    sums = []
    for item in factored:
        gradient = item.gradient
        for dim in (-1, -2):
            norm = torch.linalg.vector_norm(gradient, dim=dim, keepdim=True)
            sums.append((norm.square(), item.over(dim)))
    whole = iter(summed(sums))
    for item in factored:
        for name, dim in (("row_var", -1), ("col_var", -2)):
            mean = next(whole) / item.parameter.shape[dim]
            part_of(item.states[name]).lerp_(mean, item.newest)
    for item in items:
        if not item.is_factored:
            part_of(item.states["variance"]).lerp_(item.gradient.square(), item.newest)


def _row_means(items: list[Item]) -> list[Tensor | None]:
    """The mean of the row statistics of each matrix, None for vectors."""
    sums = [
        (part_of(i.states["row_var"]).sum(-2, keepdim=True), i.over(-2))
        for i in items
        if i.is_factored
    ]
    whole = iter(summed(sums))
    return [next(whole) / i.parameter.shape[-2] if i.is_factored else None for i in items]


def _update(item: Item, mean: Tensor | None) -> Tensor:
    """This rank's part of the gradient over the root of its estimated second moment."""
    epsilon = torch.finfo(item.parameter.dtype).eps
    if mean is None:
        estimate = part_of(item.states["variance"]).clone()
    else:
        rows, columns = part_of(item.states["row_var"]), part_of(item.states["col_var"])
        estimate = (rows @ columns).div_(mean.clamp(min=epsilon))
    return estimate.clamp_(min=epsilon**2).rsqrt_().mul_(item.gradient)


def _factors(items: list[Item], means: list[Tensor | None], scales: list[Tensor]) -> list[Tensor]:
    """By what each update is multiplied: its scale, less where it is longer than usual.

    Updates are computed for it and again to be applied: they are as large as the parameters.
    """
    squares = [_update(i, m).square().sum() for i, m in zip(items, means, strict=True)]
    whole = summed([(s, i.everywhere) for s, i in zip(squares, items, strict=True)])
    return [
        scale / (square / item.parameter.numel()).sqrt().clamp(min=1.0)
        for item, square, scale in zip(items, whole, scales, strict=True)
    ]
