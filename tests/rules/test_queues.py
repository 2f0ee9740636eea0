"""Hardware queues: what Megatron demands of CUDA_DEVICE_MAX_CONNECTIONS is no demand of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.frameworks.read import read_text
from meshwright.hardware.catalogue import cluster
from meshwright.rules.communication.pattern import overlaps_share_queues
from meshwright.rules.example import example_job
from meshwright.rules.lint import lint
from meshwright.rules.rule import check

SCRIPT = """\
{exports}
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
    --num-attention-heads 32 --tensor-model-parallel-size 8 --seq-length 4096 --bf16 \\
    --micro-batch-size 1 --global-batch-size 64
"""


@pytest.mark.parametrize(("stack", "speaks"), [("megatron", True), ("torchtitan", False)])
def test_opposite_queues_are_megatrons(stack, speaks):
    job = example_job("plan(tp=4, overlap_tp=True, zero_stage=3)")
    assert bool(check(replace(job, stack=stack), [overlaps_share_queues])) is speaks


@pytest.mark.parametrize(
    ("exports", "speaks"),
    [
        ("export NCCL_IB_SL=1", True),
        ("export CUDA_DEVICE_MAX_CONNECTIONS=8", True),
        ("export NCCL_IB_SL=1\nexport CUDA_DEVICE_MAX_CONNECTIONS=1", False),
        ("", False),
    ],
)
def test_a_script_that_exports_others_leaves_the_number_of_queues_unset(exports, speaks):
    reading = read_text(SCRIPT.format(exports=exports), file="train.sh")
    found = {f.code: f for f in lint(reading, cluster=cluster("H100-80GB:8", nodes=1)).findings}
    assert ("COM201" in found) is speaks
    if speaks:
        assert found["COM201"].hint == "export CUDA_DEVICE_MAX_CONNECTIONS=1"
