"""Random columns of plans and jobs that state every optional fact."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.rules.example import build_job
from meshwright.rules.rule import prune

DEGREES = (1, 2, 3, 4, 6, 8, 16, 32)
CHOICES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "etp", "dp", "dp_replicate", "cp_inner"), DEGREES),
    "vpp": (1, 2, 3, 4),
    "micro_batch_size": (1, 2, 3, 4, 8),
    "schedule": tuple(range(7)),
    "first_stage_layers": (0, 0, 0, 3, 7),
    "last_stage_layers": (0, 0, 0, 2, 5),
    "zero_stage": (0, 1, 2, 3),
    "context_parallel": (0, 1, 2, 3),
    "recompute": (0, 1, 2),
    "recompute_modules": tuple(range(256)),
    "recompute_layers": (0, 1, 2, 5),
    "loss_chunks": (1, 2),
    "precision": tuple(range(6)),
    "param_bytes": (1, 2, 4),
    "grad_bytes": (2, 4),
    "reduce_bytes": (2, 4),
    "optimizer": tuple(range(6)),
    "optimizer_state_bytes": (1, 2, 4),
    "offload_optimizer": (0.0, 0.5, 1.0),
    "offload_activations": (0.0, 0.5),
    "lora_rank": (0, 0, 0, 16),
    "base_weight_bits": (0, 4, 8),
}
STATED: dict[str, Any] = {
    "num_samples": 100_000,
    "drop_last": False,
    "data_readers": 8,
    "streamed": True,
    "num_workers": 2,
    "num_shards": 96,
    "read_bytes_per_s_per_node": 3e5,
    "checkpoint_interval_s": 100.0,
    "checkpoint_async": False,
    "checkpoint_write_bytes_per_s_per_node": 3e8,
    "job_mtbf_s": 1e5,
    "gpu_mtbf_s": 1e6,
    "saved_dp": 8,
    "saved_tp": 4,
    "saved_pp": 2,
    "checkpoint_reshardable": False,
    "loader_state_saved": True,
    "masked_loss": True,
    "per_token_loss": False,
    "batch_size_steps": (96, 256),
    "eval_global_batch_size": 48,
    "reduce_every_microbatch": True,
    "rank_order": "cp-tp-pp-dp",
    "residual_bytes": 4,
    "bucket_elements": 8_000_000,
    "gpus_per_process": 2,
    "nccl_algo": "Ring",
    "net_rail_optimized": True,
    "environment": (("NCCL_PXN_DISABLE", "1"), ("NCCL_NET_GDR_C2C", "0")),
    "host_bytes_per_s_per_gpu": 450e9,
}
BASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stated": STATED,
    "moe": {"model": "qwen3-30b-a3b", "nodes": 40, "global_batch_size": 2880, **STATED},
    "long": {"model": "llama-3-70b", "seq_len": 131072, "nodes": 32, "net_bytes_per_s": 1e9},
    "domain of 72": {"gpus_per_node": 4, "link_domain": 72, "nodes": 36, "global_batch_size": 2880},
}


def random_column(seed: int, rows: int) -> Plan:
    """A plan whose every field is a column of random values."""
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for f in fields(Plan):
        if f.name == "layout":
            continue
        choices = CHOICES.get(f.name, (False, True))
        values[f.name] = np.asarray(choices)[rng.integers(0, len(choices), rows)]
    return Plan(**values)


def random_job(base: str, seed: int, rows: int) -> Job:
    """A base job under a random column of plans."""
    return replace(build_job(**BASES[base]), plan=random_column(seed, rows))


def legal_job(base: str, seed: int, rows: int) -> Job:
    """A base job under a column of random plans that no pruning rule objects to."""
    rng = np.random.default_rng(seed)
    job = build_job(**{k: v for k, v in BASES[base].items() if k not in STATED})
    drawn = {n: rng.choice((1, 1, 2, 4), 2000) for n in ("tp", "pp", "cp", "ep", "vpp")}
    mesh = np.maximum(job.cluster.num_gpus // (drawn["tp"] * drawn["pp"] * drawn["cp"]), 1)
    flags = {n: rng.integers(0, 2, 2000) == 1 for n in ("overlap_tp", "distribute_saved")}
    choices = {n: rng.integers(0, 3, 2000) for n in ("recompute", "zero_stage")}
    offloads = {"offload_optimizer": rng.choice((0.0, 1.0), 2000)}
    column = Plan(**drawn, **flags, **choices, **offloads, dp=mesh)
    legal = job.with_plan(column)
    kept = np.flatnonzero(prune(legal).alive)[:rows]
    return legal.with_plan(column.take(kept))
