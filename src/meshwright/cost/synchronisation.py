"""Time of data-parallel synchronisation: gradient reduction, parameter gathering, optimizer step.

Dense state lives on a group of dp*cp ranks, expert state on its own mesh (expert data
parallelism); HSDP shards inside and all-reduces across replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost import collectives
from meshwright.cost.kernels import activation_bytes, pieces_of
from meshwright.plan.job import expert_data_parallel, num_microbatches, shard_group
from meshwright.plan.plan import Optimizer

if TYPE_CHECKING:
    from meshwright.cost.calibration import HardwareFit, Stack
    from meshwright.cost.volumes import RankParameters
    from meshwright.plan.job import Job

BUCKETS = 8.0  # the last of this many gradient buckets cannot hide behind the backward pass
HOST_ADAM_BYTES_PER_S = 60e9  # memory-bound vectorized Adam on a two-socket host, all GPUs' share


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Seconds of communication a step has by kind, before overlap.

    `reduce_s` and `gather_s` are per reduction and per parameter gathering of the whole rank.
    """

    reduce_s: Any
    gather_s: Any


def sync(job: Job, parameters: RankParameters, *, hardware: HardwareFit, stack: Stack) -> Sync:
    """Time to reduce a rank's gradients once, and to gather its parameters once.

    Each bucket pays the collective's latency again.
    """
    plan = job.plan
    shares = {
        "scale_up": hardware.scale_up * stack.dp_rate,
        "scale_out": hardware.scale_out * stack.dp_rate,
        "latency": stack.network_latency,
    }
    shard = shard_group(plan)
    dense = collectives.place(job.cluster, shard, plan.tp, **shares)
    across = collectives.place(job.cluster, plan.dp_replicate, plan.tp * shard, **shares)
    sharded = np.asarray(plan.zero_stage) >= 1
    wire_bytes = parameters.dense * plan.reduce_bytes
    again = np.maximum(wire_bytes / stack.bucket_bytes - 1.0, 0.0)
    latency = again * collectives.latency_s(dense)
    scatter = collectives.reduce_gradients_s(dense, wire_bytes) + latency
    whole = collectives.all_reduce_gradients_s(dense, wire_bytes) + 2.0 * latency
    reduce_s = np.where(sharded, scatter, whole)
    replicas = collectives.all_reduce_s(across, wire_bytes / np.where(sharded, shard, 1))
    reduce_s = reduce_s + np.where(plan.dp_replicate > 1, replicas, 0.0)
    gather_bytes = np.minimum(plan.param_bytes, activation_bytes(plan))
    gather_s = np.where(
        sharded, collectives.gather_parameters_s(dense, parameters.dense * gather_bytes), 0.0
    )
    if job.model.is_moe:
        edp = collectives.place(
            job.cluster, expert_data_parallel(plan), plan.ep * plan.etp, **shares
        )
        expert = collectives.reduce_gradients_s(edp, parameters.expert * plan.reduce_bytes)
        expert = np.where(expert_data_parallel(plan) > 1, expert, 0.0)
        reduce_s = reduce_s + np.where(sharded, expert, 2.0 * expert)
        expert_gather = collectives.gather_parameters_s(edp, parameters.expert * gather_bytes)
        gather_s = gather_s + np.where(
            sharded & (expert_data_parallel(plan) > 1), expert_gather, 0.0
        )
    alone = shard * plan.dp_replicate <= 1
    return Sync(
        reduce_s=np.where(alone & (parameters.expert == 0), 0.0, reduce_s),
        gather_s=np.where(alone & (parameters.expert == 0), 0.0, gather_s),
    )


def of_trained(job: Job, volume: Sync, trained: Any) -> Sync:
    """The volume when only a share of the parameters trains.

    Gradients are those of the trained ones. After the step only these are gathered; ZeRO-3 gathers
    the frozen ones too, before every use.
    """
    whole = np.asarray(job.plan.zero_stage) >= 3
    return Sync(
        reduce_s=volume.reduce_s * trained,
        gather_s=volume.gather_s * np.where(whole, 1.0, trained),
    )


def exposed_per_step_s(job: Job, volume: Sync, passes: tuple[Any, Any], stack: Stack) -> Any:
    """Exposed synchronisation of a step for ZeRO 0, 1 and 2.

    `passes` are the forward and backward seconds of one micro-batch on the rank: the last backward
    pass hides the reduction, the first forward pass the gathering, as far as the stack overlaps.
    ZeRO-2 reduces after every micro-batch, and so do stacks that accumulate nothing without ZeRO.
    """
    plan = job.plan
    if np.all(np.asarray(plan.zero_stage) >= 3):
        return 0.0
    forward_s, backward_s = passes
    micro = num_microbatches(job)
    hidden_reduce = _exposed_s(
        volume.reduce_s, stack.overlap_dp * backward_s, least=1.0 / BUCKETS, stack=stack
    )
    reduce_s = np.where(plan.overlap_grad_reduce, hidden_reduce, volume.reduce_s)
    each = np.asarray(plan.zero_stage) == 2
    if stack.reduce_every_microbatch:
        each = each | ((np.asarray(plan.zero_stage) == 0) & (np.asarray(plan.pp) > 1))
    reduce_s = reduce_s * np.where(each, micro, 1)
    hidden_gather = _exposed_s(
        volume.gather_s, stack.overlap_dp * forward_s, least=1.0 / BUCKETS, stack=stack
    )
    gather_s = np.where(plan.overlap_param_gather, hidden_gather, volume.gather_s)
    return np.where(np.asarray(plan.zero_stage) >= 3, 0.0, reduce_s + gather_s)


def host_sync_s(job: Job, layers: Any, stack: Stack) -> Any:
    """Host seconds of a step for gathering and reducing blocks one by one, ZeRO 0, 1 and 2."""
    if not stack.host_fsdp_s:
        return 0.0
    stage = np.asarray(job.plan.zero_stage)
    reductions = np.where(stage == 2, num_microbatches(job), 1)
    calls = np.where(stage >= 1, reductions + 1, reductions)
    ranks = shard_group(job.plan) * job.plan.dp_replicate
    return np.where((stage < 3) & (ranks > 1), layers * calls * stack.host_fsdp_s, 0.0)


def _exposed_s(seconds: Any, behind_s: Any, *, least: Any, stack: Stack) -> Any:
    """What a communication of `seconds` adds to a step that can hide `behind_s` of it.

    At least the share `least` stays exposed, and what hides still costs `overlap_tax` of itself:
    its kernels hold multiprocessors and memory bandwidth that the computation then lacks.
    """
    exposed = np.maximum(seconds - behind_s, seconds * least)
    return exposed + stack.overlap_tax * (seconds - exposed)


def exposed_fsdp_s(
    job: Job, volume: Sync, passes: tuple[Any, Any], *, stack: Stack, layers: Any
) -> tuple[Any, Any]:
    """Exposed gathering and reduction of fully sharded parameters per micro-batch.

    Forward gathers each layer one ahead of its use, backward gathers again where parameters were
    resharded and reduces gradients. What compute cannot hide, and the first layer, stay exposed.
    """
    plan = job.plan
    forward_s, backward_s = passes
    stage = np.asarray(plan.zero_stage)
    if not np.any(stage >= 3):
        return 0.0, 0.0
    first = 1.0 / np.maximum(layers + 1, 1)
    overlap = np.where(plan.overlap_param_gather, stack.overlap_fsdp, 0.0)
    forward = _exposed_s(volume.gather_s, overlap * forward_s, least=first, stack=stack)
    again = np.where(plan.reshard_after_forward, volume.gather_s, 0.0) + volume.reduce_s
    backward = _exposed_s(again, overlap * backward_s, least=first, stack=stack)
    if stack.host_fsdp_s:
        forward = forward + layers * stack.host_fsdp_s
        gathered_again = np.where(plan.reshard_after_forward, 1.0, 0.0)
        backward = backward + layers * stack.host_fsdp_s * (1.0 + gathered_again)
    fully = stage >= 3
    return np.where(fully, forward, 0.0), np.where(fully, backward, 0.0)


def optimizer_s(job: Job, parameters: RankParameters, *, trained: Any, stack: Stack) -> Any:
    """Seconds of the optimizer step: state moved at HBM rate, on the host where offloaded."""
    plan = job.plan
    sharded = np.asarray(plan.zero_stage) >= 1
    dense = parameters.dense / np.where(sharded, shard_group(plan), 1)
    expert = parameters.expert / np.where(sharded, expert_data_parallel(plan), 1)
    local = (dense + expert) * trained
    curves = pieces_of(job)
    if curves is not None:
        width = np.asarray(plan.grad_bytes)
        return curves.piece_s("update", local, width_bytes=width, backward=False) / stack.optimizer
    moments = np.where(np.asarray(plan.optimizer) == Optimizer.ADAM, 2, 1)
    state = moments * plan.optimizer_state_bytes + np.where(plan.master_weights, 4, 0)
    moved = local * (plan.grad_bytes * 3 + 2 * state + plan.param_bytes)
    on_gpu = moved / (job.cluster.gpu.memory_bytes_per_s * stack.optimizer)
    host = job.cluster.host
    over_bus = local * (plan.grad_bytes + plan.param_bytes) / host.bytes_per_s_per_gpu
    on_host = over_bus + moved * job.cluster.gpus_per_node / HOST_ADAM_BYTES_PER_S
    share = plan.offload_optimizer
    return on_gpu * (1.0 - share) + on_host * share


def host_step_s(job: Job, layers: Any, stack: Stack) -> Any:
    """Host seconds of clipping and optimizer on the tensors of a rank's blocks, of any size."""
    sharded = (np.asarray(job.plan.zero_stage) >= 1) & (np.asarray(shard_group(job.plan)) > 1)
    more = np.where(sharded, stack.host_step_sharded_s, 0.0)
    return layers * (stack.host_step_layer_s + more)


def accumulation_s(job: Job, parameters: RankParameters, hardware: HardwareFit) -> Any:
    """Seconds of adding each further micro-batch's gradients to the first's, where measured.

    Elsewhere the products do it (fused accumulation) or it hides in the stack's `elementwise`.
    """
    curves = pieces_of(job)
    if curves is None:
        return 0.0
    plan = job.plan
    sharded = np.where(np.asarray(plan.zero_stage) >= 2, shard_group(plan), 1)
    seconds = curves.piece_s(
        "accumulate",
        parameters.total / sharded,
        width_bytes=np.asarray(plan.grad_bytes),
        backward=False,
    )
    return (num_microbatches(job) - 1) * seconds / hardware.memory
