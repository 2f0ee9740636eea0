"""DAT2xx: which sharding composes with what, when gradients meet, and local or stale updates.

Section 4.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration, format_rate
from meshwright.plan.job import num_microbatches, shard_group
from meshwright.rules.communication.gathers import gathers_again
from meshwright.rules.communication.overlap import cannot_hide_gathers
from meshwright.rules.estimate import (
    data_parallel_bytes_per_s,
    dense_gradient_bytes,
    parameters_per_rank,
    state_bytes_per_parameter,
    step_time_s,
)
from meshwright.rules.nearest import divisors, divisors_near
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

MOST_TIMES_THE_BATCH = 8  # a larger micro-batch is not advised: it would not fit
MAX_GATHERED_MICROBATCHES = 4
MOST_OF_DEVICE = 0.8  # for states, so that activations have room
MAX_BF16_REDUCTION = 128
MAX_LOCAL_STEPS = 1000
MAX_STALENESS = 4
LOCAL_METHODS = ("local_sgd", "diloco")


# How sharding composes


@rule(
    "DAT230",
    "Unknown ZeRO stage",
    severity=Severity.ERROR,
    section="4.2",
    source="ZeRO (arXiv 1910.02054) section 5; DeepSpeed deepspeed/runtime/zero/config.py (0.19.8)",
    reads=("zero_stage",),
    confidence="run",
)
def zero_stage_exists(job: Job) -> Mask:
    """There are four: 0 shards nothing, 1 optimizer states, 2 gradients too, 3 parameters too.

    Fails: plan(zero_stage=4)
    Passes: plan(zero_stage=3)
    """
    return (job.plan.zero_stage < 0) | (job.plan.zero_stage > 3)


@zero_stage_exists.message
def _(job: Job) -> str:
    return f"zero_stage = {job.plan.zero_stage}: stages are 0, 1, 2 and 3"


@zero_stage_exists.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"zero_stage": (int(np.clip(job.plan.zero_stage, 0, 3)),)}


@rule(
    "DAT221",
    "Replication does not divide the sharding group",
    severity=Severity.ERROR,
    section="4.2",
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    reads=("dp", "cp", "dp_replicate"),
    confidence="run",
)
def replication_divides_data_parallel(job: Job) -> Mask:
    """Hybrid sharding splits the dp*cp ranks into dp_replicate groups of equal size.

    Fails: plan(dp=64, dp_replicate=3)
    Passes: plan(dp=64, dp_replicate=4)
    """
    return job.plan.dp * job.plan.cp % job.plan.dp_replicate != 0


@replication_divides_data_parallel.message
def _(job: Job) -> str:
    p = job.plan
    ranks = p.dp * p.cp
    return f"dp {p.dp} x cp {p.cp} = {ranks} ranks do not divide by dp_replicate {p.dp_replicate}"


@replication_divides_data_parallel.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    p = job.plan
    return {"dp_replicate": divisors_near(p.dp * p.cp, p.dp_replicate)}


@rule(
    "DAT290",
    "Sharding over a single rank",
    severity=Severity.INFO,
    section="4.2",
    source="ZeRO (arXiv 1910.02054) section 5: state divides by the size of the sharding group",
    reads=("zero_stage", "dp", "cp", "dp_replicate"),
    confidence="arithmetic",
)
def sharding_has_ranks(job: Job) -> Mask:
    """ZeRO-2 or 3 over one rank frees no memory; some frameworks refuse it.

    Leave ranks for data parallelism by lowering tp or pp, or state less sharding.

    Fails: plan(nodes=1, tp=8, zero_stage=3)
    Passes: plan(nodes=1, tp=4, zero_stage=3)
    """
    return (job.plan.zero_stage >= 2) & (shard_group(job.plan) == 1)


@sharding_has_ranks.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"zero_stage {p.zero_stage} shards over dp {p.dp} x cp {p.cp} / dp_replicate "
        f"{p.dp_replicate} = 1 rank"
    )


@rule(
    "DAT237",
    "Sharded over slow links where one fast domain would hold the model",
    severity=Severity.WARNING,
    section="4.2",
    source="PyTorch FSDP (arXiv 2304.11277) section 3.2.2; ZeRO++ (arXiv 2306.10209)",
    reads=(
        *("zero_stage", "dp", "cp", "tp", "pp", "ep", "etp", "dp_replicate", "param_bytes"),
        *("grad_bytes", "master_weights", "optimizer_state_bytes", "lora_rank"),
        *("micro_batch_size", "precision"),
    ),
    confidence="paper",
)
def sharding_stays_in_domain(job: Job) -> Mask:
    """With ZeRO-3 each layer's gather crosses the network once the group leaves the fast domain.

    If the ranks of one domain can hold a whole copy of the state in half their memory, hybrid
    sharding (shard inside, replicate across) keeps the gathers on fast links. Not said where a
    micro-batch is large enough to hide them.

    Fails: plan(zero_stage=3, net_bytes_per_s=5e9)
    Passes: plan(zero_stage=3, micro_batch_size=4, seq_len=8192)
    Passes: plan(zero_stage=3, dp_replicate=8)
    Passes: plan(model="llama-3-70b", zero_stage=3)
    Passes: plan(nodes=2, tp=16, zero_stage=3, net_bytes_per_s=5e9)
    """
    p = job.plan
    fits = _state_in_domain_bytes(job) < 0.5 * job.cluster.gpu.memory_bytes
    wide = (shard_group(p) * p.tp > job.cluster.scale_up_domain) & (p.dp_replicate == 1)
    wide = wide & (shard_group(p) > _shards_in_domain(job))
    return (p.zero_stage == 3) & wide & fits & (p.lora_rank == 0) & cannot_hide_gathers(job)


def _shards_in_domain(job: Job) -> Any:
    """Ranks of a sharding group that fit into one fast domain beside tp."""
    return np.maximum(job.cluster.scale_up_domain // job.plan.tp, 1)


def _state_in_domain_bytes(job: Job) -> Any:
    """Bytes of model state a GPU when sharded only inside the fast domain."""
    return parameters_per_rank(job) * state_bytes_per_parameter(job) / _shards_in_domain(job)


@sharding_stays_in_domain.message
def _(job: Job) -> str:
    return (
        f"state is sharded over {shard_group(job.plan)} ranks across domains of "
        f"{job.cluster.scale_up_domain} GPUs, though {_shards_in_domain(job)} ranks would hold it "
        f"in {format_bytes(float(_state_in_domain_bytes(job)))} each"
    )


@sharding_stays_in_domain.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    ranks = int(job.plan.dp * job.plan.cp)
    shards = int(_shards_in_domain(job))
    return {"dp_replicate": (ranks // shards,)} if ranks % shards == 0 else {}


# What happens at every micro-batch


@rule(
    "DAT214",
    "Parameters resharded at every pipeline micro-batch",
    severity=Severity.WARNING,
    section="4.2",
    source="torchtitan torchtitan/distributed/fsdp.py (0.3.0), reshard policy",
    reads=("pp", "zero_stage", "reshard_after_forward", "dp", "cp", "dp_replicate"),
    confidence="read",
)
def pipeline_keeps_parameters(job: Job) -> Mask:
    """Under a pipeline many forwards pass before the first backward.

    Resharding after each of them gathers every layer twice a micro-batch, mostly unhidden.
    Keeping the parameters gathered costs memory and saves half of it.

    Fails: plan(pp=4, zero_stage=3)
    Passes: plan(pp=4, zero_stage=3, reshard_after_forward=False)
    """
    p = job.plan
    return (p.pp > 1) & p.reshard_after_forward & gathers_again(job)


@pipeline_keeps_parameters.message
def _(job: Job) -> str:
    return (
        f"pp {job.plan.pp} with zero_stage 3 and reshard_after_forward: two gathers of every "
        f"layer for each of {num_microbatches(job)} micro-batches"
    )


pipeline_keeps_parameters.fix(always(reshard_after_forward=(False,), zero_stage=(1,)))


@rule(
    "DAT215",
    "ZeRO-3 with many micro-batches",
    severity=Severity.WARNING,
    section="4.2",
    source="ZeRO (arXiv 1910.02054) section 7; PyTorch FSDP (arXiv 2304.11277)",
    reads=(
        *("zero_stage", "micro_batch_size", "dp", "cp", "pp", "dp_replicate"),
        "reshard_after_forward",
    ),
    confidence="paper",
    said_by=("CMP250", "COM216", "COM330", "COM331", "DAT214"),
    points=("zero_stage", "micro_batch_size", "gradient_accumulation_steps"),
)
def gathers_are_amortized(job: Job) -> Mask:
    """ZeRO-3 gathers parameters for each micro-batch; ZeRO-1 and 2 pay once a step.

    Fails: plan(zero_stage=3, global_batch_size=512, dp=64, micro_batch_size=1)
    Passes: plan(zero_stage=3, global_batch_size=512, dp=64, micro_batch_size=2)
    Passes: plan(zero_stage=1, global_batch_size=512, dp=64, micro_batch_size=1)
    """
    many = num_microbatches(job) > MAX_GATHERED_MICROBATCHES
    return many & gathers_again(job)


@gathers_are_amortized.message
def _(job: Job) -> str:
    count = num_microbatches(job)
    return f"zero_stage 3 gathers all parameters for each of {count} micro-batches a step"


@gathers_are_amortized.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    share = job.workload.global_batch_size // max(int(job.plan.dp), 1)
    most = MOST_TIMES_THE_BATCH * int(job.plan.micro_batch_size)
    fitting = [m for m in divisors(share) if share // m <= MAX_GATHERED_MICROBATCHES and m <= most]
    return {"micro_batch_size": tuple(fitting[:2]), "zero_stage": _stages_that_fit(job)}


def _stages_that_fit(job: Job) -> tuple[int, ...]:
    """ZeRO stages of whole weights whose states leave room on the device."""
    held = {
        1: job.plan.param_bytes + job.plan.grad_bytes,
        2: job.plan.param_bytes + job.plan.grad_bytes / shard_group(job.plan),
    }
    rest = state_bytes_per_parameter(job) - held[1]
    room = MOST_OF_DEVICE * job.cluster.gpu.memory_bytes / parameters_per_rank(job)
    fits = {stage: b + rest / shard_group(job.plan) < room for stage, b in held.items()}
    return tuple(stage for stage, fit in fits.items() if bool(np.all(fit)))


@rule(
    "DAT217",
    "Gradients reduced at every micro-batch",
    severity=Severity.WARNING,
    section="4.2",
    source="PyTorch DDP (arXiv 2006.15704) section 3.2.4",
    reads=("dp", "cp", "micro_batch_size", "zero_stage", "dp_replicate"),
    confidence="paper",
)
def gradients_meet_once(job: Job) -> Mask:
    """Where gradients are kept whole, one reduction after the last micro-batch is enough.

    Reducing at each multiplies the gradient traffic by their number. Sharded gradients must meet
    inside a replica each time, but replicas (HSDP) only at the end.

    Fails: plan(reduce_every_microbatch=True, zero_stage=1)
    Fails: plan(reduce_every_microbatch=True, zero_stage=3, dp_replicate=2)
    Passes: plan(reduce_every_microbatch=False, zero_stage=1)
    """
    if not job.workload.recipe.reduce_every_microbatch:
        return False
    p = job.plan
    whole = (p.zero_stage <= 1) | (p.dp_replicate > 1)
    return (p.dp * p.cp > 1) & (num_microbatches(job) > 1) & whole


@gradients_meet_once.message
def _(job: Job) -> str:
    among = "between replicas " if job.plan.zero_stage > 1 else ""
    return f"{num_microbatches(job)} gradient reductions {among}a step where 1 is enough"


gradients_meet_once.fix(always(reduce_every_microbatch=(False,)))


# The reduction itself


@rule(
    "DAT224",
    "Gradients summed in two bytes over many ranks",
    severity=Severity.WARNING,
    section="4.2",
    source="Megatron-Bridge docs/performance-guide.md (067f987d), communication data types",
    reads=("reduce_bytes", "dp", "cp"),
    confidence="doc",
)
def reduction_keeps_precision(job: Job) -> Mask:
    """A ring adds one rank after another, and in BF16 each sum keeps 8 bits.

    The noise grows with the group. Sum in FP32, send BF16 and add in FP32, or reduce in the
    switches, where the tree is shallow.

    Fails: plan(nodes=32, dp=256, reduce_bytes=2)
    Passes: plan(nodes=32, dp=256, reduce_bytes=4)
    Passes: plan(nodes=32, dp=256, reduce_bytes=2, use_sharp=True)
    """
    if job.workload.runtime.use_sharp:
        return False
    return (job.plan.reduce_bytes == 2) & (job.plan.dp * job.plan.cp >= MAX_BF16_REDUCTION)


@reduction_keeps_precision.message
def _(job: Job) -> str:
    p = job.plan
    ranks = p.dp * p.cp
    return (
        f"gradients of {ranks} ranks (dp {p.dp} x cp {p.cp}) are summed in {p.reduce_bytes} bytes"
    )


reduction_keeps_precision.fix(always(reduce_bytes=(4,)))


@rule(
    "DAT247",
    "Gradient reduction longer than the step",
    severity=Severity.WARNING,
    section="4.2",
    source="ring all-reduce moves 2(n-1)/n of the data (Thakur et al. 2005); DiLoCo (arXiv "
    "2311.08105)",
    reads=("dp", "cp", "tp", "pp", "reduce_bytes", "precision", "lora_rank"),
    confidence="arithmetic",
    said_by=("COM334",),
)
def reduction_fits_in_step(job: Job) -> Mask:
    """If the gradients need longer on the wire than the step computes, no overlap hides them.

    The step is as stated, or its matrix products at 40% of peak. Reduce in levels, compress, keep
    dp inside a site, or synchronize less often.

    Fails: plan(net_bytes_per_s=1e7, global_batch_size=64)
    Passes: plan(net_bytes_per_s=50e9, global_batch_size=64)
    """
    if job.workload.recipe.synchronization not in (None, "sync"):
        return False
    return (job.plan.dp * job.plan.cp > 1) & (_reduction_s(job) > step_time_s(job))


def _reduction_s(job: Job) -> Any:
    """Seconds that an all-reduce of the dense gradients needs by bandwidth alone."""
    ranks = np.maximum(job.plan.dp * job.plan.cp, 1)
    moved = 2 * (ranks - 1) / ranks * dense_gradient_bytes(job)
    return moved / data_parallel_bytes_per_s(job)


@reduction_fits_in_step.message
def _(job: Job) -> str:
    return (
        f"{format_bytes(float(dense_gradient_bytes(job)))} of gradients at "
        f"{format_rate(float(data_parallel_bytes_per_s(job)))} take "
        f"{format_duration(float(_reduction_s(job)))}, the step "
        f"{format_duration(float(step_time_s(job)))}"
    )


# Local and stale updates


@rule(
    "DAT245",
    "Local updates without an outer optimizer",
    severity=Severity.WARNING,
    section="4.2",
    source="DiLoCo (arXiv 2311.08105); Local SGD (arXiv 1805.09767)",
    confidence="paper",
)
def local_updates_have_outer_optimizer(job: Job) -> Mask:
    """Averaging parameters every few hundred steps loses quality; outer momentum regains it.

    DiLoCo uses Nesterov SGD on the difference of parameters.

    Fails: plan(synchronization="local_sgd", sync_interval_steps=100)
    Passes: plan(synchronization="diloco", sync_interval_steps=100, outer_optimizer="nesterov")
    """
    recipe = job.workload.recipe
    local = recipe.synchronization in LOCAL_METHODS
    return local and (recipe.sync_interval_steps or 1) > 1 and recipe.outer_optimizer is None


@local_updates_have_outer_optimizer.message
def _(job: Job) -> str:
    recipe = job.workload.recipe
    return (
        f"{recipe.synchronization} averages every {recipe.sync_interval_steps} steps without an "
        "outer optimizer"
    )


local_updates_have_outer_optimizer.fix(always(outer_optimizer=("nesterov",)))


@rule(
    "DAT246",
    "Local updates synchronized too rarely",
    severity=Severity.WARNING,
    section="4.2",
    source="DiLoCo (arXiv 2311.08105) section 3",
    confidence="paper",
)
def local_updates_meet_in_time(job: Job) -> Mask:
    """Loss rises with the number of local steps; published runs use 30 to 500.

    Fails: plan(synchronization="diloco", sync_interval_steps=2000, outer_optimizer="nesterov")
    Passes: plan(synchronization="diloco", sync_interval_steps=500, outer_optimizer="nesterov")
    """
    recipe = job.workload.recipe
    interval = recipe.sync_interval_steps or 1
    return recipe.synchronization in LOCAL_METHODS and interval > MAX_LOCAL_STEPS


@local_updates_meet_in_time.message
def _(job: Job) -> str:
    recipe = job.workload.recipe
    return f"{recipe.synchronization} synchronizes only every {recipe.sync_interval_steps} steps"


local_updates_meet_in_time.fix(always(sync_interval_steps=(100, 500)))


@rule(
    "DAT248",
    "Gradients staler than four steps",
    severity=Severity.WARNING,
    section="4.2",
    source="Chen et al. 2016, Revisiting Distributed Synchronous SGD (arXiv 1604.00981)",
    confidence="paper",
)
def gradients_are_fresh(job: Job) -> Mask:
    """Stale gradients slow convergence of large models or break it; language models train in sync.

    Fails: plan(synchronization="async", staleness_steps=8)
    Passes: plan(synchronization="async", staleness_steps=2)
    """
    recipe = job.workload.recipe
    return recipe.synchronization == "async" and (recipe.staleness_steps or 0) > MAX_STALENESS


@gradients_are_fresh.message
def _(job: Job) -> str:
    return f"asynchronous gradients lag up to {job.workload.recipe.staleness_steps} steps"


gradients_are_fresh.fix(always(synchronization=("sync",), staleness_steps=(MAX_STALENESS,)))
