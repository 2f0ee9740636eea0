"""A `Job` is everything a prediction depends on: model, cluster, workload, plan, software stack."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass

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

    dataset_tokens: float | None = None  # distinct tokens of the corpus
    num_samples: int | None = None  # sequences available
    consumed_samples: int | None = None  # of them used before this run
    data_readers: int | None = None  # ranks that read different data
    drop_last: bool | None = None  # an incomplete last batch is left out
    pad_last: bool | None = None  # ... or filled up with samples seen before
    packed: bool | None = None  # several documents in one sequence
    document_mask: bool | None = None  # ... that do not attend to each other
    packed_seq_len: int | None = None  # tokens of the rows that they were packed into
    token_ids: int | None = None  # ids of the vocabulary that the data is in
    mock_data: bool | None = None
    read_amplification: float | None = None  # bytes read per byte used

    streamed: bool | None = None  # an iterable: no random access
    workers_split_stream: bool | None = None  # each loader worker reads its own part of it
    shuffle: bool | None = None
    reshuffle_each_epoch: bool | None = None
    num_shards: int | None = None  # units that readers share out among them
    num_files: int | None = None
    mean_file_bytes: float | None = None
    memory_map: bool | None = None
    object_storage: bool | None = None  # S3 and its kin
    index_shared: bool | None = None  # the sample index lies where every node sees it
    index_prebuilt: bool | None = None  # ... and is built before the job starts

    checkpoint_interval_s: float | None = None
    checkpoint_stall_s: float | None = None  # time that training stands still for one
    checkpoint_bytes: float | None = None
    checkpoint_gathered: bool | None = None  # the whole state on one rank, not in shards
    model_build: str | None = None  # "sharded", "device", "host", "first_rank": see Lifecycle
    checkpoints_kept: int | None = None  # 0 = all
    checkpoint_reshardable: bool | None = None  # loads under another tp and pp
    saved_tp: int | None = None  # degrees of the checkpoint that the run starts from
    saved_pp: int | None = None
    saved_dp: int | None = None
    exact_resume: bool | None = None  # the restarted run must see the same data and dropout
    rng_saved: bool | None = None
    loader_state_saved: bool | None = None  # a position per data-parallel rank
    order_recomputable: bool | None = None  # the order follows from the samples consumed


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
    router_padding: bool | None = None  # tokens per expert padded to the quantization block

    nccl_version: tuple[int, ...] | None = None
    ll128_safe: bool | None = None  # 128-byte stores are not split on this machine
    gpu_direct_rdma: bool | None = None
    imex: bool | None = None  # service that multi-node NVLink needs
    use_sharp: bool | None = None  # reduction inside the switches
    sharp_groups: int | None = None  # communicators expected to use it
    concurrent_communicators: bool | None = None  # several in flight without a common order
    process_groups: int | None = None  # communicators a rank takes part in
    gpus_per_process: int | None = None
    rank_order: str | None = None  # axes, fastest first: "tp-cp-ep-dp-pp"
    bucket_elements: int | None = None  # gradients reduced in one collective
    residual_bytes: int | None = None  # width of the residual stream
    collective_timeout_s: float | None = None
    index_build_s: float | None = None  # longest wait for a sample index
    compile_s: float | None = None  # longest compilation
    step_time_s: float | None = None  # measured, or aimed at
    job_mtbf_s: float | None = None  # mean time between failures of the whole job
    gpu_mtbf_s: float | None = None  # ... and of one GPU with its share of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Optimization settings that bear on the parallel plan; None means not stated.

    `synchronization` is "sync", "async", "local_sgd" or "diloco".
    """

    learning_rate: float | None = None
    tuned_learning_rate: float | None = None  # ... that was tuned at this batch:
    tuned_global_batch_size: int | None = None
    critical_batch_tokens: float | None = None  # beyond it more batch stops paying
    batch_size_steps: tuple[int, ...] = ()  # global batch sizes of a ramp-up
    eval_global_batch_size: int | None = None
    eval_micro_batch_size: int | None = None
    masked_loss: bool | None = None  # some tokens carry no loss (fine-tuning)
    per_token_loss: bool | None = None  # summed loss over summed tokens, not a mean of means
    deterministic: bool | None = None
    reduce_every_microbatch: bool | None = None  # gradients reduced before the last one
    synchronization: str | None = None
    sync_interval_steps: int | None = None  # local steps between synchronizations
    outer_optimizer: str | None = None
    staleness_steps: int | None = None  # steps that a gradient may lag


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
    recipe: Recipe = field(default_factory=Recipe)


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
