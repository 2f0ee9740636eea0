"""COM2xx, third part: gathers of sharded parameters that wait for latency instead of bandwidth.

Section 7.2 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration
from meshwright.plan.job import shard_group
from meshwright.plan.plan import Precision
from meshwright.rules.estimate import group_bytes_per_s, parameters_per_rank
from meshwright.rules.nearest import divisors
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

GATHERED_BYTES = 2  # a parameter travels in 16 bits, however wide the rank keeps it


def gathered_bytes(job: Job) -> Any:
    """Bytes that gathering an average rank's parameters once brings to it.

    Shards in fp32 are cast before they travel, unless the products are in fp32; frozen weights of
    QLoRA travel packed.
    """
    plan = job.plan
    exact = np.asarray(plan.precision) == int(Precision.FP32)
    width = np.where(exact, plan.param_bytes, np.minimum(plan.param_bytes, GATHERED_BYTES))
    packed = plan.base_weight_bits / 8
    return parameters_per_rank(job) * np.where(plan.base_weight_bits > 0, packed, width)


def gathers_again(job: Job) -> Any:
    """True where sharded parameters are gathered for every micro-batch.

    Under a pipeline, parameters that are not resharded after the forward pass stay for the step.
    """
    plan = job.plan
    kept = (plan.pp > 1) & np.logical_not(plan.reshard_after_forward)
    return (plan.zero_stage == 3) & (shard_group(plan) > 1) & np.logical_not(kept)


def _layer_bytes(job: Job) -> Any:
    """Bytes of an average layer that one gather brings to a rank."""
    layers = max(job.model.num_hidden_layers, 1)
    return parameters_per_rank(job) * job.plan.pp / layers * GATHERED_BYTES


def _wire_s(job: Job) -> Any:
    """Seconds that the bytes of a layer need on the links of the sharding group."""
    group = shard_group(job.plan)
    return _layer_bytes(job) / group_bytes_per_s(job.cluster, group, job.plan.tp)


def _waiting_s(job: Job) -> Any:
    """Seconds of a gather that pass whatever its size: one network hop for each rank of a ring."""
    from meshwright.cost.collectives import latency_s, place

    return latency_s(place(job.cluster, shard_group(job.plan), job.plan.tp))


@rule(
    "COM220",
    "Gathers of parameters too small for their group",
    severity=Severity.WARNING,
    section="7.2",
    source="latency against bandwidth of a ring; PyTorch FSDP (arXiv 2304.11277) section 5.3",
    reads=("zero_stage", "dp", "cp", "tp", "ep", "etp", "pp", "dp_replicate"),
    confidence="arithmetic",
)
def layers_are_worth_a_gather(job: Job) -> Mask:
    """Each layer's all-gather passes every rank of the sharding group, one hop after the other.

    In a large group the small messages of a small layer wait for latency more than for bandwidth,
    and more nodes make the step slower. Shard over fewer ranks and replicate across (HSDP, hpZ,
    MiCS), or gather several layers in one message.

    Fails: plan(zero_stage=3, nodes=256, global_batch_size=4096)
    Passes: plan(zero_stage=3, nodes=8)
    Passes: plan(zero_stage=3, nodes=256, dp_replicate=32, global_batch_size=4096)
    """
    return (job.plan.zero_stage >= 3) & (_waiting_s(job) > _wire_s(job))


@layers_are_worth_a_gather.message
def _(job: Job) -> str:
    group = int(shard_group(job.plan))
    return (
        f"all-gather of parameters in small messages: a layer's {format_bytes(_layer_bytes(job))} "
        f"over {group} ranks ({format_bytes(_layer_bytes(job) / group)} each) wait "
        f"{format_duration(float(_waiting_s(job)))} for latency, and "
        f"{format_duration(float(_wire_s(job)))} for bandwidth"
    )


@layers_are_worth_a_gather.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    plan = job.plan
    ranks = int(plan.dp * plan.cp)
    for replicas in divisors(ranks):
        other = job.with_plan(plan.replace(dp_replicate=np.int64(replicas)))
        if replicas > plan.dp_replicate and not bool(layers_are_worth_a_gather.condition(other)):
            return {"dp_replicate": (replicas,)}
    return {}
