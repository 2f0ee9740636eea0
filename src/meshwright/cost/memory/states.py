"""Weights, gradients, master weights and optimizer states under data-parallel sharding.

ZeRO (Rajbhandari et al., arXiv 1910.02054, section 5): stage 1 divides the optimizer's share, stage
2 the gradients too, stage 3 the weights too, each by the sharding group. Dense parameters are
sharded over dp*cp / dp_replicate, routed experts over their own data-parallel group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.shape import INPUT_BYTES
from meshwright.plan.job import expert_shard_group, shard_group
from meshwright.plan.plan import Optimizer, Precision

if TYPE_CHECKING:
    from meshwright.plan.job import Job

MOMENTS = {  # tensors of the optimizer's width per parameter
    Optimizer.ADAM: 2.0,
    Optimizer.ADAM_8BIT: 2.0,
    Optimizer.ADAFACTOR: 0.01,  # row and column statistics (arXiv 1804.04235)
    Optimizer.MUON: 1.0,  # momentum; embedding and head use Adam in practice
    Optimizer.SGD: 0.0,
    Optimizer.SGD_MOMENTUM: 1.0,
}
EIGHT_BIT_STATE = 1.0 + 4.0 / 256  # block-wise quantised moments, one fp32 scale in 256
NF4_OVERHEAD = 1.032  # double-quantised scales of QLoRA (arXiv 2305.14314, section 3)
HOST_GRADIENT = 4.0  # an optimizer on the host reads its gradients there (arXiv 2101.06840, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Bytes a parameter takes on a rank, columns over the plan; dense and expert apart.

    `weight` of a trained and `frozen` of an untrained parameter, `gradient`, `optimizer` on the
    device and `hosted` of the optimizer on the host with its gradients, `hosted_weight` of trained
    and `hosted_frozen` of untrained weights kept there, `gathered` of a parameter gathered for use
    (0 where weights are not sharded), `reduced` of a layer's gradients on their way, `moment` of
    one tensor of the optimizer, `shard` the number of parameters in the optimizer's shard per
    parameter, `fp8_copy` of a matrix weight's 8-bit copies, `waiting` of gradients that are kept
    whole for a later reduction.
    """

    weight: tuple[Any, Any]
    frozen: tuple[Any, Any]
    gradient: tuple[Any, Any]
    optimizer: tuple[Any, Any]
    hosted: tuple[Any, Any]
    hosted_weight: tuple[Any, Any]
    hosted_frozen: tuple[Any, Any]
    gathered: tuple[Any, Any]
    reduced: tuple[Any, Any]
    moment: tuple[Any, Any]
    shard: tuple[Any, Any]
    fp8_copy: Any
    waiting: tuple[Any, Any] = (0.0, 0.0)


def rates(job: Job) -> Rates:
    """Bytes per parameter under the job's plan."""
    plan = job.plan
    zero = np.asarray(plan.zero_stage)
    groups = shard_group(plan), expert_shard_group(plan)
    by_optimizer, by_gradient, by_weight = (
        tuple(np.where(zero >= stage, g, 1) for g in groups) for stage in (1, 2, 3)
    )
    resident = np.where(plan.offload_params, 0.0, plan.param_bytes)
    base = frozen_bytes(job)
    state, share = optimizer_state_bytes(job), np.asarray(plan.offload_optimizer)
    on_device = state * (1.0 - share)
    away = np.where(plan.offload_params, plan.param_bytes, 0.0)
    gradient_away = (zero >= 3) & (share > 0)  # its partition lies where the optimizer does
    compute = np.where(np.asarray(plan.precision) == int(Precision.FP32), 4.0, 2.0)
    sharded = tuple((zero >= 3) & (g > 1) for g in groups)
    return Rates(
        weight=_over(resident, by_weight),
        frozen=_over(np.where(plan.offload_params, 0.0, base), by_weight),
        gradient=_over(np.where(gradient_away, 0.0, plan.grad_bytes), by_gradient),
        optimizer=_over(on_device, by_optimizer),
        hosted=_over(
            state
            - on_device
            + HOST_GRADIENT * share
            + np.where(gradient_away, plan.grad_bytes, 0.0),
            by_optimizer,
        ),
        hosted_weight=_over(away, by_weight),
        hosted_frozen=_over(np.where(plan.offload_params, base, 0.0), by_weight),
        gathered=(np.where(sharded[0], compute, 0.0), np.where(sharded[1], compute, 0.0)),
        reduced=_reduced(job, groups, compute),
        moment=_over(_temporary_bytes(job), by_optimizer),
        shard=_over(1.0, by_optimizer),
        fp8_copy=_fp8_copy(job),
    )


def frozen_bytes(job: Job) -> Any:
    """Bytes of a weight that does not train, packed where the base is quantized."""
    plan = job.plan
    bits = np.asarray(plan.base_weight_bits)
    return np.where(bits > 0, bits / 8 * NF4_OVERHEAD, plan.param_bytes)


def optimizer_state_bytes(job: Job) -> Any:
    """Bytes of master copy and moments per updated parameter, before sharding."""
    plan = job.plan
    kinds = np.array([MOMENTS[k] for k in sorted(MOMENTS)])
    optimizer = np.asarray(plan.optimizer)
    eight_bit = optimizer == int(Optimizer.ADAM_8BIT)
    width = np.where(eight_bit, EIGHT_BIT_STATE, plan.optimizer_state_bytes)
    return np.where(plan.master_weights, 4.0, 0.0) + kinds[optimizer] * width


def _temporary_bytes(job: Job) -> Any:
    """Bytes per updated parameter of one temporary: Adam's denominator, none of other kinds."""
    adam = np.asarray(job.plan.optimizer) == int(Optimizer.ADAM)
    return np.where(adam, np.asarray(job.plan.optimizer_state_bytes), 0.0)


def _over(value: Any, groups: tuple[Any, ...]) -> tuple[Any, Any]:
    """A value divided by the dense and by the expert group."""
    return value / groups[0], value / groups[1]


def _reduced(job: Job, groups: tuple[Any, Any], compute: Any) -> tuple[Any, Any]:
    """Bytes per parameter of the buffers that reduce one layer's gradients under ZeRO-2 and 3."""
    plan = job.plan
    zero = np.asarray(plan.zero_stage)
    width = compute + np.where(zero >= 3, plan.reduce_bytes, plan.grad_bytes)
    dense, expert = (np.where((zero >= 2) & (g > 1), width, 0.0) for g in groups)
    return dense, expert


def _fp8_copy(job: Job) -> Any:
    """Bytes per matrix weight of 8-bit or narrower copies, one for each direction of use.

    Transformer Engine keeps the row-wise and the column-wise copy beside a 16-bit weight, and the
    second beside an 8-bit one. Blackwell multiplies 8-bit matrices in any layout, so that one copy
    scaled as a whole serves both directions. Gathered weights (ZeRO-3) are copied and freed layer
    by layer.
    """
    plan = job.plan
    precision = np.asarray(plan.precision)
    width = np.array([INPUT_BYTES[p] for p in sorted(INPUT_BYTES)])[precision]
    any_layout = job.cluster.gpu.generation.startswith("blackwell")
    directions = np.where((precision == int(Precision.FP8)) & any_layout, 1.0, 2.0)
    copies = directions - np.where(np.asarray(plan.param_bytes) > 1, 0.0, 1.0)
    shards = np.where(np.asarray(plan.zero_stage) >= 3, shard_group(plan), 1)
    return np.where(precision >= int(Precision.FP8), copies * width / shards, 0.0)
