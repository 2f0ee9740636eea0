"""Predicted memory for the rules that weigh it, computed once for all of them.

Such rules are marked `predictive`: a search predicts memory anyway and leaves them out.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.model.count import parameters
from meshwright.plan.job import num_microbatches, shard_group
from meshwright.plan.plan import Plan
from meshwright.rules.same import Same

if TYPE_CHECKING:
    from meshwright.cost.memory import Memory
    from meshwright.plan.job import Job

EVERY_FIELD = tuple(f.name for f in fields(Plan))  # a prediction depends on the whole plan
GIB = 2.0**30
FULL_SHARE = 1.0  # of the device's memory: the estimate itself does not fit
SAFE_HOST_SHARE = 0.75  # of the host's: pinned buffers are rounded up, loaders take their part
SAFE_SHARE = 0.95  # the bound of the estimate leaves this little to what it does not know
_STATES = ("weights", "gradients", "optimizer", "weights.fp8_copies")


@lru_cache(maxsize=4)
def _memory(same: Same) -> Memory:
    """The prediction for one of the jobs asked about last."""
    from meshwright.cost.memory import memory

    plan = same.job.plan
    if np.ndim(plan.pp) == 0 and len(plan) == 1:
        return memory(same.job.with_plan(plan.replace(pp=np.atleast_1d(plan.pp))))
    return memory(same.job)


def predicted_memory(job: Job) -> Memory:
    """The cost model's memory of the job's plan or plans; one plan is a column of one row.

    So one plan is judged by the same representative pipeline ranks as a column.
    """
    return _memory(Same(job))


def figure(job: Job, name: str) -> Any:
    """A field of the predicted memory, such as "peak_bytes": one value or a column."""
    value = np.asarray(getattr(predicted_memory(job), name))
    return value[0] if len(job.plan) == 1 and value.shape == (1,) else value[()]


def peak_bytes(job: Job) -> Any:
    """Predicted peak of the fullest rank, in bytes."""
    return figure(job, "peak_bytes")


def outside_bytes(job: Job) -> Any:
    """Memory that the framework's allocator never sees: context, communicators; in bytes."""
    return figure(job, "device_bytes") - figure(job, "reserved_bytes")


def state_bytes(job: Job) -> Any:
    """Weights, gradients and optimizer states on the rank that holds most of them, in bytes."""
    terms = predicted_memory(job).terms
    ranks = dict.fromkeys(name.split(".")[1] for name in terms)
    per_rank = [sum(terms[f"memory.{rank}.{state}"] for state in _STATES) for rank in ranks]
    total = np.asarray(reduce(np.maximum, per_rank))
    return total[0] if len(job.plan) == 1 and total.shape == (1,) else total[()]


def overflows(job: Job, share: float = FULL_SHARE) -> Any:
    """True where the predicted peak, with what lies outside, exceeds this share of the memory."""
    return peak_bytes(job) + outside_bytes(job) > share * job.cluster.gpu.memory_bytes


def surely_overflows(job: Job) -> Any:
    """True where even the lower bound of the peak does not fit with what lies outside.

    It lies as far below the estimate as the stated upper bound lies above.
    """
    peak = peak_bytes(job)
    lower = 2 * peak - figure(job, "upper_bytes")
    return lower + outside_bytes(job) > job.cluster.gpu.memory_bytes


def whole_gradient_bytes(job: Job) -> Any:
    """Bytes of 16-bit gradients that stay unsharded while micro-batches accumulate, 0 if none do.

    Where the reduction waits for the last micro-batch (FSDP's `no_sync`), a rank keeps whole what
    it would otherwise keep as its share.
    """
    plan = job.plan
    if job.workload.recipe.reduce_every_microbatch is not False:
        return 0.0
    own = parameters(job.model).total / (np.asarray(plan.tp) * np.asarray(plan.pp))
    waits = (np.asarray(plan.zero_stage) >= 2) & (num_microbatches(job) > 1)
    sharded = waits & (shard_group(plan) > 1) & (np.asarray(plan.lora_rank) == 0)
    return np.where(sharded, 2.0 * own, 0.0)


def gib(number: Any) -> str:
    """Bytes as words: "61.2 GiB"."""
    return f"{float(number) / GIB:.1f} GiB"


def of_device(job: Job, number: Any) -> str:
    """Bytes beside the device's memory, as words."""
    return f"{gib(number)} on a device of {gib(job.cluster.gpu.memory_bytes)}"
