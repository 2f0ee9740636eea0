"""Figures of memory and time, for `figures`: bytes by moment, seconds by cause, what would fit."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.rules.estimate import total_parameters
from meshwright.rules.predicted import (
    GIB,
    SAFE_HOST_SHARE,
    SAFE_SHARE,
    whole_gradient_bytes,
)
from meshwright.rules.same import Alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from meshwright.cost.memory.moments import Moment, Moments
    from meshwright.cost.predict import Prediction
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading
    from meshwright.plan.job import Job

Figure = float | int | str
FACTORS = (1, 2, 4, 8, 16)  # times as many GPUs, tried for one that fits
LEAST_SHARE = 0.01
MOST_EP = 64  # tried for one that fits


def cost_figures(reading: Reading, drafted: Drafted) -> Mapping[str, Figure | None]:
    """Figures by name, as far as what they hang on is known; none of a plan that cannot be laid.

    Memory where the sequence length or recompute is not stated is a lower bound: of short
    sequences, of full recompute.
    """
    missing = set(drafted.missing)
    job = drafted.other if missing & {"seq_len", "recompute"} else drafted.job
    found: dict[str, Figure | None] = _per_parameter(reading, drafted)
    if "model" in missing:
        return found
    found |= _model_sizes(job)
    if "num_gpus" in missing or not is_laid(job):
        return found
    try:
        found |= _memory(job)
        if "gpu" not in missing:
            found |= _fit(job)
        if not missing & {"gpu", "seq_len"}:
            found |= _time(drafted.job)
    except (MeshwrightError, ArithmeticError, ValueError, IndexError):
        return found  # a plan that a rule refuses may have no cost
    assumed = job.workload.seq_len if "seq_len" in missing else None
    return {**found, "memory.assumed_seq_len": assumed}


def heads(job: Job, missing: Iterable[str]) -> dict[str, float]:
    """Peak memory in GiB and seconds of a step, as far as nothing they hang on is missing."""
    lacking = set(missing)
    found: dict[str, float] = {}
    if lacking & {"model", "num_gpus", "seq_len"} or not is_laid(job):
        return found
    try:
        found["peak_gib"] = moments_of(job).steady_bytes / GIB
        if "gpu" not in lacking:
            found["step_time_s"] = step_s(job)
    except (MeshwrightError, ArithmeticError, ValueError, IndexError):
        return found
    return found


def is_laid(job: Job) -> bool:
    """Whether the plan's mesh covers the GPUs and every stage has a layer."""
    plan = job.plan.row(0)
    mesh = int(plan.tp) * int(plan.pp) * int(plan.cp) * int(plan.dp)
    stages = int(plan.pp) * int(plan.vpp)
    return mesh == job.cluster.num_gpus and stages <= max(job.model.num_hidden_layers, 1)


# Sizes that hang on the model alone


def _per_parameter(reading: Reading, drafted: Drafted) -> dict[str, Figure | None]:
    """Bytes of states a trained parameter takes, unsharded and under the plan's sharding."""
    from meshwright.cost.memory.states import optimizer_state_bytes, rates

    job, plan = drafted.job, drafted.job.plan
    whole = float(plan.param_bytes + plan.grad_bytes + optimizer_state_bytes(job))
    known = "num_gpus" not in drafted.missing or reading.is_stated("dp")
    each = rates(job)
    sharded = float(each.weight[0] + each.gradient[0] + each.optimizer[0] + each.hosted[0])
    return {
        "bytes_per_parameter_unsharded": whole,
        "bytes_per_parameter": sharded if known else None,
    }


def checkpoint_bytes(job: Job) -> float:
    """Bytes of weights, master weights and moments in a checkpoint; adapters alone under LoRA."""
    from meshwright.cost.memory.states import optimizer_state_bytes

    plan = job.plan
    each = float(plan.param_bytes) + float(optimizer_state_bytes(job))
    return total_parameters(job.model) * each


def _model_sizes(job: Job) -> dict[str, Figure | None]:
    """Parameters, and a checkpoint of them with the time that writing it takes at a known rate."""
    size = checkpoint_bytes(job)
    rate = job.workload.loading.checkpoint_write_bytes_per_s_per_node
    rate = rate or job.cluster.host.storage_bytes_per_s
    return {
        "parameters": total_parameters(job.model),
        "weights_bytes": float(total_parameters(job.model) * int(job.plan.param_bytes)),
        "checkpoint_bytes": size,
        "checkpoint_write_s": size / (rate * job.cluster.num_nodes) if rate else None,
    }


# Memory


@lru_cache(maxsize=8)
def _moments_of(alike: Alike) -> Moments:
    from meshwright.cost.memory.moments import moments

    return moments(alike.job)


def by_row(job: Job, judge: Callable[[Job], bool]) -> Any:
    """A judgement of one plan, or of every row of a column; False where a plan cannot be laid."""
    if len(job.plan) == 1:
        return np.bool_(is_laid(job) and judge(job))
    rows = (job.with_plan(job.plan.row(i)) for i in range(len(job.plan)))
    return np.array([is_laid(row) and judge(row) for row in rows], dtype=bool)


def moments_of(job: Job) -> Moments:
    """The job's moments, computed once for all who ask."""
    return _moments_of(Alike(job))


def certain_moments(job: Job) -> tuple[Moment, ...]:
    """The moments without the load, where nothing states how the model is built."""
    known = job.workload.loading.model_build is not None
    return tuple(m for m in moments_of(job).moments if known or m.name != "load")


def _memory(job: Job) -> dict[str, Figure | None]:
    """Bytes of the fullest rank at every moment, and what a device and a host must have."""
    from meshwright.cost.memory import memory

    found = moments_of(job)
    used = memory(job)
    by_moment = {f"memory.{m.name}_bytes": m.fullest_bytes for m in found.moments}
    fullest = max(certain_moments(job), key=lambda m: m.fullest_bytes)
    parts = {
        f"memory.peak.{name.replace(' ', '_')}_bytes": value
        for name, value in fullest.terms[fullest.stage].items()
    }
    return {
        **by_moment,
        **parts,
        "peak_gib": found.steady_bytes / GIB,
        "memory.peak_bytes": found.steady_bytes,
        "memory.device_bytes": float(used.device_bytes),
        "memory.required_bytes": float(used.required_bytes),
        "memory.most_bytes": max(m.fullest_bytes for m in certain_moments(job))
        * (1 + found.reserve_share)
        + found.outside_bytes,
        "memory.load_device_bytes": found.named("load").fullest_bytes + found.outside_bytes,
        "memory.outside_bytes": found.outside_bytes,
        "memory.fullest_stage": int(used.stage),
        "memory.activations_bytes": activation_bytes(job),
        "host.load_bytes": found.named("load").host_bytes,
        "host.steady_bytes": found.named("forward").host_bytes,
        "host.checkpoint_bytes": found.named("checkpoint").host_bytes,
        "host.peak_bytes": found.fullest_host.host_bytes,
    }


def activation_bytes(job: Job) -> float:
    """Activations and logits that the fullest rank holds at once, in bytes."""
    from meshwright.cost.memory import memory

    used = memory(job)
    prefix = f"memory.stage{int(used.stage)}."
    return float(used.terms[prefix + "activations"] + used.terms[prefix + "logits"])


def fit_of(job: Job) -> str:
    """ "yes", "tight" where its bound leaves no headroom, "no" where the estimate does not fit."""
    from meshwright.cost.memory import memory

    found, used = moments_of(job), memory(job)
    room = job.cluster.gpu.memory_bytes
    host_room = job.cluster.host.memory_bytes
    certain = certain_moments(job)
    if any(m.fullest_bytes + found.outside_bytes > room for m in certain):
        return "no"
    if any(m.host_bytes > host_room for m in certain):
        return "no"
    plan = job.plan
    if float(used.peak_bytes) + found.outside_bytes + float(whole_gradient_bytes(job)) > room:
        return "no"
    away = float(np.max(plan.offload_optimizer)) > 0 or bool(np.any(plan.offload_params))
    if away and any(m.host_bytes > SAFE_HOST_SHARE * host_room for m in certain):
        return "tight"
    return "yes" if float(used.required_bytes) <= SAFE_SHARE * room else "tight"


def larger(job: Job, factor: int) -> Job:
    """The job on `factor` times the nodes and replicas, with as much work for each GPU."""
    cluster = replace(job.cluster, num_gpus=job.cluster.num_gpus * factor)
    work = replace(job.workload, global_batch_size=job.workload.global_batch_size * factor)
    plan = job.plan.replace(dp=job.plan.dp * factor)
    return replace(job, cluster=cluster, workload=work, plan=plan)


def _fit(job: Job) -> dict[str, Figure | None]:
    """Whether the plan fits the device and the host, here and on more GPUs."""
    tried = {f: fit_of(larger(job, f)) for f in FACTORS[:3]}
    gpus = job.cluster.num_gpus
    return {
        "gpu_memory_bytes": float(job.cluster.gpu.memory_bytes),
        "host_memory_bytes": float(job.cluster.host.memory_bytes),
        "fits": tried[1],
        **{f"fits_on_{gpus * f}_gpus": answer for f, answer in tried.items()},
        "least_gpus_that_fit": least_gpus(job),
        **_fit_by_experts(job),
    }


def _fit_by_experts(job: Job) -> dict[str, Figure | None]:
    """Whether the plan fits with its experts spread over other numbers of ranks."""
    if not job.model.is_moe:
        return {}
    plan = job.plan
    ranks = int(plan.tp) * int(plan.cp) * int(plan.dp) // max(int(plan.etp), 1)
    found: dict[str, Figure | None] = {}
    ep = 1
    while ep <= min(ranks, MOST_EP):
        if ranks % ep == 0:
            found[f"fits_with_ep_{ep}"] = fit_of(job.with_plan(plan.replace(ep=ep)))
        ep *= 2
    return found


def least_gpus(job: Job) -> int | None:
    """The fewest GPUs, by doubling replicas, on which even the bound fits."""
    return next(
        (job.cluster.num_gpus * f for f in FACTORS if fit_of(larger(job, f)) == "yes"), None
    )


# Time


@lru_cache(maxsize=8)
def _prediction(alike: Alike) -> Prediction:
    from meshwright.cost.predict import predict

    return predict(alike.job)


def prediction_of(job: Job) -> Prediction:
    """The job's prediction, computed once for all who ask."""
    return _prediction(Alike(job))


def step_s(job: Job) -> float:
    """Predicted seconds of a step."""
    return prediction_of(job).step_time_s


def leaves(prediction: Prediction) -> Iterator[tuple[str, float]]:
    """Exclusive parts of a step: name without "time.", seconds."""
    names = [n for n in prediction.terms if n.startswith("time.")]
    for name in names:
        if not any(other.startswith(name + ".") for other in names):
            yield name.removeprefix("time."), prediction.terms[name].value


def _time(job: Job) -> dict[str, Figure | None]:
    """Seconds a step, the rate that makes, and the share of every cause."""
    found = prediction_of(job)
    tokens = job.workload.global_batch_size * job.workload.seq_len
    shares = {
        f"share.{name}": round(seconds / found.step_time_s, 4)
        for name, seconds in leaves(found)
        if seconds > LEAST_SHARE * found.step_time_s
    }
    return {
        "step_time_s": found.step_time_s,
        "step_low_s": found.low_s,
        "step_high_s": found.high_s,
        "tokens_per_s_per_gpu": tokens / found.step_time_s / job.cluster.num_gpus,
        "mfu": found.mfu,
        "bottleneck": found.limited_by,
        **shares,
        **_instead(job),
    }


def _instead(job: Job) -> dict[str, Figure | None]:
    """How many times as fast this plan is as others of the same batch: other tp, less sharding.

    Also its speed as a share of that with NVLink, where the node has none.
    """
    found: dict[str, Figure | None] = {}
    plan = job.plan
    for tp in sorted({int(plan.tp) * 2, max(int(plan.tp) // 2, 1)} - {int(plan.tp)}):
        dp = int(plan.dp) * int(plan.tp) / tp
        if dp == int(dp) >= 1 and tp <= job.cluster.gpus_per_node:
            other = job.with_plan(plan.replace(tp=tp, dp=int(dp), etp=min(int(plan.etp), tp)))
            found[f"speedup_over_tp{tp}"] = 1 / faster_by(job, other)
    if int(plan.zero_stage) >= 3 and int(plan.dp) > 1:
        found["speedup_unsharded"] = faster_by(job, job.with_plan(plan.replace(zero_stage=1)))
    if job.cluster.links[0].kind == "pcie":
        found["speed_against_nvlink"] = 1 / faster_by(job, with_links_like_nvlink(job))
    return {name: value for name, value in found.items() if value == value}  # not NaN


def faster_by(job: Job, other: Job) -> float:
    """How many times as fast the other job's tokens pass, NaN where it has no cost."""
    try:
        here, there = step_s(job), step_s(other)
    except (MeshwrightError, ArithmeticError, ValueError, IndexError):
        return float("nan")
    work = other.workload.global_batch_size / job.workload.global_batch_size
    return float(np.divide(here, there) * work)


FAST_LINK_BYTES_PER_S = 300e9  # NVLink 3, a GPU and direction


def with_links_like_nvlink(job: Job) -> Job:
    """The job on nodes whose GPUs are joined by NVLink with a switch."""
    links = job.cluster.links
    fast = replace(
        links[0],
        name="NVLink",
        kind="nvlink",
        domain=max(job.cluster.gpus_per_node, links[0].domain),
        bytes_per_s=max(FAST_LINK_BYTES_PER_S, links[0].bytes_per_s),
        peer_bytes_per_s=0.0,
    )
    outer = tuple(link for link in links[1:] if link.domain > job.cluster.gpus_per_node)
    return replace(job, cluster=replace(job.cluster, links=(fast, *outer)))
