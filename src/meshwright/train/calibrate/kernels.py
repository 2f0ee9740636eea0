"""Matrix products and attention on one rank, in the shapes that training has them."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from meshwright.base.noun import dataclass
from meshwright.train.attention.core import in_order
from meshwright.train.attention.function import attention
from meshwright.train.attention.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from meshwright.train.calibrate.timing import Clock

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# tokens, outputs, inputs of a linear layer; on a GPU each is EIGHTFOLD
SHAPES = (
    *((8, 256, 256), (32, 256, 512), (64, 64, 64), (64, 512, 512), (64, 1536, 512)),
    *((128, 128, 256), (128, 384, 384), (128, 1024, 384), (128, 384, 1024), (128, 4096, 256)),
    *((256, 256, 256), (256, 512, 512), (256, 512, 1536), (256, 128, 768), (256, 2048, 512)),
    *((512, 64, 384), (512, 384, 384), (512, 1024, 384), (512, 512, 1536), (512, 4096, 384)),
    *((1024, 256, 256), (1024, 768, 768), (1024, 384, 1024), (1024, 2048, 512), (2048, 128, 512)),
    *((2048, 512, 512), (2048, 1536, 512), (2048, 384, 2048), (1024, 8192, 384)),
)
QUICK_SHAPES = SHAPES[1::3]
# batch, query heads, key and value heads, tokens, head size
ATTENTIONS = (
    *((1, 2, 2, 64, 32), (1, 4, 4, 128, 64), (4, 4, 4, 128, 64), (2, 4, 4, 256, 32)),
    *((1, 6, 6, 256, 64), (4, 6, 2, 256, 64), (1, 8, 4, 512, 64), (2, 8, 8, 512, 64)),
    *((4, 8, 8, 512, 64), (1, 4, 4, 1024, 64), (2, 4, 4, 512, 128), (8, 8, 8, 128, 64)),
    *((1, 8, 8, 1024, 128),),
)
QUICK_ATTENTIONS = ATTENTIONS[1::2]
EIGHTFOLD = 8
WALKED = 2**23  # weights between two uses of the same one: more than caches hold
KEPT_BYTES = 31 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Seconds of one m x k by k x n product."""

    m: int
    n: int
    k: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """Seconds of one causal attention, and of the same over tiles as context parallelism has it."""

    batch: int
    heads: int
    kv_heads: int
    tokens: int
    head_dim: int
    forward_s: float
    backward_s: float
    tiled_s: float  # forward and backward


def settle(device: str) -> None:
    """Brings the allocator into the state that it has in training.

    glibc takes what it once freed for the size below which memory is kept at hand, up to 32 MiB
    (mallopt(3), M_MMAP_THRESHOLD): a first large tensor makes all later ones cheaper.
    """
    for _ in range(2):
        torch.empty(KEPT_BYTES, dtype=torch.uint8, device=device).fill_(0)


def products(clock: Clock, precision: str, *, quick: bool) -> list[Product]:
    """The three products of a linear layer, forward, input gradient and weight gradient."""
    scale = 1 if clock.device == "cpu" else EIGHTFOLD
    found = []
    for tokens, outputs, inputs in QUICK_SHAPES if quick else SHAPES:
        found += _linear(clock, precision, tokens * scale, outputs * scale, inputs * scale)
    return found


def _linear(clock: Clock, precision: str, m: int, n: int, k: int) -> list[Product]:
    """Operands lie in memory as autograd hands them to the library.

    A pass walks through all layers, so that weights and saved inputs come from memory and not from
    a cache.
    """
    x, gradient = (
        _random(*shape, precision=precision, device=clock.device) for shape in ((m, k), (m, n))
    )
    weights = _walk(n, k, precision=precision, device=clock.device)
    forward_s = clock.seconds(lambda: functional.linear(x, next(weights)))
    backward_s = clock.seconds(lambda: gradient @ next(weights))
    saved = _walk(m, k, precision=precision, device=clock.device)
    weight_s = clock.seconds(lambda: gradient.t() @ next(saved))
    return [
        Product(m=m, n=n, k=k, seconds=forward_s),
        Product(m=m, n=k, k=n, seconds=backward_s),
        Product(m=k, n=n, k=m, seconds=weight_s),
    ]


def _walk(rows: int, columns: int, *, precision: str, device: str) -> Iterator[Tensor]:
    """Equal tensors by turns, more than a cache holds."""
    count = max(WALKED // (rows * columns), 1)
    return cycle([_random(rows, columns, precision=precision, device=device) for _ in range(count)])


def attentions(clock: Clock, precision: str, *, quick: bool) -> list[Attended]:
    """Causal attention as a layer of the engine calls it, forward and backward."""
    scale = 1 if clock.device == "cpu" else EIGHTFOLD
    shapes = QUICK_ATTENTIONS if quick else ATTENTIONS
    return [
        _attended(clock, precision, (b, h, kv, s * scale, min(d, 128))) for b, h, kv, s, d in shapes
    ]


def _attended(clock: Clock, precision: str, shape: tuple[int, int, int, int, int]) -> Attended:
    batch, heads, kv_heads, tokens, head_dim = shape

    def rows(count: int) -> Tensor:
        made = _random(batch, tokens, count, head_dim, precision=precision, device=clock.device)
        return made.transpose(1, 2).requires_grad_()

    query, key, value = rows(heads), rows(kv_heads), rows(kv_heads)
    layer = nn.Identity()

    def forward() -> Tensor:
        return attention(layer, query, key, value, None)[0]

    def tiled() -> Tensor:
        rule = Rule(scaling=head_dim**-0.5)
        return in_order(query, key, value, rule=rule, want_lse=True)[0]

    forward_s, backward_s = both_passes(clock, forward, (query, key, value))
    tiled_s = sum(both_passes(clock, tiled, (query, key, value)))
    return Attended(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        tokens=tokens,
        head_dim=head_dim,
        forward_s=forward_s,
        backward_s=backward_s,
        tiled_s=tiled_s,
    )


def both_passes(
    clock: Clock, call: Callable[[], Tensor], inputs: tuple[Tensor, ...]
) -> tuple[float, float]:
    """Seconds of a differentiable call, and of its gradients for `inputs`."""
    forward_s = clock.seconds(call)
    out = call()
    gradient = torch.randn_like(out)
    backward_s = clock.seconds(
        lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)
    )
    return forward_s, backward_s


def _random(*shape: int, precision: str, device: str) -> Tensor:
    return torch.randn(*shape, device=device, dtype=DTYPES[precision])
