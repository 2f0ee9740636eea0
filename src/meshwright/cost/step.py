"""Time of one optimizer step: pipeline of micro-batches, synchronisation, optimizer, overheads.

`layer_times` gives what one block costs; here it is combined over stages, schedule and data
parallelism. The slowest pipeline rank sets the pace; it is one of the representative ranks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost import collectives, synchronisation
from meshwright.cost.calibration import fits_of
from meshwright.cost.kernels import activation_bytes
from meshwright.cost.layers import layer_times
from meshwright.cost.offload import exposed_offload_s
from meshwright.cost.schedules import pipeline_s
from meshwright.cost.volumes import most_parameters, rank_parameters, trained_share
from meshwright.plan.distinct import narrow
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Recompute, Schedule
from meshwright.plan.stages import chunks_per_rank, representative_stages, stage_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cost.calibration import Calibration, HardwareFit, Stack
    from meshwright.cost.layers import BlockTime, LayerTimes
    from meshwright.cost.volumes import RankParameters
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers

STALL_STEEPNESS = 16  # of the onset of stalls with the number of nodes
STALL_LEAST_NODES = 4
PARTS = ("matmul", "attention", "elementwise", "host", "tp", "cp", "ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro-batch on one pipeline rank, seconds.

    `recompute_s`, the `fsdp_*_s` (exposed gathering and reduction of ZeRO-3) and the `offload_*_s`
    (exposed transfers from and to the host) are contained in
    the passes they belong to.
    """

    forward_s: Any
    backward_s: Any
    weight_s: Any
    recompute_s: Any
    fsdp_forward_s: Any = 0.0
    fsdp_backward_s: Any = 0.0
    offload_forward_s: Any = 0.0
    offload_backward_s: Any = 0.0

    @property
    def fsdp_s(self) -> Any:
        """Exposed communication of fully sharded parameters."""
        return self.fsdp_forward_s + self.fsdp_backward_s

    @property
    def total_s(self) -> Any:
        """Busy time per micro-batch."""
        return self.forward_s + self.backward_s + self.weight_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a step and where they go; scalars for one plan, columns for many.

    `parts` (for one plan or on request) splits the busy time of the slowest rank by cause.
    """

    step_s: Any
    pipeline_s: Any
    bubble_s: Any
    p2p_s: Any
    dp_s: Any
    optimizer_s: Any
    fixed_s: Any
    stall_s: Any
    straggler_s: Any
    slowest: Pass
    parts: dict[str, Any]


def step_time(
    job: Job, calibration: Calibration, *, peak_bytes: Any = 0.0, detail: bool = False
) -> StepTime:
    """Predicted step time of the job's plan or plans.

    `peak_bytes` is the predicted peak of allocated memory, for stacks whose allocator slows down
    when the device is nearly full.
    """
    layers = layer_times(job, calibration)
    return combine(job, layers, calibration, peak_bytes=peak_bytes, detail=detail)


def combine(
    job: Job,
    layers: LayerTimes,
    calibration: Calibration,
    *,
    peak_bytes: Any = 0.0,
    detail: bool = False,
    stages: Sequence[StageLayers] | None = None,
) -> StepTime:
    """Step time from the times of the blocks; `stages` are the representative ranks, if known."""
    hardware, stack = fits_of(job, calibration)
    if stages is None:
        ranks = representative_stages(job.plan, job.model)
        stages = [stage_layers(job, rank) for _, rank in ranks]
    work = [_pass(job, layers, stage, stack) for stage in stages]
    slowest, on = _slowest(work, stages)
    parameters = most_parameters([rank_parameters(job, stage) for stage in stages])
    trained = trained_share(job)
    volume = synchronisation.sync(job, parameters, hardware=hardware, stack=stack)
    volume = synchronisation.of_trained(job, volume, trained)
    slowest = _with_fsdp(job, slowest, volume, on, stack)
    slowest = _with_offload(job, slowest, on, parameters, stack)
    handover = _handover_s(job, hardware, stack)
    pipeline = _pipeline_s(job, layers, slowest, handover, stack)
    micro = num_microbatches(job)
    passes = (slowest.forward_s, slowest.backward_s + slowest.weight_s)
    dp = synchronisation.exposed_per_step_s(job, volume, passes, stack)
    dp = dp + synchronisation.host_sync_s(job, on.layers, stack)
    optimizer = synchronisation.optimizer_s(job, parameters, trained=trained, stack=stack)
    optimizer = optimizer + synchronisation.host_step_s(job, on.layers, stack)
    optimizer = optimizer + synchronisation.accumulation_s(job, parameters, hardware)
    stall = stall_s(job, stack, peak_bytes) * micro
    busy = pipeline + dp + optimizer + stack.step_s + stall
    straggler = busy * stack.straggler * np.log2(max(job.cluster.num_nodes, 1))
    p2p = np.where(
        np.asarray(job.plan.pp) > 1, 2.0 * handover * chunks_per_rank(job.plan) * micro, 0
    )
    return StepTime(
        step_s=busy + straggler,
        pipeline_s=pipeline,
        bubble_s=np.maximum(pipeline - micro * slowest.total_s - p2p, 0.0),
        p2p_s=p2p,
        dp_s=dp,
        optimizer_s=optimizer,
        fixed_s=stack.step_s,
        stall_s=stall,
        straggler_s=straggler,
        slowest=slowest,
        parts=_parts(job, layers, on, slowest) if detail else {},
    )


def _pass(job: Job, layers: LayerTimes, stage: StageLayers, stack: Stack) -> Pass:
    """One micro-batch on one rank, without FSDP's communication."""
    spread = np.where(job.plan.vocab_over_pipeline, 1.0 / np.asarray(job.plan.pp), 1.0)
    everywhere = np.asarray(job.plan.vocab_over_pipeline)
    embedding = np.where(everywhere, spread, stage.embedding)
    heads = np.where(everywhere, spread, stage.head) + stage.mtp
    share = recompute_share(job, stage)
    half = _passed_share(job)
    forward = embedding * layers.embedding.forward_s + heads * layers.head.forward_s
    backward = embedding * layers.embedding.backward_s + heads * layers.head.backward_s
    weight = embedding * layers.embedding.weight_s + heads * layers.head.weight_s
    recompute: Any = 0.0
    for count, kind in zip(stage.counts, layers.kinds, strict=True):
        forward = forward + count * kind.forward_s
        backward = backward + count * kind.backward_s
        weight = weight + count * kind.weight_s
        recompute = recompute + count * kind.recompute_s
    recompute = recompute * share * half
    if stack.tp_behind_pp_s and job.cluster.num_nodes > 1:
        least = _behind_pipeline_s(job, stage, stack)
        forward = np.maximum(forward, least)
        backward = np.maximum(backward, least * stack.host_backward - weight)
    return Pass(
        forward_s=forward * half + stack.host_microbatch_s,
        backward_s=backward * half + recompute,
        weight_s=weight * half,
        recompute_s=recompute,
    )


def _behind_pipeline_s(job: Job, stage: StageLayers, stack: Stack) -> Any:
    """Least forward seconds of a rank whose tp collectives queue behind hand-overs."""
    plan = job.plan
    queued = (np.asarray(plan.pp) > 1) & (np.asarray(plan.tp) > 1)
    return np.where(queued, stage.layers * stack.tp_behind_pp_s * plan.tp, 0.0)


def _passed_share(job: Job) -> Any:
    """Share of a rank's chunks that one micro-batch passes: DualPipe holds two and passes one."""
    return np.where(np.asarray(job.plan.schedule) == Schedule.DUALPIPE, 0.5, 1.0)


def recompute_share(job: Job, stage: StageLayers) -> Any:
    """Share of the rank's layers that full recompute covers (block method with a layer count)."""
    plan = job.plan
    limited = (np.asarray(plan.recompute) == Recompute.FULL) & (plan.recompute_layers > 0)
    limited = limited & ~np.asarray(plan.recompute_uniform)
    covered = plan.recompute_layers * chunks_per_rank(plan) / np.maximum(stage.layers, 1)
    return np.where(limited, np.minimum(covered, 1.0), 1.0)


def _slowest(work: Sequence[Pass], stages: Sequence[StageLayers]) -> tuple[Pass, StageLayers]:
    """The representative rank with the longest micro-batch."""
    best, on = work[0], stages[0]
    for candidate, stage in zip(work[1:], stages[1:], strict=True):
        slower = narrow(candidate.total_s > best.total_s)
        best = Pass(
            forward_s=np.where(slower, candidate.forward_s, best.forward_s),
            backward_s=np.where(slower, candidate.backward_s, best.backward_s),
            weight_s=np.where(slower, candidate.weight_s, best.weight_s),
            recompute_s=np.where(slower, candidate.recompute_s, best.recompute_s),
        )
        on = replace(
            on,
            rank=np.where(slower, stage.rank, on.rank),
            counts=tuple(
                np.where(slower, theirs, ours)
                for theirs, ours in zip(stage.counts, on.counts, strict=True)
            ),
            embedding=np.where(slower, stage.embedding, on.embedding),
            head=np.where(slower, stage.head, on.head),
            mtp=np.where(slower, stage.mtp, on.mtp),
        )
    return best, on


def _with_fsdp(
    job: Job, one: Pass, volume: synchronisation.Sync, stage: StageLayers, stack: Stack
) -> Pass:
    """The pass with the exposed communication of fully sharded parameters."""
    passes = (one.forward_s, one.backward_s + one.weight_s)
    forward, backward = synchronisation.exposed_fsdp_s(
        job, volume, passes, stack=stack, layers=stage.layers
    )
    return replace(
        one,
        forward_s=one.forward_s + forward,
        backward_s=one.backward_s + backward,
        fsdp_forward_s=forward,
        fsdp_backward_s=backward,
    )


def _with_offload(
    job: Job, one: Pass, stage: StageLayers, parameters: RankParameters, stack: Stack
) -> Pass:
    """The pass with the exposed transfers from and to the host."""
    passes = (one.forward_s, one.backward_s + one.weight_s)
    forward, backward = exposed_offload_s(job, stage, parameters, passes, stack)
    return replace(
        one,
        forward_s=one.forward_s + forward,
        backward_s=one.backward_s + backward,
        offload_forward_s=forward,
        offload_backward_s=backward,
    )


def _handover_s(job: Job, hardware: HardwareFit, stack: Stack) -> Any:
    """Exposed seconds of one hand-over of activations to the next pipeline rank."""
    plan = job.plan
    tokens = plan.micro_batch_size * job.workload.seq_len / plan.cp
    split = np.where(plan.sequence_parallel | stack.scatter_gather, plan.tp, 1)
    sent_bytes = tokens * job.model.hidden_size * activation_bytes(plan) / split
    group = collectives.place(
        job.cluster,
        plan.pp,
        plan.tp * plan.cp * plan.dp,
        scale_up=hardware.scale_up * stack.p2p_rate,
        scale_out=hardware.scale_out * stack.p2p_rate,
    )
    exposed = np.where(plan.overlap_pp, 1.0 - stack.overlap_pp, 1.0)
    seconds = collectives.point_to_point_s(group, sent_bytes) * exposed + stack.host_p2p_s
    return np.where(np.asarray(plan.pp) > 1, seconds, 0.0)


def stall_s(job: Job, stack: Stack, peak_bytes: Any) -> Any:
    """Seconds a micro-batch loses beyond its arithmetic; properties of some stacks.

    The allocator retries when the device is nearly full. Hand-overs stall once per pipeline
    neighbor where the network is crowded: on many nodes, or (for stacks that reduce gradients at
    every micro-batch) where nothing is sharded and replicas span nodes.
    """
    full = np.asarray(peak_bytes) / job.cluster.gpu.memory_bytes - stack.thrash_share
    thrash = stack.thrash_s * np.clip(full / 0.05 + 0.5, 0.0, 1.0)
    if not stack.p2p_stall_s:
        return thrash
    plan, nodes = job.plan, job.cluster.num_nodes
    crowd = (nodes / stack.p2p_stall_nodes) ** STALL_STEEPNESS
    felt: Any = crowd / (1.0 + crowd)
    if stack.reduce_every_microbatch and nodes >= STALL_LEAST_NODES:
        alone = (np.asarray(plan.zero_stage) == 0) & (np.asarray(plan.dp) > 1)
        felt = np.where(alone, 1.0, felt)
    neighbors = np.minimum(np.asarray(plan.pp) - 1, 2)
    return thrash + stack.p2p_stall_s * neighbors * felt


def _pipeline_s(job: Job, layers: LayerTimes, slowest: Pass, handover: Any, stack: Stack) -> Any:
    """Seconds from the first forward to the last backward pass."""
    plan = job.plan
    whole = _whole_model(job, layers)
    ranks = np.asarray(plan.pp)
    again = slowest.recompute_s + slowest.fsdp_backward_s + slowest.offload_backward_s
    besides = stack.host_microbatch_s + slowest.fsdp_forward_s + slowest.offload_forward_s
    return pipeline_s(
        plan.schedule,
        pp=plan.pp,
        vpp=plan.vpp,
        num_microbatches=num_microbatches(job),
        forward_s=slowest.forward_s,
        backward_s=slowest.backward_s,
        weight_s=slowest.weight_s,
        total_forward_s=np.minimum(whole.forward_s + besides * ranks, slowest.forward_s * ranks),
        total_backward_s=np.minimum(whole.backward_s + again * ranks, slowest.backward_s * ranks),
        total_weight_s=np.minimum(whole.weight_s, slowest.weight_s * ranks),
        p2p_s=handover,
        overlap_pp=False,
    )


def _whole_model(job: Job, layers: LayerTimes) -> BlockTime:
    """Sum over all ranks of one micro-batch, recompute left out."""
    model = job.model
    total: dict[str, Any] = dict.fromkeys(("forward_s", "backward_s", "weight_s"), 0.0)
    counts = [
        sum(run.count for run in (*model.runs, *model.mtp) if run.block == kind)
        for kind in model.kinds
    ]
    mtp = sum(run.count for run in model.mtp)
    entries = [
        *zip(counts, layers.kinds, strict=True),
        (1, layers.embedding),
        (1 + mtp, layers.head),
    ]
    for name in total:
        for count, kind in entries:
            total[name] = total[name] + count * getattr(kind, name)
    return replace(layers.head, recompute_s=0.0, **total)


def _parts(job: Job, layers: LayerTimes, stage: StageLayers, slowest: Pass) -> dict[str, Any]:
    """Busy seconds of the slowest rank per step by cause."""
    micro = num_microbatches(job)
    half = _passed_share(job)
    heads = stage.head + stage.mtp
    result: dict[str, Any] = {}
    for part in PARTS:
        seconds = stage.embedding * getattr(layers.embedding, f"{part}_s")
        seconds = seconds + heads * getattr(layers.head, f"{part}_s")
        for count, kind in zip(stage.counts, layers.kinds, strict=True):
            seconds = seconds + count * getattr(kind, f"{part}_s")
        result[part] = seconds * half * micro
    result["recompute"] = slowest.recompute_s * micro
    result["fsdp"] = slowest.fsdp_s * micro
    result["offload"] = (slowest.offload_forward_s + slowest.offload_backward_s) * micro
    return result
