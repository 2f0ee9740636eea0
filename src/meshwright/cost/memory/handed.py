"""What torch's pipelining keeps of tensors between stages, and for weight gradients that wait.

A stage has a buffer for what it receives of every micro-batch, forward and backward, all through
the run; it keeps what it sends until the backward pass of that micro-batch. Where the backward pass
is split, the gradients of the products' outputs wait beside the activations, and input gradients
stay in the buffers. Source: torch 2.13, torch/distributed/pipelining/stage.py and _backward.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.fsdp2 import splits_backward
from meshwright.cost.schedules import Kind, definition_of, operations
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Recompute, Schedule
from meshwright.plan.stages import chunks_per_rank, is_v_shaped

if TYPE_CHECKING:
    from meshwright.cost.memory.layer import LayerBytes
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers

STEADY = 4  # micro-batches per rank from which a schedule repeats itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Bytes on one pipeline rank: `buffers` for the run, `kept` per micro-batch in flight beside
    the blocks' own, `waiting` of the outputs' gradients at the fullest moment, `waiting_one` those
    of one micro-batch. `split_share` is the share of the blocks whose backward pass is split."""

    buffers: Any
    kept: Any
    waiting: Any
    waiting_one: Any = 0.0
    split_share: Any = 0.0


def handed(job: Job, layers: LayerBytes, stage: StageLayers, rank: Any) -> Handed:
    """What pipeline rank `rank` keeps of tensors between stages."""
    plan, tensor = job.plan, layers.ends.hand_over
    piped = np.asarray(plan.pp) > 1
    chunks = chunks_per_rank(plan)
    receives = np.where(piped, chunks - stage.embedding, 0)
    sends = np.where(piped, chunks - stage.head, 0)
    split = splits_backward(plan.schedule)
    turn = is_v_shaped(plan.schedule) & (np.asarray(rank) == np.asarray(plan.pp) - 1)
    tensors = receives * np.where(split, 2, 1) + sends - np.where(turn & split, 1, 0)
    full = np.asarray(plan.recompute) == int(Recompute.FULL)
    outputs = [b.outputs * n for b, n in zip(layers.blocks, stage.counts, strict=True)]
    share = np.where(piped & split, (chunks - stage.embedding) / np.maximum(chunks, 1), 0.0)
    one = share * sum(outputs)
    return Handed(
        buffers=num_microbatches(job) * tensors * tensor,
        kept=(sends - np.where(full, receives, 0)) * tensor,  # a received input is in its buffer
        waiting=waiting_weights(job, rank) * one,
        waiting_one=one,
        split_share=share,
    )


def waiting_weights(job: Job, rank: Any) -> Any:
    """Micro-batches whose weight gradients wait when a rank holds most; 0 without a split."""
    plan = job.plan
    columns = np.broadcast_arrays(
        *(np.asarray(c) for c in (plan.schedule, plan.pp, plan.vpp, num_microbatches(job), rank))
    )
    rows, back = np.unique(
        np.stack([c.reshape(-1) for c in columns]).astype(np.int64), axis=1, return_inverse=True
    )
    found = np.array([_waiting(*(int(v) for v in row)) for row in rows.T])
    return found[back.reshape(-1)].reshape(columns[0].shape)


@lru_cache(maxsize=4096)
def _waiting(schedule: int, pp: int, vpp: int, microbatches: int, rank: int) -> float:
    """Weight gradients that wait in the fullest moment, in micro-batches of all chunks."""
    definition = definition_of(schedule, vpp=vpp)
    if pp == 1 or not definition.splits_backward or rank >= pp:
        return 0.0
    count = min(microbatches, STEADY * pp)
    row = operations(Schedule(schedule), pp=pp, vpp=vpp, num_microbatches=count)[rank]
    held = waits = 0
    fullest = (0, 0)
    for operation in row:
        kind = Kind(operation.kind)
        held += (kind is Kind.FORWARD) - (kind in (Kind.WEIGHT, Kind.FULL_BACKWARD))
        waits += (kind is Kind.BACKWARD) - (kind is Kind.WEIGHT)
        fullest = max(fullest, (held, waits))
    return fullest[1] / (definition.chunks or vpp)
