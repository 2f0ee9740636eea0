"""A routed block of a tiny model, alone on one process and spread over ranks: shared by tests."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from meshwright.train.mesh import Mesh
from meshwright.train.model.tiny import tiny_config
from meshwright.train.parallel import expert
from meshwright.train.verify.islands import wide

FAMILIES = ("qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "glm4_moe")
ROWS, LENGTH = 8, 8


def block_of(family: str, *, dtype: torch.dtype = torch.float64, **changes: Any) -> nn.Module:
    """The first routed block of a tiny model of the family, with weights that matter."""
    from transformers import AutoModelForCausalLM

    config = tiny_config(family, layers=2, **changes)
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config)
    block = model.model.layers[-1].mlp
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in (*block.parameters(), *block.buffers()):
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.3)
    return block.to(dtype).train()


def batches(count: int, *, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Inputs and gradients of outputs of micro-batches: [count, rows, length, hidden]."""
    generator = torch.Generator().manual_seed(7)
    shape = (count, ROWS, LENGTH, 32)
    first, second = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in "ab")
    return first.to(dtype), second.to(dtype)


def run(
    block: nn.Module, inputs: Tensor, slopes: Tensor, *, lifted: bool = True
) -> tuple[Tensor, Tensor]:
    """Outputs and gradients of inputs of every micro-batch; gradients add up in the block."""
    pairs = [_once(block, x, slope, lifted) for x, slope in zip(inputs, slopes, strict=True)]
    return torch.stack([y for y, _ in pairs]), torch.stack([g for _, g in pairs])


def _once(block: nn.Module, x: Tensor, slope: Tensor, lifted: bool) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    with wide() if lifted else nullcontext():
        y = block(x)
        y = y[0] if isinstance(y, tuple) else y
        y.backward(slope)
    assert x.grad is not None
    return y.detach(), x.grad


def reference(family: str, count: int, **changes: Any) -> dict[str, Tensor]:
    """Outputs, input gradients and every weight's gradient on one process, by transformers."""
    block = block_of(family, **changes)
    y, gradient = run(block, *batches(count))
    return {"output": y, "input": gradient} | {n: p.grad for n, p in block.named_parameters()}


def spread(
    block: nn.Module, count: int, mesh: Mesh, *, recompute: bool = False
) -> dict[str, Tensor]:
    """The same on the ranks of a mesh, whole on every rank."""
    expert.apply(block, mesh)  # type: ignore[arg-type]
    if recompute:
        checkpoint_block(block)
    y, gradient = run(block, *(own(t, mesh) for t in batches(count)))
    of_experts = {id(p) for m in expert.expert_modules(block) for p in m.parameters()}
    whole = {"output": whole_rows(y, mesh), "input": whole_rows(gradient, mesh)}
    for name, p in block.named_parameters():
        axes = ("efsdp", "dp_replicate") if id(p) in of_experts else ("batch",)
        whole[name] = summed(p.grad, mesh, axes)
    return whole


def checkpoint_block(block: nn.Module) -> None:
    """Has the block's forward run again in the backward pass."""
    forward = block.forward
    block.forward = lambda x: checkpoint(forward, x, use_reentrant=False)


def own(tensor: Tensor, mesh: Mesh) -> Tensor:
    """This rank's rows and positions of [count, rows, length, hidden]."""
    rows = tensor.chunk(mesh.dp_size, dim=1)[mesh.dp_rank]
    return rows.chunk(mesh.size("cp"), dim=2)[mesh.rank("cp")].contiguous()


def whole_rows(tensor: Tensor, mesh: Mesh) -> Tensor:
    """What `own` cut, put together."""
    parts = [torch.empty_like(tensor) for _ in range(mesh.size("batch"))]
    dist.all_gather(parts, tensor.contiguous(), group=mesh.group("batch"))
    cp = mesh.size("cp")
    rows = [torch.cat(parts[i : i + cp], dim=2) for i in range(0, len(parts), cp)]
    return torch.cat(rows, dim=1)


def summed(gradient: Any, mesh: Mesh, axes: tuple[str, ...]) -> Tensor:
    """A gradient summed over axes, then put together from the ranks that hold its parts."""
    local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
    local = local.clone()
    for axis in axes:
        dist.all_reduce(local, group=mesh.group(axis))
    if not isinstance(gradient, DTensor):
        return local
    again = DTensor.from_local(
        local,
        gradient.device_mesh,
        gradient.placements,
        shape=gradient.shape,
        stride=gradient.stride(),
    )
    return again.full_tensor()


def differences(wanted: dict[str, Tensor], got: dict[str, Tensor]) -> dict[str, float]:
    """Largest difference of each tensor, relative to its largest element."""
    assert set(wanted) == set(got)
    return {
        n: float((got[n] - wanted[n]).abs().max() / wanted[n].abs().max().clamp(min=1e-30))
        for n in wanted
    }
