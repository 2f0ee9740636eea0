"""The catalogue's conditions, evaluated in tests alone, and their names in terms of a job."""

from __future__ import annotations

import ast
import csv
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.plan.job import Job, num_microbatches, shard_group
from meshwright.plan.plan import ContextParallel
from meshwright.rules import estimate
from meshwright.rules.environment import integer

DATA = Path(__file__).parents[1] / "data"
HELPERS = {
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "any": any,
    "all": all,
    "min": min,
    "max": max,
    "len": len,
    "isinstance": isinstance,
    "int": int,
    "bool": bool,
}


def table(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of the test data."""
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def conditions() -> dict[str, Any]:
    """Compiled condition of each general rule, by code."""
    rows = table("rule-conditions.csv")
    return {r["code"]: compile(r["condition"], r["code"], "eval") for r in rows}


@cache
def neutral() -> dict[str, Any]:
    """Every variable's neutral value."""
    rows = table("rule-variables.csv")
    return {r["name"]: ast.literal_eval(r["neutral_value"]) for r in rows}


def holds(code: str, names: dict[str, Any]) -> bool:
    """Whether the catalogue's condition is true under these names."""
    return bool(eval(conditions()[code], {"__builtins__": {}, **HELPERS, **names}))


def names_of(job: Job) -> dict[str, Any]:
    """The catalogue's variables for a job of one plan that states every fact."""
    return {**neutral(), **_mesh(job), **_batch(job), **_model(job), **_data(job), **_links(job)}


def _mesh(job: Job) -> dict[str, Any]:
    p, cluster = job.plan, job.cluster
    direct = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "dp_replicate", "cuda_graph")
    sharded = int(shard_group(p)) > 1
    return {
        **{name: _python(getattr(p, name)) for name in direct},
        "world_size": cluster.num_gpus,
        "nnodes": cluster.num_nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "nvlink_domain": cluster.links[0].domain,
        "sp": bool(p.sequence_parallel),
        "ulysses": int(p.cp) if p.context_parallel == ContextParallel.ULYSSES else 1,
        "cp_comm_type": "p2p" if p.context_parallel == ContextParallel.RING else "other",
        "zero_stage": int(p.zero_stage) if sharded else min(int(p.zero_stage), 2),
        "num_distributed_optimizer_instances": int(p.dp_replicate),
        "reshard_after_forward": bool(p.reshard_after_forward),
        "overlap_grad_reduce": bool(p.overlap_grad_reduce),
        "overlap_moe_expert_parallel_comm": bool(p.overlap_ep),
        "grad_reduce_dtype": "bf16" if p.reduce_bytes == 2 else "fp32",
    }


def _batch(job: Job) -> dict[str, Any]:
    p, w, recipe = job.plan, job.workload, job.workload.recipe
    return {
        "mbs": int(p.micro_batch_size),
        "gbs": w.global_batch_size,
        "num_microbatches": int(num_microbatches(job)),
        "seq_len": w.seq_len,
        "train_tokens": w.train_tokens,
        "eval_gbs": recipe.eval_global_batch_size,
        "eval_mbs": recipe.eval_micro_batch_size,
        "step_batch_size_schedule": list(recipe.batch_size_steps),
        "step_batch_sizes": list(recipe.batch_size_steps),
        "critical_batch_tokens": recipe.critical_batch_tokens,
        "lr": recipe.learning_rate,
        "base_lr": recipe.tuned_learning_rate,
        "base_gbs": recipe.tuned_global_batch_size,
        "sft": recipe.masked_loss,
        "calculate_per_token_loss": recipe.per_token_loss,
        "sync_mode": recipe.synchronization,
        "sync_interval": recipe.sync_interval_steps,
        "outer_optimizer": recipe.outer_optimizer,
        "staleness": recipe.staleness_steps,
        "deterministic": recipe.deterministic,
        "uses_no_sync": not recipe.reduce_every_microbatch,
        "manual_training_loop": True,
        "step_time_s": w.runtime.step_time_s,
    }


def _model(job: Job) -> dict[str, Any]:
    block = job.model.layers[0]
    routed = block.feed_forward if block.is_moe else None
    return {
        "hidden_size": job.model.hidden_size,
        "num_attention_heads": block.attention.num_attention_heads,
        "num_key_value_heads": block.attention.num_key_value_heads,
        "max_position_embeddings": job.model.position_embeddings,
        "num_experts": routed.num_experts if routed else 0,
        "moe_topk": routed.top_k if routed else 0,
    }


def _data(job: Job) -> dict[str, Any]:
    d, runtime = job.workload.loading, job.workload.runtime
    tokens_per_s = estimate.tokens_per_step(job) / (runtime.step_time_s or math.nan)
    nodes = job.cluster.num_nodes
    return {
        "num_samples": d.num_samples,
        "total_samples": d.num_samples,
        "consumed_samples": d.consumed_samples,
        "drop_last": d.drop_last,
        "even_batches": d.pad_last,
        "sampler": "other" if not d.shuffle else "distributed",
        "join_uneven_inputs": False,
        "distinct_data_ranks": d.data_readers,
        "packing": "offline" if d.packed else None,
        "cross_doc_mask": d.document_mask,
        "dataset_tokens": d.dataset_tokens,
        "tokens_per_s": tokens_per_s,
        "bytes_per_token": d.tokens_dtype_bytes,
        "read_amplification": d.read_amplification,
        "storage_read_bytes_s": (d.read_bytes_per_s_per_node or 0.0) * nodes,
        "num_workers": d.num_workers,
        "mock_data": d.mock_data,
        "dataset_kind": "iterable" if d.streamed else "map",
        "worker_sharding": d.workers_split_stream,
        "num_shards": d.num_shards,
        "loader_shuffle": d.shuffle,
        "calls_set_epoch": d.reshuffle_each_epoch,
        "data_cache_path_shared": d.index_shared,
        "num_dataset_files": d.num_files,
        "avg_dataset_file_bytes": d.mean_file_bytes,
        "dataloader_fast_cache_load": d.index_prebuilt,
        "data_on_object_storage": d.object_storage,
        "mmap_bin_files": d.memory_map,
        "resume": True,
        "checkpoint_dp": d.saved_dp,
        "checkpoint_tp": d.saved_tp,
        "checkpoint_pp": d.saved_pp,
        "ckpt_format": "torch_dist" if d.checkpoint_reshardable else "torch",
        "dataloader_stateful": d.loader_state_saved,
        "index_based_sampler": d.order_recomputable,
        "exact_resume": d.exact_resume,
        "saves_rng_state": d.rng_saved,
        "keep_latest_k": d.checkpoints_kept,
        "ckpt_interval_s": d.checkpoint_interval_s,
        "ckpt_stall_s": d.checkpoint_stall_s,
        "ckpt_bytes": d.checkpoint_bytes,
        "storage_write_bytes_s": (d.checkpoint_write_bytes_per_s_per_node or 0.0) * nodes,
        "mtbf_s": runtime.job_mtbf_s,
        "gpu_mtbf_s": runtime.gpu_mtbf_s,
    }


def _links(job: Job) -> dict[str, Any]:
    p, runtime, cluster = job.plan, job.workload.runtime, job.cluster
    net = cluster.links[1]
    return {
        "peak_flops": float(estimate.peak_flops(job)),
        "tp_link_bytes_s": float(estimate.group_bytes_per_s(cluster, p.tp, 1)),
        "dp_link_bytes_s": float(estimate.data_parallel_bytes_per_s(job)),
        "cp_link_bytes_s": float(estimate.hop_bytes_per_s(cluster, p.cp, p.tp)),
        "gpu_mem_bytes": cluster.gpu.memory_bytes,
        "num_sms": cluster.gpu.sm_count,
        "fabric": net.kind,
        "nics_per_node": net.nics_per_node,
        "rail_optimized": net.rail_optimized,
        "collnet_enabled": net.in_network_reduction,
        "nccl_algo": runtime.nccl_algo,
        "nccl_proto": runtime.nccl_proto,
        "ll128_platform": runtime.ll128_safe,
        "nccl_version": runtime.nccl_version,
        "nccl_pat_enable": integer(job, "NCCL_PAT_ENABLE"),
        "nccl_cross_nic": integer(job, "NCCL_CROSS_NIC"),
        "nccl_pxn_disable": integer(job, "NCCL_PXN_DISABLE"),
        "nccl_ib_qps_per_connection": integer(job, "NCCL_IB_QPS_PER_CONNECTION"),
        "nccl_mnnvl_enable": integer(job, "NCCL_MNNVL_ENABLE"),
        "nccl_cumem_enable": integer(job, "NCCL_CUMEM_ENABLE"),
        "nccl_max_ctas": integer(job, "NCCL_MAX_CTAS"),
        "nccl_ib_timeout": integer(job, "NCCL_IB_TIMEOUT"),
        "nccl_buffsize_bytes": integer(job, "NCCL_BUFFSIZE"),
        "nccl_launch_order_implicit": integer(job, "NCCL_LAUNCH_ORDER_IMPLICIT") == 1,
        "concurrent_communicators": runtime.concurrent_communicators,
        "imex_up": runtime.imex,
        "gdr_enabled": runtime.gpu_direct_rdma,
        "use_sharp": runtime.use_sharp,
        "n_sharp_groups": runtime.sharp_groups,
        "gpus_per_process": runtime.gpus_per_process,
        "rank_order": runtime.rank_order,
        "bucket_numel": runtime.bucket_elements,
        "message_bytes": (runtime.bucket_elements or 0) * float(p.reduce_bytes),
        "n_process_groups": runtime.process_groups,
        "nccl_timeout_s": runtime.collective_timeout_s,
        "data_build_s": runtime.index_build_s,
        "compile_s": runtime.compile_s,
        "fp32_residual": runtime.residual_bytes == 4,
        "optimizer_offload": bool(p.offload_optimizer > 0),
        "cpu_offloading": bool(p.offload_activations > 0),
        "grace_cpu": cluster.host.bytes_per_s_per_gpu >= 200e9,
        "nccl_gdr_c2c": integer(job, "NCCL_NET_GDR_C2C"),
    }


def _python(value: Any) -> Any:
    """A NumPy scalar as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
