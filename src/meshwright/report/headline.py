"""The first lines of every answer: what was read, and what was assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.units import format_bytes, format_count, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.hardware.cluster import Cluster, Link
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job, Workload
    from meshwright.plan.plan import Plan


def read_line(job: Job) -> str:
    """Model with its parameters, cluster with its links, and what one step processes."""
    return "; ".join([model_words(job.model), cluster_words(job.cluster), step_words(job.workload)])


def assumed_line(assumptions: Iterable[str]) -> str:
    """Everything that was not said and taken for granted, on one line."""
    return "assuming " + ", ".join(text for text in assumptions if text)


def model_words(model: Model) -> str:
    """ "deepseek-v3, 671B parameters (37.6B active), 11.6B more to predict further tokens"."""
    from meshwright.model.count import parameters

    count = parameters(model, mtp=False)
    active = f" ({format_count(count.active)} active)" if model.is_moe else ""
    words = f"{model.name or 'model'}, {format_count(count.total)} parameters{active}"
    further = parameters(model).total - count.total
    return f"{words}, {format_count(further)} more to predict further tokens" if further else words


def cluster_words(cluster: Cluster) -> str:
    """ "64 x H100 (79.6 GiB), 8 nodes, nvlink 450 GB/s, infiniband 50.0 GB/s a GPU"."""
    nodes = f"{cluster.num_nodes:,} node{'s' if cluster.num_nodes > 1 else ''}"
    gpu = f"{cluster.num_gpus:,} x {cluster.gpu.name} ({format_bytes(cluster.gpu.memory_bytes)})"
    links = ", ".join(_link_words(link) for link in cluster.links)
    return ", ".join([gpu, nodes, *([f"{links} a GPU"] if links else [])])


def adapter_words(plan: Plan) -> str:
    """ "LoRA of rank 16 on 4-bit weights, the base frozen"; "" where every parameter trains."""
    rank, bits = int(plan.lora_rank), int(plan.base_weight_bits)
    if not rank:
        return ""
    on = f"{bits}-bit weights" if bits else "all linear layers"
    on = on if plan.lora_all_linear else f"{on}, attention only"
    return f"LoRA of rank {rank} on {on}, the base frozen"


def _link_words(link: Link) -> str:
    slower = f" {link.oversubscription:g}:1" if link.oversubscription > 1 else ""
    return f"{link.kind} {format_rate(link.bytes_per_s)}{slower}"


def step_words(workload: Workload) -> str:
    """ "512 sequences of 8,192 tokens a step (4.19M)"."""
    sequences, length = workload.global_batch_size, workload.seq_len
    return f"{sequences:,} x {length:,} tokens a step ({format_count(sequences * length)})"


def job_record(job: Job) -> dict[str, Any]:
    """What was asked, for JSON."""
    from meshwright.model.count import parameters

    count = parameters(job.model, mtp=False)
    return {
        "model": job.model.name,
        "parameters": count.total,
        "active_parameters": count.active,
        "mtp_parameters": parameters(job.model).total - count.total,
        "cluster": job.cluster.name,
        "gpu": job.cluster.gpu.name,
        "num_gpus": job.cluster.num_gpus,
        "gpus_per_node": job.cluster.gpus_per_node,
        "seq_len": job.workload.seq_len,
        "global_batch_size": job.workload.global_batch_size,
        "stack": job.stack,
    }
