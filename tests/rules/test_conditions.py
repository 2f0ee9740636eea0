"""Restated rules agree with the catalogue's conditions on random jobs, where names map directly."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from conditions import conditions, holds, names_of

from meshwright.plan.job import Job
from meshwright.plan.plan import ContextParallel
from meshwright.rules.communication.overlap import NOTICEABLE_SHARE, _reduction_s
from meshwright.rules.estimate import step_time_s
from meshwright.rules.example import build_job
from meshwright.rules.rule import as_numpy, find_rule

FLAG = (False, True)
SMALL = (1, 2, 3, 4, 8)
ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "NCCL_PAT_ENABLE": ("0", "1"),
    "NCCL_CROSS_NIC": ("0", "1", "2"),
    "NCCL_PXN_DISABLE": ("0", "1"),
    "NCCL_IB_QPS_PER_CONNECTION": ("1", "4"),
    "NCCL_MNNVL_ENABLE": ("0", "2"),
    "NCCL_CUMEM_ENABLE": ("0", "1", "1"),
    "NCCL_MAX_CTAS": ("16", "33", "34", "64"),
    "NCCL_IB_TIMEOUT": ("18", "19", "20", "22"),
    "NCCL_BUFFSIZE": ("4194304", "33554432"),
    "NCCL_LAUNCH_ORDER_IMPLICIT": ("0", "1"),
    "NCCL_NET_GDR_C2C": ("0", "1"),
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "model": ("llama-3-8b", "llama-3-70b", "qwen3-30b-a3b"),
    "nodes": (1, 2, 8, 40, 300, 1100),
    "gpus_per_node": (4, 8),
    "link_domain": (4, 8, 72),
    "net_kind": ("infiniband", "roce"),
    "net_bytes_per_s": (1e9, 12.5e9, 50e9),
    "net_nics_per_node": (1, 4, 8),
    "net_rail_optimized": FLAG,
    "net_in_network_reduction": FLAG,
    "host_bytes_per_s_per_gpu": (25e9, 450e9),
    **dict.fromkeys(("tp", "pp", "cp"), SMALL),
    "ep": (1, 4, 8, 32),
    "etp": (1, 2),
    "vpp": (1, 2),
    "dp": (1, 2, 8, 64, 500, 512),
    "dp_replicate": (1, 1, 2, 3),
    "micro_batch_size": (1, 2, 3, 8),
    "context_parallel": (0, 2),
    "zero_stage": (-1, 0, 1, 2, 3, 4),
    "precision": (1, 3),
    "reduce_bytes": (2, 4),
    **dict.fromkeys(("sequence_parallel", "reshard_after_forward", "overlap_grad_reduce"), FLAG),
    **dict.fromkeys(("overlap_ep", "cuda_graph"), FLAG),
    "offload_optimizer": (0.0, 1.0),
    "offload_activations": (0.0, 0.5),
    "seq_len": (1000, 1024, 4096, 4100, 32768, 131072),
    "global_batch_size": (1, 64, 96, 512, 4096),
    "position_embeddings": (2048, 4096, 131072),
    "train_tokens": (1e9, 1e12),
    "dataset_tokens": (1e8, 2.5e11, 1e12),
    "eval_global_batch_size": (48, 64, 512),
    "eval_micro_batch_size": (1, 2),
    "batch_size_steps": ((64, 128), (96, 512), (512,)),
    "critical_batch_tokens": (1e6, 1e8),
    "learning_rate": (1e-4, 3e-4),
    "tuned_learning_rate": (3e-4,),
    "tuned_global_batch_size": (64, 512),
    "synchronization": ("sync", "async", "local_sgd", "diloco"),
    "sync_interval_steps": (1, 100, 1000, 2000),
    "outer_optimizer": (None, "nesterov"),
    "staleness_steps": (0, 4, 5),
    **dict.fromkeys(("masked_loss", "per_token_loss", "deterministic"), FLAG),
    "reduce_every_microbatch": FLAG,
    "step_time_s": (0.5, 10.0),
    "num_samples": (1000, 102400),
    "consumed_samples": (0, 1000, 5000),
    **dict.fromkeys(("drop_last", "pad_last", "packed", "document_mask", "mock_data"), FLAG),
    **dict.fromkeys(("streamed", "workers_split_stream", "shuffle"), FLAG),
    **dict.fromkeys(("reshuffle_each_epoch", "index_shared", "index_prebuilt"), FLAG),
    **dict.fromkeys(("object_storage", "memory_map", "checkpoint_reshardable"), FLAG),
    **dict.fromkeys(("loader_state_saved", "order_recomputable", "exact_resume"), FLAG),
    "rng_saved": FLAG,
    "data_readers": (1, 8, 64),
    "num_workers": (0, 1, 2),
    "num_shards": (64, 1000, 1024),
    "num_files": (16, 100, 101),
    "mean_file_bytes": (1e9, 1e10),
    "read_bytes_per_s_per_node": (1e4, 1e9),
    "read_amplification": (1.0, 10.0),
    "saved_tp": (1, 4),
    "saved_pp": (1, 2),
    "saved_dp": (8, 64),
    "checkpoint_interval_s": (60.0, 600.0, 2400.0, 36000.0),
    "checkpoint_stall_s": (5.0, 30.0, 300.0),
    "checkpoint_bytes": (1e11, 1e13),
    "checkpoint_write_bytes_per_s_per_node": (1e8, 1e10),
    "checkpoints_kept": (0, 1, 2),
    "job_mtbf_s": (1e4, 1e5),
    "gpu_mtbf_s": (1e6, 1e7),
    "nccl_algo": (None, "Ring", "Tree", "NVLSTree", "CollnetDirect", "CollnetChain", "PAT"),
    "nccl_proto": (None, "LL128", "Simple"),
    "nccl_version": ((2, 21), (2, 26), (2, 30)),
    **dict.fromkeys(("ll128_safe", "gpu_direct_rdma", "imex", "use_sharp"), FLAG),
    "concurrent_communicators": FLAG,
    "sharp_groups": (0, 1, 2),
    "process_groups": (8, 30),
    "gpus_per_process": (1, 8),
    "rank_order": ("tp-cp-ep-dp-pp", "tp-cp-pp-dp", "cp-tp-dp-pp"),
    "bucket_elements": (1_000_000, 40_000_000, 600_000_000),
    "residual_bytes": (2, 4),
    "collective_timeout_s": (100.0, 600.0),
    "index_build_s": (60.0, 700.0),
    "compile_s": (10.0, 200.0),
}
DIRECT = (
    "DAT101",
    "DAT102",
    "DAT106",
    "DAT107",
    "DAT109",
    "DAT116",
    "DAT117",
    "DAT119",
    "DAT122",
    "DAT130",
    "DAT131",
    "DAT133",
    "DAT139",
    "DAT142",
    "DAT144",
    "DAT146",
    "DAT147",
    "DAT148",
    "DAT149",
    "DAT214",
    "DAT215",
    "DAT217",
    "DAT221",
    "DAT224",
    "DAT230",
    "DAT245",
    "DAT246",
    "DAT248",
    "DAT301",
    "DAT302",
    "DAT304",
    "DAT305",
    "DAT307",
    "DAT308",
    "DAT310",
    "DAT311",
    "DAT312",
    "DAT313",
    "DAT314",
    "DAT315",
    "DAT323",
    "DAT324",
    "DAT325",
    "DAT326",
    "DAT332",
    "COM101",
    "COM102",
    "COM106",
    "COM108",
    "COM109",
    "COM110",
    "COM111",
    "COM112",
    "COM116",
    "COM117",
    "COM118",
    "COM204",
    "COM205",
    "COM206",
    "COM207",
    "COM208",
    "COM209",
    "COM210",
    "COM211",
    "COM212",
    "COM214",
    "COM215",
    "COM216",
    "COM217",
    "COM301",
    "COM305",
    "COM309",
    "COM310",
    "COM312",
    "COM314",
)


@cache
def _random_job(seed: int) -> Job:
    """A job of one plan that states every fact the catalogue asks for."""
    rng = np.random.default_rng(seed)
    drawn = {name: values[rng.integers(len(values))] for name, values in CHOICES.items()}
    environment = tuple((n, v[rng.integers(len(v))]) for n, v in ENVIRONMENT.items())
    return as_numpy(build_job(**drawn, environment=environment))


@cache
def _names(seed: int) -> dict[str, Any]:
    """The catalogue's variables for a random job."""
    return names_of(_random_job(seed))


def _adapted(code: str, job: Job) -> dict[str, Any]:
    """Names whose meaning differs: what the catalogue's variable is in this rule's terms."""
    p, d = job.plan, job.workload.loading
    ulysses = p.context_parallel == ContextParallel.ULYSSES
    groups = int(p.dp * p.cp)
    special: dict[str, dict[str, Any]] = {
        "DAT102": {"dp_replicate": 1, "dp_shard": int(p.dp)},
        "DAT117": {"cp": 1 if ulysses else int(p.cp)},
        "DAT130": {"even_batches": d.pad_last},
        "DAT131": {"sampler": "other"},
        "DAT217": {"dp": groups, "zero_stage": 1 if p.dp_replicate > 1 else int(p.zero_stage)},
        "DAT230": {"zero_stage": int(p.zero_stage)},
        "COM106": {"collnet_enabled": _switches_reduce(job)},
        "COM112": {"nvlink_domain": min(job.cluster.links[0].domain, job.cluster.num_gpus)},
        "COM210": {"pipeline_dtype": "bf16"},
        "COM212": {"dp": groups},
        "COM216": {"zero_stage": int(p.zero_stage) if _sharded(job) else 0},
    }
    return special.get(code, {})


def _switches_reduce(job: Job) -> bool:
    return bool(job.cluster.links[1].in_network_reduction or job.workload.runtime.use_sharp)


def _sharded(job: Job) -> bool:
    return int(job.plan.dp * job.plan.cp // job.plan.dp_replicate) > 1


def _comparable(code: str, job: Job) -> bool:
    """Whether the catalogue's condition is meant for this job as the rule is."""
    if code == "COM205":  # a single domain has no border
        return job.cluster.num_gpus > job.cluster.links[0].domain
    if code == "DAT307":  # one epoch repeats no order
        return (job.workload.train_tokens or 0) > (job.workload.loading.dataset_tokens or 0)
    if code == "DAT314":  # an order that can be recomputed fits any dp
        return not job.workload.loading.order_recomputable
    if code == "COM212":  # what takes no time need not be hidden
        return bool(_reduction_s(job) > NOTICEABLE_SHARE * step_time_s(job))
    if code == "DAT215":  # parameters kept under a pipeline are gathered once a step
        return bool(job.plan.pp == 1 or job.plan.reshard_after_forward)
    if code == "DAT301":
        return not job.workload.loading.mock_data
    return True


@pytest.mark.parametrize("code", DIRECT)
def test_the_rule_agrees_with_the_catalogue(code: str) -> None:
    rule_ = find_rule(code)
    assert rule_ is not None
    seen = set()
    for seed in range(400):
        job = _random_job(seed)
        if not _comparable(code, job):
            continue
        expected = holds(code, {**_names(seed), **_adapted(code, job)})
        assert bool(rule_.condition(job)) == expected, f"{code} on job {seed}"
        seen.add(expected)
    assert seen == {True, False}


def test_degrees_below_one_agree_with_the_catalogue() -> None:
    rule_ = find_rule("DAT105")
    assert rule_ is not None
    for axis in ("tp", "pp", "cp", "ep", "dp_replicate"):
        for degree in (-1, 0, 1):
            job = as_numpy(build_job(dp=8, **{axis: degree}))
            with np.errstate(divide="ignore"):
                names = names_of(job)
            assert bool(rule_.condition(job)) == holds("DAT105", names)


def test_the_copied_conditions_are_those_of_general_rules() -> None:
    assert set(DIRECT) <= set(conditions())
