"""Model and compute rules agree with the catalogue's conditions, where their terms are the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from conditions import holds
from plan_names import plan_names

from meshwright.plan.job import Job, num_microbatches, world_size
from meshwright.rules.compute.balance import UNEVEN, imbalance
from meshwright.rules.example import build_job
from meshwright.rules.model.dimensions import uneven_groups
from meshwright.rules.rule import as_numpy, find_rule

FLAG = (False, True)
CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ("llama-3-8b", "llama-3-70b", "mixtral-8x7b", "qwen3-30b-a3b"),
    "nodes": (8, 32, 128),
    "num_hidden_layers": (12, 30, 32, 48),
    "num_key_value_heads": (4, 6, 8, 32),
    "vocab_size": (32000, 50257, 128256, 200000),
    "tie_word_embeddings": FLAG,
    "head_dim": (96, 100, 128, 256),
    "intermediate_size": (768, 10000, 11008, 14336),
    "tp": (1, 2, 3, 4, 8, 16),
    "pp": (1, 2, 3, 4, 8),
    "vpp": (1, 2, 3, 4),
    "cp": (1, 2, 4, 6, 8),
    "cp_inner": (1, 2, 3, 4),
    "ep": (1, 2, 4, 8, 12),
    "etp": (1, 1, 2, 3),
    "dp": (1, 2, 4, 8),
    "schedule": (0, 1, 1, 1, 3, 6),
    "first_stage_layers": (0, 0, 3, 8),
    "last_stage_layers": (0, 0, 2, 8),
    "embedding_in_split": FLAG,
    "loss_in_split": FLAG,
    "micro_batch_size": (1, 2, 4, 16),
    "context_parallel": (0, 1, 2, 3),
    "zero_stage": (1, 2, 3),
    "padded_vocab_size": (0, 50304, 50257, 131072),
    "precision": (1, 3, 4, 5),
    "recompute": (0, 1, 2),
    "recompute_modules": (1, 2, 64),
    **dict.fromkeys(("sequence_parallel", "overlap_tp", "overlap_ep", "offload_params"), FLAG),
    **dict.fromkeys(("flash_attention", "distribute_saved"), FLAG),
    "seq_len": (1000, 2048, 8192, 32768),
    "global_batch_size": (32, 96, 512, 2048),
    "host_cores": (64, 128),
    "num_workers": (2, 8, 16),
    **dict.fromkeys(("manual_gc", "numa_bind", "straggler_detection", "grouped_gemm"), FLAG),
    "router_padding": FLAG,
    "context_balancer": ("headtail", "none"),
    "expert_dispatcher": ("alltoall", "allgather"),
    "expert_balancing": ("aux_loss", "none"),
    "expert_capacity_factor": (-1.0, 0.5, 1.25),
    "router_dtype": ("fp32", "bf16"),
    "doc_len_cv": (0.1, 0.8),
    "packed": FLAG,
}
DRAWS = 500
DIRECT = (
    "MOD101",
    "MOD102",
    "MOD106",
    "MOD108",
    "MOD109",
    "MOD113",
    "MOD115",
    "MOD119",
    "MOD120",
    "MOD123",
    "MOD132",
    "MOD134",
    "MOD140",
    "MOD142",
    "MOD154",
    "MOD158",
    "MOD159",
    "MOD160",
    "MOD161",
    "MOD163",
    "MOD164",
    "MOD165",
    "MOD170",
    "MOD174",
    "MOD178",
    "MOD179",
    "MOD205",
    "MOD208",
    "MOD301",
    "MOD302",
    "MOD303",
    "MOD307",
    "MOD318",
    "MOD319",
    "MOD320",
    "MOD321",
    "MOD322",
    "CMP101",
    "CMP103",
    "CMP104",
    "CMP106",
    "CMP108",
    "CMP109",
    "CMP110",
    "CMP111",
    "CMP119",
    "CMP122",
    "CMP207",
    "CMP210",
    "CMP215",
    "CMP217",
    "CMP218",
    "CMP301",
    "CMP304",
    "CMP307",
    "CMP309",
    "CMP310",
    "CMP312",
    "CMP316",
    "CMP317",
    "CMP323",
    "MOD114",
    "MOD121",
    "MOD124",
    "MOD141",
    "MOD166",
)


@cache
def _random_job(seed: int) -> Job:
    """A job of one plan that states what the conditions ask for."""
    rng = np.random.default_rng(seed)
    drawn = {name: values[rng.integers(len(values))] for name, values in CHOICES.items()}
    return as_numpy(build_job(**drawn))


@cache
def _names(seed: int) -> dict[str, Any]:
    return plan_names(_random_job(seed))


def _dense(job: Job) -> bool:
    return not job.model.is_moe


def _plain(job: Job) -> bool:
    return int(job.plan.schedule) == 1


def _whole_groups(job: Job) -> bool:
    return _plain(job) and int(num_microbatches(job)) % int(job.plan.pp) == 0


def _adapted(code: str, job: Job) -> dict[str, Any]:
    """What a variable is in the terms of this rule, where that differs."""
    p = job.plan
    special: dict[str, dict[str, Any]] = {
        "MOD142": {"world_size": int(world_size(job.plan))},
        **dict.fromkeys(
            ("MOD164", "MOD165"), {"cp": int(p.cp * p.tp)} if p.sequence_parallel else {}
        ),
    }
    return special.get(code, {})


# Where a rule and its condition speak of the same: the rule knows more schedules, experts, ...
WHERE: dict[str, Any] = {
    "MOD101": lambda job: not uneven_groups(job.model),  # whose heads no tp divides evenly
    "MOD161": lambda j: j.plan.dp > 1,
    "CMP301": lambda j: j.plan.pp == 1 or imbalance(j) > UNEVEN,
    "MOD108": _dense,
    "MOD113": lambda j: not (j.plan.embedding_in_split or j.plan.loss_in_split),
    "MOD114": lambda j: (
        _plain(j) and j.plan.pp > 1 and not (j.plan.embedding_in_split or j.plan.loss_in_split)
    ),
    "MOD119": lambda j: j.plan.pp > 2,
    "MOD121": lambda j: _plain(j) and j.plan.pp > 2,
    "MOD124": lambda j: (
        _plain(j) and j.plan.pp > 1 and not (j.plan.first_stage_layers or j.plan.last_stage_layers)
    ),
    "MOD141": lambda j: j.plan.etp == 1,
    "MOD163": lambda j: _plain(j) and num_microbatches(j) % j.plan.pp == 0,
    "MOD164": _dense,
    "MOD165": _dense,
    "MOD166": lambda j: _dense(j) and j.plan.padded_vocab_size > 0,
    "MOD170": lambda j: j.plan.padded_vocab_size > 0,
    "MOD174": lambda j: j.plan.tp == 1,
    "MOD179": lambda j: int(j.plan.context_parallel) == 3 and j.plan.cp > 1 and j.plan.cp_inner > 1,
    "MOD301": lambda j: j.plan.tp > 1,
    "MOD302": lambda j: j.plan.sequence_parallel,
    "MOD205": lambda j: int(j.plan.schedule) in (0, 1),
    "CMP101": lambda j: _plain(j) and j.plan.pp > 1,
    "CMP103": lambda j: _plain(j) and j.plan.pp > 1 and int(num_microbatches(j)) > j.plan.pp,
    "CMP104": lambda j: _plain(j) and j.plan.vpp == 1,
    "CMP106": lambda j: int(j.plan.schedule) == 6,
    "CMP108": _whole_groups,
    "CMP109": lambda j: _plain(j) and j.plan.pp > 1 and j.plan.vpp > 1,
    "CMP110": lambda j: j.plan.pp > 1,
    "CMP111": lambda j: _whole_groups(j) and j.plan.pp > 1,
    "CMP122": lambda j: int(j.plan.recompute) == 1,
    "CMP307": lambda j: j.model.is_moe,
    "CMP312": lambda j: int(j.plan.context_parallel) in (0, 1),
}


@pytest.mark.parametrize("code", DIRECT)
def test_the_rule_agrees_with_the_catalogue(code: str) -> None:
    rule_ = find_rule(code)
    assert rule_ is not None
    seen = set()
    for seed in range(DRAWS):
        job = _random_job(seed)
        if not WHERE.get(code, lambda _: True)(job):
            continue
        wanted = holds(code, {**_names(seed), **_adapted(code, job)})
        with np.errstate(all="ignore"):
            assert bool(rule_.condition(job)) == wanted, (code, seed)
        seen.add(wanted)
    assert seen == {True, False}
