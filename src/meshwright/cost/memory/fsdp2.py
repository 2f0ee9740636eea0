"""States of a stack whose sharded parameters are the master weights (FSDP2 as `train/` applies it).

What the optimizer updates is sharded under every ZeRO stage; copies in the format of the products
exist only gathered. ZeRO-1 and 2 keep what is gathered for the step, ZeRO-3 gives it up after each
pass, but not after the backward passes of a pipeline. Gradients that wait for a later reduction are
whole, in the format of the reduction. Source: torch 2.13, torch/distributed/fsdp/_fully_shard and
torch/distributed/pipelining/stage.py (`backward_maybe_with_nosync`, `perform_reduce_grad`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.states import EIGHT_BIT_STATE, HOST_GRADIENT, MOMENTS, Rates, rates
from meshwright.cost.schedules.catalogue import definitions
from meshwright.plan.job import (
    expert_data_parallel,
    expert_shard_group,
    num_microbatches,
    shard_group,
)
from meshwright.plan.plan import Optimizer, Precision, Schedule

if TYPE_CHECKING:
    from meshwright.cost.memory.stack import MemoryStack
    from meshwright.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What FSDP2 does under each plan; columns of booleans, and of bytes per parameter.

    `wrapped`: it is there at all. `keeps`: what is gathered for a forward pass stays. `waits`:
    gradients wait, whole, for a later reduction. `kept`, `compute` and `wire` are the widths of the
    parameters that the optimizer updates, of the gathered ones and of reduced gradients.
    """

    wrapped: Any
    keeps: Any
    waits: Any
    kept: Any
    compute: Any
    wire: Any


def rates_under(job: Job, stack: MemoryStack) -> Rates:
    """Bytes per parameter under the job's plan, as the stack keeps its states."""
    return sharded_rates(job) if stack.shards_masters else rates(job)


def sharded_rates(job: Job) -> Rates:
    """Bytes per parameter where the sharded parameters are the master weights."""
    plan, habits = job.plan, habits_of(job)
    zero = np.asarray(plan.zero_stage)
    groups = [np.where(zero > 0, g, 1) for g in (shard_group(plan), expert_shard_group(plan))]
    host = np.asarray(plan.offload_params)
    state = moments_of(job, habits.kept)
    share = np.maximum(plan.offload_optimizer, host)
    away = np.where(host, habits.kept, 0.0)
    gathered = np.where(habits.wrapped, habits.compute, 0.0)
    reduced = np.where(habits.wrapped, habits.compute + habits.wire, 0.0)
    waiting = waiting_bytes(habits)

    def over(value: Any) -> tuple[Any, Any]:
        return value / groups[0], value / groups[1]

    return Rates(
        weight=over(habits.kept - away),
        frozen=over(habits.kept - away),
        gradient=over(habits.kept - away),
        optimizer=over(state * (1.0 - share)),
        hosted=over(state * share + HOST_GRADIENT * share),
        hosted_weight=over(away),
        hosted_frozen=over(away),
        gathered=(gathered, gathered),
        reduced=(reduced, reduced),
        moment=over(moment_bytes(job, habits.kept)),
        shard=over(1.0),
        fp8_copy=rates(job).fp8_copy,
        waiting=(waiting, waiting),
    )


def habits_of(job: Job) -> Habits:
    """FSDP2's habits under the job's plan or plans."""
    plan = job.plan
    zero, piped = np.asarray(plan.zero_stage), np.asarray(plan.pp) > 1
    kept, compute, wire = widths(job)
    replicas = np.maximum(plan.dp * plan.cp, expert_data_parallel(plan) * job.model.is_moe)
    wrapped = (replicas > 1) | (kept != compute) | np.asarray(plan.offload_params)
    stays = ~np.asarray(plan.reshard_after_forward) | (piped & splits_backward(plan.schedule))
    again = (zero < 2) & (np.asarray(num_microbatches(job)) > 1)
    return Habits(
        wrapped=wrapped,
        keeps=wrapped & ((zero < 3) | stays),
        waits=wrapped & (again | piped),
        kept=kept,
        compute=compute,
        wire=wire,
    )


def widths(job: Job) -> tuple[Any, Any, Any]:
    """Bytes of what the optimizer updates, of what layers compute in, and of reduced gradients."""
    plan = job.plan
    full = np.asarray(plan.precision) == int(Precision.FP32)
    wide = np.asarray(plan.master_weights) | (np.asarray(plan.param_bytes) == 4) | full
    mixed = np.where(np.asarray(plan.reduce_bytes) == 4, 4.0, 2.0)
    return np.where(wide, 4.0, 2.0), np.where(full, 4.0, 2.0), np.where(full, 4.0, mixed)


def waiting_bytes(habits: Habits) -> Any:
    """Bytes per parameter of gradients that wait, in the format that they are kept in."""
    mixed = (habits.kept != habits.compute) | (habits.wire != habits.kept)
    return np.where(habits.waits, np.where(mixed, habits.wire, habits.compute), 0.0)


def moment_bytes(job: Job, kept: Any) -> Any:
    """Width of one tensor of the optimizer's state: Adam's are like the parameter."""
    adam = np.asarray(job.plan.optimizer) == int(Optimizer.ADAM)
    return np.where(adam, kept, job.plan.optimizer_state_bytes)


def moments_of(job: Job, kept: Any) -> Any:
    """Bytes of the optimizer's state per parameter, before sharding."""
    kinds = np.array([MOMENTS[k] for k in sorted(MOMENTS)])
    width = np.where(
        np.asarray(job.plan.optimizer) == int(Optimizer.ADAM_8BIT),
        EIGHT_BIT_STATE,
        moment_bytes(job, kept),
    )
    return kinds[np.asarray(job.plan.optimizer)] * width


def splits_backward(schedule: Any) -> Any:
    """True where input and weight gradients are apart."""
    table = np.zeros(len(Schedule), dtype=bool)
    for definition in definitions():
        table[definition.schedule] |= definition.splits_backward
    return table[np.asarray(schedule)]
