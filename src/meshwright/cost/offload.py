"""Time of moving saved activations or parameters between the GPU and its host.

Transfers run beside the computation of the same pass; what it cannot hide, and a share of the rest,
stays exposed (arXiv 2104.07857, ZeRO-Infinity, section 4, for the volumes of parameters).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.plan.job import shard_group
from meshwright.plan.plan import Recompute, RecomputeModule

if TYPE_CHECKING:
    from meshwright.cost.calibration import Stack
    from meshwright.cost.volumes import RankParameters
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers

SAVED_PER_ELEMENT = 34.0  # bytes a layer saves per token and hidden element (2205.05198, eq. 1)
CHECKPOINT_PER_ELEMENT = 2.0  # the same where only the layer's input is kept
MADE_AGAIN = {  # the part of them that each recomputed module does without (its input is kept)
    RecomputeModule.MLP: 17.0,
    RecomputeModule.NORM: 4.0,
    RecomputeModule.ALTERNATE_MATMULS: 12.0,
}
HIDDEN_SHARE = 0.8  # of the pass that a transfer can hide behind
LEAST_EXPOSED = 0.05


def exposed_offload_s(
    job: Job, stage: StageLayers, parameters: RankParameters, passes: tuple[Any, Any], stack: Stack
) -> tuple[Any, Any]:
    """Exposed seconds per micro-batch, forward and backward, of what the plan keeps on the host."""
    plan = job.plan
    if not (np.any(plan.offload_activations) or np.any(plan.offload_params)):
        return 0.0, 0.0
    rate = job.cluster.host.bytes_per_s_per_gpu
    weights = np.where(np.asarray(plan.zero_stage) >= 3, shard_group(plan), 1)
    fetched = np.where(plan.offload_params, parameters.total * plan.param_bytes / weights, 0.0)
    moved = (saved_bytes(job, stage) * plan.offload_activations + fetched) / rate
    forward, backward = (
        np.maximum(moved - HIDDEN_SHARE * seconds, LEAST_EXPOSED * moved) for seconds in passes
    )
    tax = stack.overlap_tax
    return (1 - tax) * forward + tax * moved, (1 - tax) * backward + tax * moved


def saved_bytes(job: Job, stage: StageLayers) -> Any:
    """Bytes that one micro-batch saves on a rank for the backward pass, by the dense estimate."""
    plan = job.plan
    tokens = plan.micro_batch_size * job.workload.seq_len / plan.cp
    kind, modules = np.asarray(plan.recompute), np.asarray(plan.recompute_modules)
    made_again = sum(((modules & m) > 0) * share for m, share in MADE_AGAIN.items())
    kept = np.where(kind == Recompute.SELECTIVE, SAVED_PER_ELEMENT - made_again, SAVED_PER_ELEMENT)
    per_element = np.where(kind == Recompute.FULL, CHECKPOINT_PER_ELEMENT, kept)
    split = np.where(plan.sequence_parallel, plan.tp, 1)
    return stage.layers * tokens * job.model.hidden_size * per_element / split
