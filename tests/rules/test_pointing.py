"""Fixes change what the plan's change demands, and leave what is only said in another way."""

from __future__ import annotations

import pytest

from meshwright.base.finding import Edit
from meshwright.frameworks.read import read_text
from meshwright.frameworks.text.edit import apply
from meshwright.hardware.catalogue import cluster
from meshwright.rules.lint import lint

MEGATRON = """\
torchrun --nproc_per_node 8 --nnodes 16 pretrain_gpt.py \\
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \\
    --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu \\
    --max-position-embeddings 8192 --position-embedding-type rope --disable-bias-linear \\
    --normalization RMSNorm --untie-embeddings-and-output-weights \\
    --make-vocab-size-divisible-by 128 --vocab-size 128256 \\
    --tensor-model-parallel-size 8 \\
    --pipeline-model-parallel-size 4 \\
    --num-layers-per-virtual-pipeline-stage 5 --sequence-parallel --use-distributed-optimizer \\
    --micro-batch-size 1 \\
    --global-batch-size 1024 \\
    --train-samples 244140625 --bf16 --recompute-activations
"""
AXOLOTL = """\
base_model: meta-llama/Meta-Llama-3-70B
sequence_len: 8192
micro_batch_size: 2
bf16: true
optimizer: adamw_torch
learning_rate: 1e-5
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
"""


def edits_of(code: str, text: str, *, file: str = "train.sh", nodes: int = 16) -> tuple[Edit, ...]:
    found = lint(read_text(text, file=file), cluster=cluster("H100:8", nodes=nodes)).findings
    return next(f for f in found if f.code == code).edits


@pytest.mark.parametrize(
    ("code", "stated", "wrong", "right"),
    [
        ("DAT106", "--global-batch-size 1024", "--global-batch-size 1022", "--global-batch-size"),
        ("MOD101", "--tensor-model-parallel-size 8", "--tensor-model-parallel-size 6", "--tensor-"),
    ],
)
def test_a_fix_leaves_run_length_padding_and_recompute_as_they_are(code, stated, wrong, right):
    text = MEGATRON.replace(stated, wrong)
    mended = apply(text, edits_of(code, text))
    before, after = text.splitlines(), mended.splitlines()
    changed = [b for a, b in zip(before, after, strict=True) if a != b]
    assert len(changed) == 1
    assert right in changed[0]


def test_a_fix_of_memory_leaves_the_precision_as_its_user_says_it():
    mended = apply(AXOLOTL, edits_of("MOD217", AXOLOTL, file="axo.yaml", nodes=1))
    assert mended != AXOLOTL
    assert "\nbf16: true\n" in mended
    assert mended.count("fsdp_config:") == 1
