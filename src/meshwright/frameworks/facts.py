"""What follows from a job for the rules of one framework: variables that no setting states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.model.architecture import Experts
from meshwright.plan.job import expert_data_parallel, num_microbatches

if TYPE_CHECKING:
    from meshwright.frameworks.jobs import Drafted
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job

_CAPABILITY = {
    "pascal": 60,
    "volta": 70,
    "turing": 75,
    "ampere": 80,
    "ampere-consumer": 86,
    "ada": 89,
    "hopper": 90,
    "blackwell": 100,
    "blackwell-ultra": 103,
    "blackwell-consumer": 120,
}


def facts(drafted: Drafted) -> dict[str, Any]:
    """The variables that follow from a job whatever stands in for what is missing."""
    first = _facts(drafted.job)
    if drafted.other is drafted.job:
        return first
    second = _facts(drafted.other)
    unknown = {"gpus_per_node", "num_nodes"} if "num_gpus" in drafted.missing else set()
    return {
        name: value
        for name, value in first.items()
        if name not in unknown and second.get(name) == value
    }


def _facts(job: Job) -> dict[str, Any]:
    plan = job.plan
    return {
        "dp": int(plan.dp),
        "edp": int(expert_data_parallel(plan)),
        "num_microbatches": int(num_microbatches(job)),
        **_of_cluster(job.cluster),
        **_of_model(job.model),
        "seq_len": job.workload.seq_len,
        "global_batch_size": job.workload.global_batch_size,
    }


def _of_cluster(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_gpus": cluster.num_gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "num_nodes": -(-cluster.num_gpus // max(cluster.gpus_per_node, 1)),
        "nvlink_domain": cluster.links[0].domain if cluster.links else 1,
        "gpu_mem_bytes": cluster.gpu.memory_bytes,
        "num_sms": cluster.gpu.sm_count,
        "host_mem_bytes": cluster.host.memory_bytes,
        "host_cpu_cores": cluster.host.cores,
    }
    capability = _CAPABILITY.get(cluster.gpu.generation)
    return found if capability is None else {**found, "gpu_cc": capability}


def _of_model(model: Model) -> dict[str, Any]:
    attention = model.runs[0].block.attention
    experts = next(
        (r.block.feed_forward for r in model.runs if isinstance(r.block.feed_forward, Experts)),
        None,
    )
    return {
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "tie_word_embeddings": model.tie_word_embeddings,
        "model_ties_embeddings": model.tie_word_embeddings,
        "multi_latent_attention": attention.kv_lora_rank is not None,
        "model_family": model.family,
        "mtp_num_layers": sum(run.count for run in model.mtp),
        "routed_layers": _routed(model) if experts else None,
        "num_experts": experts.num_experts if experts else 0,
        "num_experts_per_tok": experts.top_k if experts else 0,
    }


_MOST_LAYERS = 10_000


def _routed(model: Model) -> tuple[bool, ...] | None:
    """Whether each layer has experts; None for more layers than any model has."""
    if model.num_hidden_layers > _MOST_LAYERS:
        return None
    return tuple(isinstance(block.feed_forward, Experts) for block in model.layers)
