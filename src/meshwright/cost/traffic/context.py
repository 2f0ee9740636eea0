"""Context parallelism: keys and values of other ranks, or all tokens of some heads.

Ring (arXiv 2310.01889): keys and values go around, and back with their gradients in fp32.
All-gather (arXiv 2407.21783, section 3.3.2). Ulysses (arXiv 2309.14509).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.layout import layers_of, local_tokens, widths_of
from meshwright.plan.plan import ContextParallel, Recompute, RecomputeModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.cost.traffic.layout import Chunk
    from meshwright.model.architecture import Attention
    from meshwright.plan.job import Job

SOURCE = "train/attention/context/: ring, gather, ulysses"
WIDE = 4  # bytes of the gradients of keys and values that travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One collective of an attention layer: calls forward and backward, bytes of each."""

    part: str
    collective: str
    call_bytes: float
    forward: int = 0
    backward: int = 0


def context(job: Job, chunk: Chunk) -> Iterator[Piece]:
    """What the attention layers of a stage exchange over cp in a step."""
    if int(job.plan.cp) == 1:
        return
    count = chunk.passes.count("F")
    passes = 2 if attention_repeats(job) else 1
    for block, layers in layers_of(job.model, chunk):
        for move in moves(job, block.attention):
            yield Piece(
                axis="cp",
                collective=move.collective,
                part=move.part,
                calls=count * layers * (passes * move.forward + move.backward),
                call_bytes=move.call_bytes,
                formula="micro-batches * layers * calls forward and back * bytes of the heads here",
                source=SOURCE,
            )


def attention_repeats(job: Job) -> bool:
    """Whether recompute runs attention's forward pass again."""
    mode, modules = Recompute(int(job.plan.recompute)), int(job.plan.recompute_modules)
    if mode is Recompute.SELECTIVE:
        again = RecomputeModule.CORE_ATTENTION | RecomputeModule.ALTERNATE_MATMULS
        return bool(RecomputeModule(modules) & again)
    return mode is Recompute.FULL


def moves(job: Job, a: Attention) -> list[Move]:
    """The exchanges of one attention layer and micro-batch."""
    method = ContextParallel(int(job.plan.context_parallel))
    tp, element = int(job.plan.tp), local_tokens(job)
    heads = a.num_attention_heads // tp
    kv = heads if a.is_latent else a.num_key_value_heads // tp
    keys, values = element * kv * a.head_dim, element * kv * a.v_head_dim
    if method is ContextParallel.ULYSSES:
        return _ulysses(job, a, element=element, heads=heads, kv=kv)
    if method is ContextParallel.ALL_GATHER:
        return _gathered(job, keys + values)
    return _ring(job, keys, values)


def _gathered(job: Job, elements: int) -> list[Move]:
    size = int(job.plan.cp) * elements * widths_of(job.plan).compute
    return [
        Move(part="keys_values", collective="all_gather", call_bytes=size, forward=1),
        Move(part="keys_values", collective="reduce_scatter", call_bytes=size, backward=1),
    ]


def _ulysses(job: Job, a: Attention, *, element: int, heads: int, kv: int) -> list[Move]:
    """Keys and values are repeated until the ranks divide their heads."""
    cp, width = int(job.plan.cp), widths_of(job.plan).compute
    wanted = math.lcm(kv, cp)
    held = heads if heads % wanted else wanted
    queries = element * heads * a.head_dim
    pairs = element * held * (a.head_dim + a.v_head_dim)
    output = element * heads * a.v_head_dim
    return [
        Move(
            part="queries_keys_values",
            collective="all_to_all",
            call_bytes=(queries + pairs) * width,
            forward=1,
            backward=1,
        ),
        Move(
            part="outputs",
            collective="all_to_all",
            call_bytes=output * width,
            forward=1,
            backward=1,
        ),
    ]


def _ring(job: Job, keys: int, values: int) -> list[Move]:
    cp, width = int(job.plan.cp), widths_of(job.plan).compute
    found = []
    for collective in ("send", "receive"):
        for part, elements in (("keys", keys), ("values", values)):
            found += [
                Move(
                    part=part,
                    collective=collective,
                    call_bytes=elements * width,
                    forward=cp - 1,
                    backward=cp - 1,
                ),
                Move(
                    part=f"{part}_gradients",
                    collective=collective,
                    call_bytes=elements * WIDE,
                    backward=cp,
                ),
            ]
    return found
