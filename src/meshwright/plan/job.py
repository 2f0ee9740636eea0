"""A `Job` is everything a prediction depends on: model, cluster, workload, plan, software stack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Data loading and checkpoint settings; None means not stated."""

    num_workers: int | None = None
    tokens_dtype_bytes: int = 4
    read_bytes_per_s_per_node: float | None = None
    checkpoint_interval_steps: int | None = None
    checkpoint_async: bool | None = None
    checkpoint_write_bytes_per_s_per_node: float | None = None
    doc_len_cv: float | None = None  # standard deviation of document lengths over their mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Process environment and communication settings; None means not stated."""

    cuda_device_max_connections: int | None = None
    nccl_algo: str | None = None
    nccl_proto: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    manual_gc: bool | None = None  # garbage collected at the same step on every rank
    numa_bind: bool | None = None
    straggler_detection: bool | None = None
    context_balancer: str | None = None  # "zigzag", "documents" (by the mask) or "none"
    expert_dispatcher: str | None = None  # "alltoall", "allgather" or "flex"
    grouped_gemm: bool | None = None  # the experts of a rank in one kernel
    expert_balancing: str | None = None  # "aux_loss", "bias", ... or "none"
    expert_capacity_factor: float | None = None  # negative: no token is dropped
    router_dtype: str | None = None
    router_padding: bool | None = None  # tokens per expert padded to the quantisation block


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What one step and the whole run process.

    `global_batch_size` counts sequences of `seq_len` tokens. `train_tokens` is the length of the
    run, None when unknown.
    """

    seq_len: int
    global_batch_size: int
    train_tokens: float | None = None
    packed_mean_len: float | None = None  # mean document length when packed with document masks
    loading: Loading = field(default_factory=Loading)
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question to the cost model; `stack` names an entry of cost/data/calibration.toml."""

    model: Model
    cluster: Cluster
    workload: Workload
    plan: Plan
    stack: str = "default"

    def with_plan(self, plan: Plan) -> Job:
        """The same job under another plan or column of plans."""
        return replace(self, plan=plan)


def num_microbatches(job: Job) -> Any:
    """Micro-batches per pipeline and step, global_batch / (dp * micro_batch), at least 1."""
    plan = job.plan
    return np.maximum(job.workload.global_batch_size // (plan.dp * plan.micro_batch_size), 1)


def world_size(plan: Plan) -> Any:
    """GPUs that the plan occupies."""
    return plan.tp * plan.pp * plan.cp * plan.dp


def expert_data_parallel(plan: Plan) -> Any:
    """Replicas of each expert, tp*cp*dp / (ep*etp), at least 1."""
    return np.maximum(plan.tp * plan.cp * plan.dp // (plan.ep * plan.etp), 1)


def shard_group(plan: Plan) -> Any:
    """Ranks over which dense state is sharded, dp*cp / dp_replicate, at least 1."""
    return np.maximum(plan.dp * plan.cp // plan.dp_replicate, 1)


def expert_shard_group(plan: Plan) -> Any:
    """Ranks over which expert state is sharded."""
    return np.maximum(expert_data_parallel(plan) // plan.dp_replicate, 1)
