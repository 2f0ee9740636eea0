"""Demands against the catalogue's conditions, on random values of their variables.

The catalogue's conditions were compared with the frameworks themselves over whole grids of plans,
so agreement with them is agreement with what the frameworks refuse.
"""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest
from conditions import HELPERS, table
from demand_examples import first_name, stated_value

from meshwright.frameworks.knobs import Knobs
from meshwright.rules.demand import Demand, all_demands, verdict

CONDITIONS = {r["code"]: r["condition"] for r in table("demand-conditions.csv")}
TRIES = 250
SMALL = (1, 2, 3, 4, 8)
FLAG = (False, True)
POOLS: dict[str, tuple[Any, ...]] = {
    "ac_mode": ("none", "full", "memory_budget"),
    "allgather_bucket_size": (2, 5e8, 5e8 + 1),
    "attention_backend": ("sdpa", "flex", "varlen"),
    "attn_implementation": ("sdpa", "eager", "flash_attention_2"),
    "ckpt_dir": (None, "out"),
    "communication_data_type": (None, "fp16", "fp8"),
    "compile_components": (["model", "loss"], ["loss"]),
    "cp_backend": ("torch", "te"),
    "cp_comm_strategy": ("allgather", "alltoall", "ring"),
    "cp_load_balancer": (None, "", "headtail", "per_document"),
    "dataset_kind": ("map", "iterable"),
    "default_dp_type": ("ddp", "zero2"),
    "doc_lens": ([8, 16], [8, 12], [7]),
    "ds_config_keys": (["bf16"], ["bf16", "elasticity"], ["sparse_attention"]),
    "ds_optimizer_params": ({}, {"lr": 1e-4}, {"max_grad_norm": 1.0}),
    "ds_unknown_zero_keys": ([], ["overlap_com"]),
    "ep_backend": ("standard", "deepep", "hybridep", "minimal_async"),
    "eval_steps": (100, 200, 300),
    "fpdt_chunk_size": (0, 128, 192, 256),
    "fsdp_dim_size": (8, 9, 16),
    "fsdp_mesh_ndim": (1, 2, 3),
    "fsdp_reshard_stated": (True, False, "FULL_SHARD"),
    "fsdp_shard_dim": (0, 1),
    "fsdp_state_dict_type": ("SHARDED_STATE_DICT", "FULL_STATE_DICT", "LOCAL_STATE_DICT"),
    "fsdp_version": (1, 2),
    "global_batch_size": (6, 8, 16, 24, 64),
    "gpu_cc": (80, 90, 100),
    "gpu_mem_bytes": (24e9, 80e9),
    "gradient_accumulation_steps": (None, 1, 2, 4),
    "gradient_allreduce_op": ("mean", "sum"),
    "gradient_predivide_factor": (1.0, 2.0),
    "hidden_size": (512, 513),
    "layer_tp_list": ([1, 2], [2, 4], [3]),
    "layers_per_stage": (None, 2, 3, 5),
    "moe_min_capacity": (0, 4, 9000),
    "non_blocking_capacity_factor": (None, 1.0),
    "num_experts": (0, 8),
    "num_gpus": (8, 12, 16),
    "num_hidden_layers": (14, 16, 30),
    "num_microbatches": (2, 3, 4, 6, 9, 10),
    "num_workers": (0, 2),
    "offload_optimizer_ratio": (0.5, 1.0),
    "partition_method": ("parameters", "profile"),
    "peak_bytes": (10e9, 79e9),
    "pp_schedule_csv": (None, "zb.csv"),
    "pp_style": ("1f1b", "interleaved", "zbv"),
    "prefetch_factor": (None, 2),
    "reduce_bucket_size": (1e6, 5e8),
    "save_steps": (200, 400, 500),
    "schedule": ("1f1b", "Interleaved1F1B", "ZBVZeroBubble", "InterleavedZeroBubble", "DualPipeV"),
    "seq_len": (512, 768, 1024, 1026),
    "sp_backend": ("deepspeed", "ring"),
    "sp_seq_length": (None, 8192),
    "torch_version": ((2, 7), (2, 8)),
    "train_batch_size": (None, 4, 8, 16, 20, 32),
    "train_micro_batch_size_per_gpu": (None, 1, 2, 4),
    "trainable_params": (0, 10),
    "vocab_size": (10, 512, 515),
    "zero_hpz_partition_size": (1, 4, 6, 8),
    "zero_stage": (0, 1, 2, 3),
}
WHOLE_NUMBERS = frozenset(
    {
        *("cp", "dataloader_batch_size", "dp", "dp_replicate", "dp_shard", "ep", "etp"),
        *("first_stage_less_layers", "gpus_per_node", "last_stage_less_layers"),
        *("local_batch_size", "micro_batch_size", "min_layer_tp", "num_attention_heads"),
        *("num_key_value_heads", "num_model_chunks", "num_nodes", "pp", "sharding_degree"),
        *("tp", "ulysses", "vpp"),
    }
)
CONTEXT: dict[str, dict[str, Any]] = {
    "CMP112": {"pp": 2},
    "CMP113": {"pp": 2},
    "CMP208": {"zero_stage": 3},
    "DAT210": {"use_fsdp": True, "tp": 4},
    "DAT330": {"use_deepspeed": True},
}
"""What the catalogue takes for granted."""

UNLIKE: dict[str, str] = {
    "COM308": "stage 3 has other buffers than the buckets",
    "DAT112": "asked only of files that leave nothing to the program",
    "DAT113": "a batch that equals the GPUs divides among replicas too",
    "DAT128": "the smallest degree follows from the list",
    "DAT329": "only FSDP's sharded state dict is refused, not DeepSpeed's",
    "DAT334": "plans are compared by degrees",
    "MOD149": "DeepSpeed's own MoE layer, or ColossalAI",
    "MOD185": "rings and Ulysses are told apart",
    "DAT213": "truth values and names of strategies here, numbers in the examples",
}


def _names(code: str) -> set[str]:
    """Variables of a condition."""
    tree = ast.parse(CONDITIONS[code], mode="eval")
    bound = {n.target.id for n in ast.walk(tree) if isinstance(n, ast.comprehension)}  # type: ignore[attr-defined]
    named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return named - bound - set(HELPERS)


def _pool(name: str) -> tuple[Any, ...]:
    if name in POOLS:
        return POOLS[name]
    return SMALL if name in WHOLE_NUMBERS else FLAG


def _knobs(demand: Demand, values: dict[str, Any]) -> Knobs:
    name = first_name(demand)
    stated = {n: stated_value(n, v) for n, v in values.items()}
    facts = {"use_deepspeed": name == "deepspeed", **CONTEXT.get(demand.code, {})}
    return Knobs(name, "", stated, facts=facts)


def _judged(demand: Demand, draw: random.Random) -> tuple[bool, bool, dict[str, Any]]:
    """(what the catalogue says, what the demand says, the values)."""
    values = {name: draw.choice(_pool(name)) for name in sorted(_names(demand.code))}
    refused = bool(eval(CONDITIONS[demand.code], {"__builtins__": {}, **HELPERS, **values}))
    return refused, bool(verdict(demand, _knobs(demand, values))), values


COMPARED = [d for d in all_demands() if d.code in CONDITIONS and d.code not in UNLIKE]


@pytest.mark.parametrize("demand", COMPARED, ids=lambda d: d.code)
def test_a_demand_refuses_what_the_catalogue_refuses(demand: Demand) -> None:
    draw = random.Random(demand.code)
    answers = set()
    for _ in range(TRIES):
        refused, fires, values = _judged(demand, draw)
        assert fires == refused, values
        answers.add(fires)
    assert answers == {True, False}


def test_most_are_compared() -> None:
    assert len(COMPARED) > 0.8 * len(CONDITIONS)
