"""Memory where nothing says how many GPUs there are, and saving where nothing is saved."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_text

SCRIPT = """#!/bin/bash
GPUS_PER_NODE=8
NNODES={nodes}
{launcher} pretrain_gpt.py --num-layers 80 --hidden-size 8192 --num-attention-heads 64 \\
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 28672 --swiglu --bf16 \\
  --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 1024 \\
  --tensor-model-parallel-size 8 --sequence-parallel {more}
"""
TORCHRUN = "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"


def checked(*, nodes="$SLURM_NNODES", launcher=TORCHRUN, more="--use-distributed-optimizer"):
    text = SCRIPT.format(nodes=nodes, launcher=launcher, more=more)
    return {
        f.code: f
        for f in check_text(
            text, file="a.sh", given=Given(gpus="A100-80GB"), compare=False
        ).findings
    }


@pytest.mark.parametrize("launcher", [TORCHRUN, "python"])
def test_nodes_that_only_the_launcher_knows_are_not_one_node(launcher):
    found = checked(launcher=launcher)
    assert not {"MOD217", "CMP121"} & set(found)
    assert "the memory of 128 GPUs would do" in found["CFG201"].message


def test_stated_nodes_count():
    assert "MOD217" in checked(nodes="1")


def test_what_no_number_of_gpus_holds_is_certain():
    assert "MOD217" in checked(more="")


def test_where_nothing_is_saved_no_save_is_waited_for():
    assert "CMP255" not in checked(nodes="8")
    saving = "--use-distributed-optimizer --save ckpt --save-interval 1"
    assert "CMP255" in checked(nodes="8", more=saving)
