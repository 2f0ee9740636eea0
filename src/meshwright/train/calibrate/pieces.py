"""What lies between the matrix products, and what the optimizer does: bound by memory and host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

from meshwright.base.noun import dataclass
from meshwright.train.calibrate.kernels import both_passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from meshwright.train.calibrate.timing import Clock

HIDDEN, HEAD_DIM, VOCABULARY = 512, 64, 4096
# elements; 2^23 of 4 bytes are what glibc gives back to the system whenever they are freed
SIZES = (2**13, 2**16, 2**18, 2**20, 2**21, 2**22, 3 * 2**21, 2**23, 2**24)
QUICK_SIZES = (2**13, 2**18, 2**21, 3 * 2**21, 2**23)
TENSOR = 2**20  # parameters in one tensor of the optimizer
COPIED = 2**24  # elements: far more than caches hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of both passes of one piece over so many elements."""

    elements: int
    forward_s: float
    backward_s: float


def pieces(clock: Clock, dtype: torch.dtype, *, quick: bool) -> dict[str, list[Passes]]:
    """Every piece of `hardware.measured.OPERATORS`, over tensors from small to large."""
    makers = {
        "norm": _norm,
        "residual": _residual,
        "rotary": _rotary,
        "gate": _gate,
        "loss": _loss,
        "embedding": _embedding,
        "accumulate": _accumulate,
        "update": _update,
        "fresh": _fresh,
    }
    sizes = QUICK_SIZES if quick else SIZES
    return {name: [make(clock, dtype, size) for size in sizes] for name, make in makers.items()}


def copy_bytes_per_s(clock: Clock) -> float:
    """Bytes read and written each second by a copy that no cache holds."""
    source = torch.randn(COPIED, device=clock.device)
    target = torch.empty_like(source)
    return 2.0 * 4.0 * COPIED / clock.seconds(lambda: target.copy_(source))


def empty_kernel_s(clock: Clock) -> float:
    """Seconds of an elementwise kernel over one element."""
    one = torch.ones(1, device=clock.device)
    return clock.seconds(lambda: torch.mul(one, one, out=one))


def _norm(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    norm = LlamaRMSNorm(HIDDEN).to(clock.device, dtype)
    x = _rows(clock, dtype, elements)
    return _timed(clock, lambda: norm(x), (x, norm.weight), elements)


def _residual(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """A sum in either pass: of the two branches, and of their gradients."""
    x, y = _rows(clock, dtype, elements).detach(), _rows(clock, dtype, elements).detach()
    sum_s = clock.seconds(lambda: x + y)
    return Passes(elements=elements, forward_s=sum_s, backward_s=sum_s)


def _rotary(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """Queries and keys of equally many heads, `elements` of both together."""
    heads = HIDDEN // HEAD_DIM
    tokens = max(elements // (2 * HIDDEN), 1)
    cos, sin = (torch.randn(1, tokens, HEAD_DIM, device=clock.device, dtype=dtype) for _ in "cs")
    query, key = (
        torch.randn(1, tokens, heads, HEAD_DIM, device=clock.device, dtype=dtype)
        .transpose(1, 2)
        .requires_grad_()
        for _ in "qk"
    )

    def turned() -> Tensor:
        return torch.stack(apply_rotary_pos_emb(query, key, cos, sin))

    stacked = torch.stack([query, key]).detach()
    stack_s = clock.seconds(lambda: torch.stack([stacked[0], stacked[1]]))
    passes = _timed(clock, turned, (query, key), elements)
    return Passes(
        elements=elements,
        forward_s=max(passes.forward_s - stack_s, 0.1 * passes.forward_s),
        backward_s=passes.backward_s,
    )


def _gate(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    gate, up = _rows(clock, dtype, elements), _rows(clock, dtype, elements)
    return _timed(clock, lambda: functional.silu(gate) * up, (gate, up), elements)


def _loss(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    tokens = max(elements // VOCABULARY, 1)
    logits = torch.randn(tokens, VOCABULARY, device=clock.device, dtype=dtype).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (tokens,), device=clock.device)

    def loss() -> Tensor:
        return functional.cross_entropy(logits.float(), labels, reduction="sum")

    return _timed(clock, loss, (logits,), tokens * VOCABULARY)


def _embedding(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """A table of few rows, so that clearing its gradient weighs little: that is counted apart."""
    table = nn.Embedding(64, HIDDEN, device=clock.device, dtype=dtype)
    tokens = torch.randint(0, 64, (max(elements // HIDDEN, 1),), device=clock.device)
    return _timed(clock, lambda: table(tokens), (table.weight,), elements)


def _accumulate(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """Adding the gradients of one more micro-batch."""
    total, more = _split(clock, dtype, elements), _split(clock, dtype, elements)

    def add() -> None:
        for mine, other in zip(total, more, strict=True):
            mine.add_(other)

    add_s = clock.seconds(add)
    return Passes(elements=elements, forward_s=add_s, backward_s=add_s)


def _update(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """What `step.train_step` does after the backward pass: norm, clipping, AdamW."""
    parameters = [nn.Parameter(part) for part in _split(clock, dtype, elements)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    adam = torch.optim.AdamW(parameters, fused=True)  # as optimizer.making makes it

    def update() -> None:
        grads = [p.grad for p in parameters]
        norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
        torch._foreach_mul_(grads, (1.0 / (norm + 1.0)).clamp(max=1.0))
        adam.step()

    update_s = clock.seconds(update)
    return Passes(elements=elements, forward_s=update_s, backward_s=update_s)


def _fresh(clock: Clock, dtype: torch.dtype, elements: int) -> Passes:
    """Filling a new tensor, less filling one that is there."""
    held = torch.empty(elements, device=clock.device, dtype=dtype)
    new_s = clock.seconds(lambda: torch.empty_like(held).fill_(0.0))
    fresh_s = max(new_s - clock.seconds(lambda: held.fill_(0.0)), 1e-9)
    return Passes(elements=elements, forward_s=fresh_s, backward_s=fresh_s)


def _split(clock: Clock, dtype: torch.dtype, elements: int) -> list[Tensor]:
    """Tensors of at most TENSOR elements, that many in all."""
    whole = torch.randn(elements, device=clock.device, dtype=dtype)
    return [part.clone() for part in whole.split(TENSOR)]


def _rows(clock: Clock, dtype: torch.dtype, elements: int) -> Tensor:
    shape = (1, max(elements // HIDDEN, 1), HIDDEN)
    return torch.randn(*shape, device=clock.device, dtype=dtype).requires_grad_()


def _timed(
    clock: Clock, call: Callable[[], Tensor], inputs: tuple[Tensor, ...], elements: int
) -> Passes:
    forward_s, backward_s = both_passes(clock, call, inputs)
    return Passes(elements=elements, forward_s=forward_s, backward_s=backward_s)
