"""The catalogue's variables of model and compute rules, for a job of one plan."""

from __future__ import annotations

from typing import Any

from conditions import neutral

from meshwright.model.count import parameters
from meshwright.plan.job import Job, expert_data_parallel, num_microbatches
from meshwright.plan.plan import ContextParallel, Precision, Recompute, RecomputeModule

SCHEDULES = {0: "GPipe", 1: "1F1B", 3: "ZBVZeroBubble", 6: "DualPipeV"}
CP_TYPES = {0: "p2p", 1: "all_gather", 2: "a2a", 3: "a2a+p2p"}
RECOMPUTES = {0: "none", 1: "selective", 2: "full"}
_DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero_stage")


def plan_names(job: Job) -> dict[str, Any]:
    """Every variable that a job states; the rest is neutral."""
    return {
        **neutral(),
        **{name: int(getattr(job.plan, name)) for name in _DEGREES},
        **_mesh(job),
        **_pipeline(job),
        **_context(job),
        **_recompute(job),
        **_model(job),
        **_runtime(job),
    }


def _mesh(job: Job) -> dict[str, Any]:
    p, cluster = job.plan, job.cluster
    return {
        "world_size": cluster.num_gpus,
        "gpus_per_node": cluster.gpus_per_node,
        "nvlink_domain": cluster.scale_up_domain,
        "edp": int(expert_data_parallel(p)),
        "use_distributed_optimizer": bool(p.zero_stage >= 1 and p.dp * p.cp > 1),
        "sp": bool(p.sequence_parallel),
        "tp_comm_overlap": bool(p.overlap_tp),
        "has_transformer_engine": True,
        "overlap_moe_expert_parallel_comm": bool(p.overlap_ep),
        "param_offload": bool(p.offload_params),
        "mbs": int(p.micro_batch_size),
        "gbs": job.workload.global_batch_size,
        "seq_len": job.workload.seq_len,
        "num_microbatches": int(num_microbatches(job)),
    }


def _pipeline(job: Job) -> dict[str, Any]:
    p = job.plan
    first, last = int(p.first_stage_layers), int(p.last_stage_layers)
    stated = first > 0 or last > 0
    ends = (first > 0) + (last > 0)
    return {
        "schedule": SCHEDULES[int(p.schedule)],
        "stages_per_rank": int(p.vpp),
        "mb_group": int(p.pp),
        "uneven_pipeline": stated,
        "uneven_first_last": stated,
        "account_for_embedding": bool(p.embedding_in_split),
        "account_for_loss": bool(p.loss_in_split),
        "num_layers_in_first_stage": first or None,
        "num_layers_in_last_stage": last or None,
        "pp_middle_layers": job.model.num_hidden_layers - first - last if stated else 0,
        "pp_middle_stages": int(p.pp) - ends if stated else 0,
        "first_stage_less_layers": 0,
        "last_stage_less_layers": 0,
    }


def _context(job: Job) -> dict[str, Any]:
    p = job.plan
    inner, cp = int(p.cp_inner), int(p.cp)
    nested = p.context_parallel == ContextParallel.HIERARCHICAL and cp > 1
    return {
        "cp_comm_type": CP_TYPES[int(p.context_parallel)],
        "cp_comm_types": [CP_TYPES[int(p.context_parallel)]],
        "cp_algo": "ulysses_cp_algo" if p.context_parallel == ContextParallel.ULYSSES else "other",
        "ulysses": cp if p.context_parallel == ContextParallel.ULYSSES else 1,
        "hierarchical_context_parallel_sizes": [inner, cp // inner]
        if nested and inner > 1
        else None,
        "hcp_product": inner * (cp // inner),
        "hcp_inner": inner,
        "cp_load_balancer": job.workload.runtime.context_balancer,
    }


def _recompute(job: Job) -> dict[str, Any]:
    p = job.plan
    kind = RECOMPUTES[int(p.recompute)]
    names = {
        RecomputeModule.CORE_ATTENTION: "core_attn",
        RecomputeModule.MLA_UP_PROJECTION: "mla_up_proj",
    }
    modules = [text for flag, text in names.items() if int(p.recompute_modules) & flag]
    full = p.recompute == Recompute.FULL
    return {
        "recompute": kind,
        "recompute_method": "block" if full else None,
        "recompute_modules": modules if kind == "selective" else [],
        "distribute_saved_activations": bool(p.distribute_saved),
        "attention_backend": "flash" if p.flash_attention else "unfused",
    }


def _model(job: Job) -> dict[str, Any]:
    model, block = job.model, job.model.layers[0]
    a, routed = block.attention, block.feed_forward if block.is_moe else None
    count = parameters(model, mtp=False)
    padded = int(job.plan.padded_vocab_size)
    return {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "num_attention_heads": a.num_attention_heads,
        "num_key_value_heads": a.num_key_value_heads,
        "head_dim": a.head_dim,
        "vocab_size": model.vocab_size,
        "padded_vocab_size": padded or model.vocab_size,
        "tie_word_embeddings": model.tie_word_embeddings,
        "multi_latent_attention": a.is_latent,
        "num_experts": routed.num_experts if routed else 0,
        "moe_topk": routed.top_k if routed else 0,
        "moe_intermediate_size": routed.intermediate_size if routed else None,
        "intermediate_size": block.feed_forward.intermediate_size,
        "params_per_layer": (count.active - count.embedding - count.head) / model.num_hidden_layers,
    }


def _runtime(job: Job) -> dict[str, Any]:
    runtime, loading = job.workload.runtime, job.workload.loading
    precision = Precision(int(job.plan.precision))
    return {
        "precision": precision.name.lower(),
        "bf16": precision is Precision.BF16,
        "fp8_recipe": "current",
        "nvfp4_block": 16,
        "gpu_cc": 90,
        "manual_gc": runtime.manual_gc,
        "numa_bind": runtime.numa_bind,
        "straggler_detection": runtime.straggler_detection,
        "num_workers": loading.num_workers,
        "host_cpu_cores": job.cluster.host.cores,
        "moe_token_dispatcher_type": runtime.expert_dispatcher,
        "moe_grouped_gemm": runtime.grouped_gemm,
        "load_balancing": runtime.expert_balancing,
        "capacity_factor": runtime.expert_capacity_factor,
        "router_dtype": runtime.router_dtype,
        "moe_router_padding": runtime.router_padding,
        "seq_len_cv": loading.doc_len_cv,
        "packing": "offline" if loading.packed else None,
    }
