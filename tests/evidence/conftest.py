from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import SETTINGS, Row
from meshwright.evidence.runs import packaged_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.evidence.row import Inexpressible
    from meshwright.evidence.runs import Runs
    from meshwright.plan.job import Job

GPT = {
    "model": "gpt-6.2b",
    "arch": "dense",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "head_dim": "128",
    "ffn": "16384",
    "gated_ffn": "0",
    "vocab": "50257",
    "tied_embed": "1",
    "experts": "0",
    "seq_len": "2048",
    "year": "2024",
    "gpu": "H100-80G-SXM",
    "gpus_per_node": "8",
    "num_gpus": "16",
    "interconnect": "NVLink4 in-node + InfiniBand NDR 400Gb/s per GPU (DGX H100)",
    "framework": "NeMo/Megatron-Core",
    "framework_version": "NeMo 24.12",
    "precision": "bf16",
    "task": "pretrain",
    "global_batch": "128",
    "micro_batch": "2",
    "tp": "2",
    "pp": "2",
    "vpp": "1",
    "cp": "1",
    "ep": "1",
    "dp": "4",
    "fsdp_shard": "0",
    "zero_stage": "1",
    "sequence_parallel": "1",
    "recompute": "none",
    "offload": "none",
}


@pytest.fixture
def make_row() -> Callable[..., Row]:
    def build(**changes: str) -> Row:
        settings = dict.fromkeys(SETTINGS, "") | GPT | changes
        return Row(settings)

    return build


@pytest.fixture(scope="session")
def reference() -> Runs:
    return packaged_runs()


@pytest.fixture(scope="session")
def jobs(reference: Runs) -> list[Job | Inexpressible]:
    return [job_of(run.row) for run in reference]
