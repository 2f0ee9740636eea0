"""Ways to run one module over the tp mesh that torch.distributed.tensor.parallel has no style for.

They keep weights as DTensors, so that checkpoints, clipping and FSDP2 see what is cut and how, and
compute on plain local tensors. A weight that is whole on every rank but saw other tokens or other
heads on each has a gradient of which every rank holds one summand: a DTensor with the placement
`Partial`, which `reduce_gradients` (or FSDP2) sums once a step. Summing it in a hook after every
micro-batch would count the first micro-batches several times.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.placement_types import Placement


class LocalWeights(ParallelStyle):
    """Runs a module on its own part of every weight, input and output being local tensors.

    With `placement` Replicate every rank uses the whole weight on tokens or heads of its own; with
    Shard(0) the rows of a product (or a number a head) are cut, and the gradient of its input is
    one summand of it. Only parameters of the module itself are meant, not those of its children.
    """

    def __init__(self, placement: Placement | None = None) -> None:
        self.placement = placement or Replicate()

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        distribute(module, device_mesh, self.placement)
        gradient = Partial() if isinstance(self.placement, Replicate) else self.placement
        module.forward = partial(_on_local_weights, module, module.forward, gradient)
        return module


def distribute(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    """Makes DTensors of a module's own parameters; every rank has them whole (or on meta)."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        cut = distribute_tensor(parameter.data, mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(cut, parameter.requires_grad))


def _on_local_weights(
    module: nn.Module, forward: Any, gradient: Placement, *args: Any, **kwargs: Any
) -> Any:
    """`forward` with the local parts of the weights in the place of the DTensors."""
    parts = {
        name: weight.to_local(grad_placements=[gradient])
        for name, weight in module.named_parameters(recurse=False)
        if isinstance(weight, DTensor)
    }
    with _in_place_of(module, parts):
        return forward(*args, **kwargs)


@contextmanager
def _in_place_of(module: nn.Module, parts: Mapping[str, Tensor]) -> Iterator[None]:
    """Lets a module find `parts` where its parameters are, as torch.func.functional_call does."""
    weights = {name: module._parameters[name] for name in parts}
    module._parameters.update(parts)
    try:
        yield
    finally:
        module._parameters.update(weights)


class LatentParallel(ParallelStyle):
    """A projection to a small latent, whole on every rank, of this rank's tokens.

    Its input is the DTensor that the attention module was given, its output a local tensor of the
    whole sequence, gathered where the sequence is cut: the latent is smaller than what it is made
    of. Each rank's gradient of the output is that of its own heads, one summand.
    """

    def __init__(self, *, sequence_parallel: bool) -> None:
        self.sequence_parallel = sequence_parallel

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        LocalWeights()._apply(module, device_mesh)
        module.register_forward_pre_hook(self._take)
        if self.sequence_parallel:
            module.register_forward_hook(partial(self._gather, device_mesh))
        return module

    def _take(self, _: nn.Module, inputs: tuple[DTensor, ...]) -> tuple[Tensor, ...]:
        gradient = Shard(1) if self.sequence_parallel else Partial()
        return (inputs[0].to_local(grad_placements=[gradient]), *inputs[1:])

    @staticmethod
    def _gather(mesh: DeviceMesh, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        cut = DTensor.from_local(output, mesh, [Shard(1)], run_check=False)
        whole: Tensor = cut.redistribute(placements=[Replicate()]).to_local(
            grad_placements=[Partial()]
        )
        return whole


class WideNorm(ParallelStyle):
    """A norm over all heads, of which each rank has some: its mean is taken over all ranks."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        distribute(module, device_mesh, Shard(0))
        module.register_forward_pre_hook(partial(self._enter, device_mesh))
        module.register_forward_hook(self._leave)
        return module

    @staticmethod
    def _enter(mesh: DeviceMesh, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[DTensor]:
        last = Shard(inputs[0].ndim - 1)
        return (DTensor.from_local(inputs[0], mesh, [last], run_check=False),)

    @staticmethod
    def _leave(_: nn.Module, __: Any, output: DTensor) -> Tensor:
        last = Shard(output.ndim - 1)
        local: Tensor = output.redistribute(placements=[last]).to_local()
        return local


class VocabularyParallel(LocalWeights):
    """An embedding cut by rows: every rank looks its own tokens up, and the sum is the whole.

    torch's RowwiseParallel does the same, but leaves the gradient of the whole vocabulary on every
    rank (torch 2.13, torch/distributed/tensor/_ops/_embedding_ops.py: no strategy cuts it).
    """

    def __init__(self, *, output: Placement) -> None:
        super().__init__(Shard(0))
        self.output = output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        rows = module.weight.to_local().shape[0]
        first = -(-module.weight.shape[0] // device_mesh.size()) * device_mesh.get_local_rank()
        padding = module.padding_idx
        if padding is not None:  # its row gets no gradient
            module.padding_idx = padding - first if first <= padding < first + rows else None
        module.forward = partial(
            self._look_up, device_mesh, module.forward, range(first, first + rows)
        )
        return module

    def _look_up(self, mesh: DeviceMesh, forward: Any, rows: range, tokens: Tensor) -> Tensor:
        elsewhere = (tokens < rows.start) | (tokens >= rows.stop)
        found = forward(torch.where(elsewhere, 0, tokens - rows.start))
        mine = found.masked_fill(elsewhere.unsqueeze(-1), 0)
        parts = DTensor.from_local(mine, mesh, [Partial()], run_check=False)
        whole: Tensor = parts.redistribute(placements=[self.output]).to_local()
        return whole


class OwnTokens(LocalWeights):
    """A whole embedding on every rank, which looks up this rank's slice of the sequence."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        super()._apply(module, device_mesh)
        module.register_forward_pre_hook(partial(self._slice, device_mesh))
        return module

    @staticmethod
    def _slice(mesh: DeviceMesh, _: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor]:
        return (inputs[0].chunk(mesh.size(), dim=1)[mesh.get_local_rank()],)


class PartsParallel(ColwiseParallel):
    """A product that makes several things at once (q, k and v; gate and up), each cut by outputs.

    Weights are cut by rows in their own order, as they lie in a checkpoint, so a rank computes
    outputs that belong to others; they change places in an all-to-all. `sizes` are the outputs of
    each part, every one a multiple of the mesh's size.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        module = super()._apply(module, device_mesh)
        count, rank = device_mesh.size(), device_mesh.get_local_rank()
        wanted = [_rows_of(self.sizes, count, r) for r in range(count)]
        width = sum(self.sizes) // count
        held = range(rank * width, (rank + 1) * width)
        sent = [[row - held.start for row in rows if row in held] for rows in wanted]
        received = [
            sum(r * width <= row < (r + 1) * width for row in wanted[rank]) for r in range(count)
        ]
        exchange = partial(_exchanged, device_mesh, sent, received)
        module.register_forward_hook(lambda _, __, output: exchange(output))
        return module


def _rows_of(sizes: Sequence[int], count: int, rank: int) -> list[int]:
    """Outputs that rank `rank` of `count` needs, in order: its share of every part."""
    rows: list[int] = []
    start = 0
    for size in sizes:
        share = size // count
        rows += range(start + rank * share, start + (rank + 1) * share)
        start += size
    return rows


def _exchanged(
    mesh: DeviceMesh, sent: list[list[int]], received: list[int], output: Tensor
) -> Tensor:
    """[..., width] outputs by owner: those held here go out, those wanted come in, in order."""
    order = torch.tensor([row for rows in sent for row in rows], device=output.device)
    outgoing = output.movedim(-1, 0).index_select(0, order)
    incoming = all_to_all(outgoing, [len(rows) for rows in sent], received, mesh)
    return incoming.movedim(0, -1).contiguous()


def all_to_all(
    tensor: Tensor, sent: Sequence[int], received: Sequence[int], mesh: DeviceMesh
) -> Tensor:
    """Exchanges slices of dim 0, differentiably; `sent` and `received` count them by rank."""
    answer: Tensor = _AllToAll.apply(tensor, list(sent), list(received), mesh.get_group())
    return answer


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: Tensor, sent: list[int], received: list[int], group: Any
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _all_to_all(tensor, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        back = _all_to_all(gradients[0].contiguous(), ctx.received, ctx.sent, ctx.group)
        return back, None, None, None


def _all_to_all(tensor: Tensor, sent: list[int], received: list[int], group: Any) -> Tensor:
    answer = tensor.new_empty((sum(received), *tensor.shape[1:]))
    torch.distributed.all_to_all_single(answer, tensor, received, sent, group=group)
    return answer
