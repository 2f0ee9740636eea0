"""Closed-form figures that rules weigh against each other, where no full prediction is needed.

They are bounds and rough sizes; a rule that uses one says so. Unknown peaks are NaN, so that no
comparison holds and the rule stays silent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.hardware.cluster import members_within
from meshwright.model.count import matmul_parameters_per_token, parameters
from meshwright.plan.plan import PEAK_NAME, Precision

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job

REALISTIC_UTILIZATION = 0.4  # of peak FLOP/s; what well-tuned runs reach (Llama 3: 0.38 to 0.43)
TRAINING_FLOPS_PER_WEIGHT = 6  # forward 2, backward 4, a token and weight (arXiv 2001.08361)


@lru_cache(maxsize=64)
def total_parameters(model: Model) -> int:
    """Parameters of the whole model."""
    return parameters(model).total


@lru_cache(maxsize=64)
def weights_per_token(model: Model) -> int:
    """Weights in matrix products that one token passes."""
    return matmul_parameters_per_token(model)


def peak_flops(job: Job) -> Any:
    """Dense peak FLOP/s of one GPU in the plan's precision; NaN where the GPU states none."""
    peaks = job.cluster.gpu.peak_flops
    table = np.array([peaks.get(PEAK_NAME[p], np.nan) for p in Precision])
    return table[np.clip(job.plan.precision, 0, len(table) - 1)]


def tokens_per_step(job: Job) -> int:
    """Tokens of one step over all replicas."""
    return job.workload.seq_len * job.workload.global_batch_size


def step_time_s(job: Job) -> Any:
    """Seconds a step: as stated, or its matrix products at `REALISTIC_UTILIZATION` of peak.

    The estimate leaves attention scores, recompute and everything exposed out, so it is rather
    too short than too long.
    """
    if job.workload.runtime.step_time_s is not None:
        return job.workload.runtime.step_time_s
    flops = TRAINING_FLOPS_PER_WEIGHT * weights_per_token(job.model) * tokens_per_step(job)
    return flops / (job.cluster.num_gpus * peak_flops(job) * REALISTIC_UTILIZATION)


def group_bytes_per_s(cluster: Cluster, size: Any, stride: Any) -> Any:
    """Bytes/s per GPU that a ring over `size` ranks `stride` apart moves.

    Inside the innermost domain that is its link. Across domains the ranks of one domain drive
    their network ports together, up to the inner link's rate.
    """
    inner = members_within(size, stride, cluster.links[0].domain)
    rate: Any = cluster.links[0].bytes_per_s
    for below, link in zip(cluster.links, cluster.links[1:], strict=False):
        outer = np.minimum(link.bytes_per_s / link.oversubscription * inner, rate)
        rate = np.where(size * stride > below.domain, outer, rate)
    return rate


def hop_bytes_per_s(cluster: Cluster, size: Any, stride: Any) -> Any:
    """Bytes/s from one rank of a group to the next over the slowest link between them."""
    rate: Any = cluster.links[0].bytes_per_s
    for below, link in zip(cluster.links, cluster.links[1:], strict=False):
        outer = np.minimum(link.bytes_per_s / link.oversubscription, rate)
        rate = np.where(size * stride > below.domain, outer, rate)
    return rate


def data_parallel_bytes_per_s(job: Job) -> Any:
    """Bytes/s per GPU of the group that reduces dense gradients, dp*cp ranks."""
    plan = job.plan
    return group_bytes_per_s(job.cluster, plan.dp * plan.cp, plan.tp)


def parameters_per_rank(job: Job) -> Any:
    """Parameters of an average rank, cut by tp and pp (and experts by ep and etp), unsharded."""
    plan = job.plan
    experts = routed_parameters(job.model)
    dense = total_parameters(job.model) - experts
    return (dense / plan.tp + experts / (plan.ep * plan.etp)) / plan.pp


@lru_cache(maxsize=64)
def routed_parameters(model: Model) -> int:
    """Parameters inside routed experts."""
    groups = parameters(model).by_group
    return groups["experts_sharded"] + groups["experts_replicated"]


def dense_gradient_bytes(job: Job) -> Any:
    """Bytes of dense gradients that an average rank reduces over data parallelism; 0 for LoRA."""
    dense = total_parameters(job.model) - routed_parameters(job.model)
    trained = np.where(job.plan.lora_rank > 0, 0, dense)
    return trained / (job.plan.tp * job.plan.pp) * job.plan.reduce_bytes


def state_bytes_per_parameter(job: Job) -> Any:
    """Bytes of weights, gradients, master weights and two optimizer moments a parameter."""
    plan = job.plan
    return (
        plan.param_bytes
        + plan.grad_bytes
        + np.where(plan.master_weights, 4, 0)
        + 2 * plan.optimizer_state_bytes
    )


def is_pre_blackwell(cluster: Cluster) -> bool:
    """True for the NVIDIA generations in which kernel launch order decides about overlap."""
    return cluster.gpu.generation in ("volta", "turing", "ampere", "ada", "hopper")
