"""What of a model and a plan decides traffic on one rank: formats, layers by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.schedules import Kind, definition_of, operations
from meshwright.cost.schedules.placement import stage_of
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Precision, Schedule
from meshwright.plan.stages import chunk_layers, chunks_per_rank

if TYPE_CHECKING:
    from meshwright.model.architecture import Block, Model
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One stage of the pipeline on this rank: its blocks, its neighbours, its passes in order.

    `passes` is a string of F and B (a weight's backward pass alone is none). `sends_*` say whether
    the neighbouring stage lies on another rank.
    """

    index: int
    blocks: tuple[Block, ...]
    is_first: bool
    is_last: bool
    passes: str
    sends_forward: bool
    sends_backward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Bytes of an element: kept by the optimizer, computed with, reduced."""

    kept: int
    compute: int
    reduce: int

    @property
    def mixed(self) -> bool:
        """Whether FSDP2 casts."""
        return self.compute != self.kept or self.reduce != self.kept


def widths_of(plan: Plan) -> Widths:
    """Formats of the engine: what the optimizer updates is FSDP2's sharded parameter."""
    if int(plan.precision) == Precision.FP32:
        return Widths(kept=4, compute=4, reduce=4)
    kept = 4 if plan.master_weights or int(plan.param_bytes) == 4 else 2
    return Widths(kept=kept, compute=2, reduce=4 if int(plan.reduce_bytes) == 4 else 2)


def local_tokens(job: Job) -> int:
    """Tokens of one micro-batch on one rank of its context-parallel group."""
    rows = int(job.plan.micro_batch_size)
    return rows * (job.workload.seq_len // int(job.plan.cp))


def chunks_of(job: Job, rank: int) -> tuple[Chunk, ...]:
    """The stages of pipeline rank `rank`, in the order of the model."""
    plan, blocks = job.plan, job.model.layers
    counts = chunk_layers(job.model, plan)
    starts = [sum(counts[:i]) for i in range(len(counts) + 1)]
    placement = definition_of(int(plan.schedule), vpp=int(plan.vpp)).placement
    pp, each = int(plan.pp), int(chunks_per_rank(plan))
    held = {int(stage_of(placement, pp=pp, rank=rank, chunk=c)): c for c in range(each)}
    passes = _passes(job, rank)
    return tuple(
        Chunk(
            index=index,
            blocks=blocks[starts[index] : starts[index + 1]],
            is_first=index == 0,
            is_last=index == len(counts) - 1,
            passes=passes[held[index]],
            sends_forward=index + 1 < len(counts) and index + 1 not in held,
            sends_backward=index > 0 and index - 1 not in held,
        )
        for index in sorted(held)
    )


def _passes(job: Job, rank: int) -> dict[int, str]:
    """Forward and backward passes of every chunk of a rank, in order.

    Of interleaved zero-bubble schedules, which the simulator has not, any order does: they keep
    parameters gathered.
    """
    plan, count = job.plan, int(num_microbatches(job))
    pp, each = int(plan.pp), int(chunks_per_rank(plan))
    if pp == 1 and each == 1:
        return {0: "FB" * count}
    rows = operations(
        Schedule(int(plan.schedule)), pp=pp, vpp=int(plan.vpp), num_microbatches=count
    )
    passes = dict.fromkeys(range(each), "")
    for operation in rows[rank]:
        if Kind(operation.kind) is Kind.FORWARD:
            passes[operation.chunk] += "F"
        elif Kind(operation.kind) is not Kind.WEIGHT:
            passes[operation.chunk] += "B"
    return {chunk: order or "FB" * count for chunk, order in passes.items()}


def layers_of(model: Model, chunk: Chunk) -> list[tuple[Block, int]]:
    """The kinds of block of a chunk, and how many of each."""
    return [(k, n) for k in model.kinds if (n := sum(1 for b in chunk.blocks if b == k))]
