"""Rules about predicted slowness: what takes which share of the step, and what would take less.

Task assignment and resource scheduling (6.2) and communication resources (7.3). The shares are
those of the cost model; where the configuration does not say enough for a prediction, the rules
that weigh volumes alone still speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration
from meshwright.plan.job import num_microbatches, shard_group
from meshwright.rules.communication.gathers import gathered_bytes, gathers_again
from meshwright.rules.communication.overlap import cannot_hide_gathers
from meshwright.rules.costed import (
    by_row,
    faster_by,
    fit_of,
    prediction_of,
    with_links_like_nvlink,
)
from meshwright.rules.estimate import (
    parameters_per_rank,
    state_bytes_per_parameter,
)
from meshwright.rules.predicted import EVERY_FIELD, gib
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

LARGE_SHARE = 0.2  # of the step, for one cause besides the matrix products
WORTH_CHANGING = 1.1  # times as fast
MANY_MICROBATCHES = 8
SPARE_SHARE = 0.5  # of the device, for the states of a whole replica
SMALL_MICRO_BATCH = 8192  # tokens: kernels of larger ones outlast their launches
SLOW_NETWORK_BYTES_PER_S = 12.5e9  # a node's 100 Gb/s
_ZERO = "ZeRO (arXiv 1910.02054) section 7"
_FSDP = "PyTorch FSDP (arXiv 2304.11277) section 4"
_MODEL = "the time model, docs/accuracy.md"


def _share(job: Job, *names: str) -> float:
    """Share of the predicted step that leaves of the time tree take together."""
    found = prediction_of(job)
    return sum(found.terms[f"time.{name}"].value for name in names) / found.step_time_s


def _takes(job: Job, *names: str) -> str:
    """ "takes 71% of a predicted step of 94 s"."""
    return (
        f"takes {_share(job, *names):.0%} of the step, which is predicted to take "
        f"{format_duration(prediction_of(job).step_time_s)}"
    )


def _spans_nodes(job: Job) -> Any:
    """Whether the ranks that share the model's state lie on more than one node."""
    reach = shard_group(job.plan) * job.plan.tp
    return reach > job.cluster.gpus_per_node


def _network_words(job: Job) -> str:
    """The slowest link that the sharding group crosses: "Ethernet between nodes, 10 Gb/s a GPU"."""
    links = job.cluster.links
    if bool(np.all(_spans_nodes(job))) and len(links) > 1:
        link, where = links[-1], "between nodes"
    else:
        link, where = next(iter(links)), f"inside a node ({links[0].kind})"
    return f"{link.name} {where} at {link.bytes_per_s / 1e9:.3g} GB/s a GPU"


# Sharded parameters


@rule(
    "COM330",
    "Gathering parameters dominates the step",
    severity=Severity.WARNING,
    section="7.3",
    source=f"{_ZERO}; {_FSDP}",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def gathers_are_hidden(job: Job) -> Mask:
    """ZeRO-3 gathers all weights in every forward and every backward pass, frozen ones too.

    Where they do not hide behind compute: replicate (ZeRO-1, DDP) what fits, shard inside a node
    only (HSDP, hpZ, MiCS), make fewer and larger micro-batches, or use a faster network.

    Fails: plan(zero_stage=3, net_bytes_per_s=1.5e8, net_kind="ethernet")
    Passes: plan(zero_stage=3)
    """
    sharded = job.plan.zero_stage >= 3
    if not np.any(sharded):
        return sharded
    return by_row(job, _gathers_dominate)


def _gathers_dominate(job: Job) -> bool:
    if int(job.plan.zero_stage) < 3 or int(shard_group(job.plan)) == 1:
        return False
    return _share(job, "communication.fsdp") > LARGE_SHARE


@gathers_are_hidden.message
def _(job: Job) -> str:
    whole = float(gathered_bytes(job))
    count = int(num_microbatches(job))
    where = "inter-node" if bool(np.all(_spans_nodes(job))) else "intra-node"
    return (
        f"{where} all-gather of parameters {_takes(job, 'communication.fsdp')}: "
        f"{format_bytes(whole)} of weights twice for each of {count} micro-batches, over "
        f"{_network_words(job)}{_alternatives(job)}"
    )


def _alternatives(job: Job) -> str:
    """What the same job would take under less sharding, where that fits."""
    found: list[str] = []
    for words, changes in _less_sharding(job):
        other = job.with_plan(job.plan.replace(**changes))
        factor = faster_by(job, other)
        if factor > WORTH_CHANGING and fit_of(other) != "no":
            found.append(f"{words} would be {factor:.1f} times as fast")
    return "; " + ", ".join(found) if found else ""


def _less_sharding(job: Job) -> list[tuple[str, dict[str, Any]]]:
    """Plans that gather less, in words."""
    nodes = int(shard_group(job.plan) * job.plan.tp) // job.cluster.gpus_per_node
    plans: list[tuple[str, dict[str, Any]]] = [("zero_stage 1", {"zero_stage": np.int64(1)})]
    replicated = int(job.plan.dp_replicate) * max(nodes, 1)
    if nodes > 1 and int(job.plan.dp) * int(job.plan.cp) % replicated == 0:
        plans.append(("sharding inside a node", {"dp_replicate": np.int64(replicated)}))
    return plans


@rule(
    "COM331",
    "Parameters gathered over the network",
    severity=Severity.INFO,
    section="7.3",
    source="ZeRO++ (arXiv 2306.10209) section 3.2; " + _FSDP,
    reads=(
        *("zero_stage", "dp", "cp", "tp", "pp", "dp_replicate", "param_bytes"),
        *("micro_batch_size", "precision", "reshard_after_forward", "base_weight_bits"),
    ),
    confidence="paper",
    needs=("model",),
)
def gathers_stay_in_node(job: Job) -> Mask:
    """Every pass gathers the weights between nodes; a copy inside each node would spare half of it.

    DeepSpeed's `zero_hpz_partition_size` (ZeRO++), MiCS and HSDP keep a second shard per node, for
    16-bit weights / GPUs of a node more memory on each card. Not said where a micro-batch is large
    enough to hide the gathers on this network.

    Fails: plan(zero_stage=3, net_bytes_per_s=5e9)
    Passes: plan(zero_stage=3, micro_batch_size=4, seq_len=8192)
    Passes: plan(zero_stage=3, nodes=1)
    Passes: plan(zero_stage=3, dp_replicate=8)
    """
    spans = (job.cluster.num_nodes > 1) & _spans_nodes(job)
    return gathers_again(job) & spans & cannot_hide_gathers(job)


@gathers_stay_in_node.message
def _(job: Job) -> str:
    whole = float(gathered_bytes(job))
    share = whole / job.cluster.gpus_per_node
    return (
        f"inter-node all-gather of parameters: {format_bytes(whole)} in each pass of each "
        f"micro-batch, over {_network_words(job)}; a copy per node takes {format_bytes(share)} "
        f"more on each GPU"
    )


@rule(
    "COM332",
    "Gradients of sharded state reduced in every micro-batch over a slow network",
    severity=Severity.WARNING,
    section="7.3",
    source=f"{_FSDP}; DeepSpeed deepspeed/runtime/zero/stage_1_and_2.py (0.17)",
    reads=("zero_stage", "dp", "cp", "tp", "pp", "micro_batch_size", "dp_replicate", "lora_rank"),
    confidence="read",
)
def reductions_wait_for_the_last(job: Job) -> Mask:
    """ZeRO-2 and 3 reduce gradients in every micro-batch, so accumulation saves no traffic.

    `no_sync` does nothing for sharded modules. Defer the all-reduce between replicas to the last
    micro-step, accumulate less, or replicate (ZeRO-1, DDP) so that one reduction a step is left.

    Fails: plan(zero_stage=3, dp_replicate=8, micro_batch_size=1, net_bytes_per_s=1.5e9,
        net_kind="ethernet")
    Passes: plan(zero_stage=3, dp_replicate=8, micro_batch_size=1)
    Passes: plan(zero_stage=1, micro_batch_size=1, net_bytes_per_s=1.5e9)
    """
    cluster = job.cluster
    node_rate = cluster.links[-1].bytes_per_s * cluster.gpus_per_node
    if cluster.num_nodes == 1 or node_rate > SLOW_NETWORK_BYTES_PER_S:
        return False
    spans = job.plan.dp * job.plan.cp * job.plan.tp > cluster.gpus_per_node
    every = (job.plan.zero_stage >= 2) & (job.plan.lora_rank == 0)
    return every & spans & (num_microbatches(job) > 1)


@reductions_wait_for_the_last.message
def _(job: Job) -> str:
    link = job.cluster.links[-1]
    count = int(num_microbatches(job))
    return (
        f"gradients are reduced between nodes in every one of {count} micro-steps, over "
        f"{link.name} at {link.bytes_per_s / 1e9:.3g} GB/s a GPU: a step takes about {count} "
        f"times as long as one micro-step"
    )


@rule(
    "CMP250",
    "Sharded although the model fits one device",
    severity=Severity.WARNING,
    section="6.2",
    source=f"{_ZERO}; {_FSDP}",
    reads=(
        *("zero_stage", "dp", "cp", "tp", "pp", "ep", "etp", "micro_batch_size", "dp_replicate"),
        *("param_bytes", "grad_bytes", "master_weights", "optimizer_state_bytes"),
        "reshard_after_forward",
    ),
    confidence="arithmetic",
    needs=("model",),
)
def sharding_is_needed(job: Job) -> Mask:
    """Fully sharded parameters are gathered for each micro-batch; replicas pay once a step.

    Where weights, gradients and optimizer states of a whole replica take less than half of the
    device, use DDP or ZeRO-1; otherwise larger micro-batches, so that fewer gathers are needed.

    Fails: plan(model="llama-3-8b", num_hidden_layers=4, zero_stage=3, global_batch_size=1024)
    Passes: plan(model="llama-3-8b", num_hidden_layers=4, zero_stage=1, global_batch_size=1024)
    Passes: plan(model="llama-3-70b", zero_stage=3, global_batch_size=1024)
    """
    fits = _replica_bytes(job) < SPARE_SHARE * job.cluster.gpu.memory_bytes
    many = num_microbatches(job) >= MANY_MICROBATCHES
    return gathers_again(job) & fits & many


def _replica_bytes(job: Job) -> Any:
    """States of a whole replica on a rank, unsharded."""
    return parameters_per_rank(job) * state_bytes_per_parameter(job)


@sharding_is_needed.message
def _(job: Job) -> str:
    count = int(num_microbatches(job))
    return (
        f"FSDP communication for {count} small micro-batches a step, each of which gathers all "
        f"weights, although the states of a replica are {gib(_replica_bytes(job))} on a device of "
        f"{gib(job.cluster.gpu.memory_bytes)}"
    )


sharding_is_needed.fix(always(zero_stage=(1,)))


# Links


@rule(
    "COM333",
    "Collectives inside the node run over PCIe",
    severity=Severity.WARNING,
    section="7.3",
    source="InternLM training reports on A100 with and without NVLink; " + _MODEL,
    reads=EVERY_FIELD,
    confidence="heuristic",
    predictive=True,
)
def node_has_fast_links(job: Job) -> Mask:
    """Without NVLink between the GPUs of a node, every intra-node collective takes PCIe.

    More micro-batches a step amortize the reduction of gradients and the broadcast of parameters;
    overlap hides what is left. Tensor parallelism should be as small as memory allows.

    Fails: plan(nodes=1, tp=8, link_kind="pcie", link_bytes_per_s=1.3e10)
    Passes: plan(nodes=1, tp=8)
    """
    if job.cluster.links[0].kind != "pcie" or job.cluster.num_gpus == 1:
        return False
    return by_row(job, lambda one: faster_by(one, with_links_like_nvlink(one)) > WORTH_CHANGING)


@node_has_fast_links.message
def _(job: Job) -> str:
    factor = faster_by(job, with_links_like_nvlink(job))
    link = job.cluster.links[0]
    return (
        f"intra-node collectives over PCIe ({link.name}, {link.bytes_per_s / 1e9:.3g} GB/s a GPU): "
        f"predicted {1 / factor:.2f} of the speed that NVLink gives, "
        f"{_takes(job, *_COMMUNICATION).removeprefix('takes ')}"
    )


_COMMUNICATION = tuple(f"communication.{axis}" for axis in ("tp", "cp", "ep", "pp", "dp", "fsdp"))


def _where(condition: Any, job: Job, name: str, *, share: float = LARGE_SHARE) -> Any:
    """Where a condition holds and one cause takes more than a share of the step."""
    if not np.any(condition):
        return condition
    return condition & by_row(job, lambda one: _share(one, name) > share)


@rule(
    "COM334",
    "Reduction of gradients dominates the step",
    severity=Severity.WARNING,
    section="7.3",
    source=f"{_ZERO}; PyTorch DDP (arXiv 2006.15704) section 3.2",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def reduction_is_hidden(job: Job) -> Mask:
    """Gradients are reduced once a step; a larger batch a step amortizes it.

    Accumulate more micro-batches, overlap the reduction with the backward pass, reduce in 16 bits.

    Fails: plan(dp=64, global_batch_size=64, net_bytes_per_s=3e8)
    Passes: plan(dp=64)
    """
    return _where(job.plan.dp * job.plan.cp > 1, job, "communication.dp")


@reduction_is_hidden.message
def _(job: Job) -> str:
    return (
        f"reducing gradients over {int(job.plan.dp)} replicas {_takes(job, 'communication.dp')}, "
        f"with {int(num_microbatches(job))} micro-batches to hide behind, over "
        f"{_network_words(job)}"
    )


@rule(
    "COM335",
    "Tensor-parallel collectives dominate the step",
    severity=Severity.WARNING,
    section="7.3",
    source="Megatron-LM (arXiv 2104.04473) section 3.2; " + _MODEL,
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def tensor_collectives_are_small(job: Job) -> Mask:
    """Two collectives a layer and pass block the GPU; across nodes they cost most of the step.

    Lower tp as far as memory allows, and put what is left on pipeline or data parallelism.

    Fails: plan(tp=16, nodes=2)
    Passes: plan(model="llama-3-70b", tp=4, pp=2)
    """
    return _where(job.plan.tp > 1, job, "communication.tp", share=2 * LARGE_SHARE)


@tensor_collectives_are_small.message
def _(job: Job) -> str:
    tp, per_node = int(job.plan.tp), job.cluster.gpus_per_node
    where = f" on {tp // per_node} nodes" if tp > per_node else ""
    return f"tensor-parallel communication of tp = {tp}{where} {_takes(job, 'communication.tp')}"


@rule(
    "COM336",
    "Expert all-to-all dominates the step",
    severity=Severity.WARNING,
    section="7.3",
    source="DeepSeek-V3 (arXiv 2412.19437) section 3.2.1; " + _MODEL,
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def dispatch_is_hidden(job: Job) -> Mask:
    """Tokens travel to their experts and back in every routed layer and pass.

    Keep ep inside a node, overlap the exchange, limit the nodes a token may visit.

    Fails: plan(model="qwen3-30b-a3b", ep=64, net_bytes_per_s=1e10)
    Passes: plan(model="qwen3-30b-a3b", ep=1, zero_stage=3)
    """
    return _where(job.plan.ep > 1, job, "communication.ep", share=2 * LARGE_SHARE)


@dispatch_is_hidden.message
def _(job: Job) -> str:
    return f"expert all-to-all of ep = {int(job.plan.ep)} {_takes(job, 'communication.ep')}"


@rule(
    "CMP251",
    "Transfers to the host dominate the step",
    severity=Severity.WARNING,
    section="6.2",
    source="ZeRO-Infinity (arXiv 2104.07857) section 4",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def offload_is_hidden(job: Job) -> Mask:
    """Parameters, states or activations on the host cross PCIe, and its cores run the optimizer.

    Offload less, give each pass more tokens, or accumulate more passes a step.

    Fails: plan(zero_stage=3, offload_params=True, host_bytes_per_s_per_gpu=1e9)
    Fails: plan(zero_stage=3, offload_optimizer=1.0, host_bytes_per_s_per_gpu=1e9)
    Passes: plan(zero_stage=3, offload_params=True, host_bytes_per_s_per_gpu=2e11)
    """
    plan = job.plan
    offloads = (plan.offload_optimizer > 0) | plan.offload_params | (plan.offload_activations > 0)
    if not np.any(offloads):
        return offloads
    return offloads & by_row(job, lambda one: _share(one, *_of_host(one)) > LARGE_SHARE)


def _of_host(job: Job) -> tuple[str, ...]:
    """What of the step the host takes: transfers, and the optimizer where it is offloaded."""
    stepped = bool(np.any(np.asarray(job.plan.offload_optimizer) > 0))
    return ("communication.host", "optimizer") if stepped else ("communication.host",)


@offload_is_hidden.message
def _(job: Job) -> str:
    rate = job.cluster.host.bytes_per_s_per_gpu / 1e9
    names = _of_host(job)
    both = " with the optimizer's step on the CPU" if len(names) > 1 else ""
    return f"CPU offload, transfer over {rate:.3g} GB/s a GPU{both}, {_takes(job, *names)}"


@rule(
    "CMP252",
    "GPU waits for the host to launch kernels",
    severity=Severity.WARNING,
    section="6.2",
    source=_MODEL,
    reads=EVERY_FIELD,
    confidence="heuristic",
    predictive=True,
)
def launches_are_hidden(job: Job) -> Mask:
    """Kernels of small micro-batches end before the host has launched the next.

    Larger micro-batches, CUDA graphs or a compiled model help; so does less tensor parallelism.

    Fails: plan(seq_len=128, tp=8, micro_batch_size=1)
    Passes: plan(seq_len=8192, tp=1, micro_batch_size=1)
    """
    tokens = job.plan.micro_batch_size * job.workload.seq_len
    return _where(tokens <= SMALL_MICRO_BATCH, job, "compute.host")


@launches_are_hidden.message
def _(job: Job) -> str:
    tokens = int(job.plan.micro_batch_size) * job.workload.seq_len
    return f"launching kernels for micro-batches of {tokens} tokens {_takes(job, 'compute.host')}"
