"""Shell scripts and argument lists: what is read, from where, and what is left unknown."""

from __future__ import annotations

import pytest

from meshwright.frameworks.setting import UNKNOWN, Source
from meshwright.frameworks.text import parse_source, syntax_of


def parsed(text, file="train.sh"):
    return parse_source(Source(file=file, text=text, syntax=syntax_of(file, text)))


def values(text, file="train.sh"):
    return {s.name: s.value for s in parsed(text, file).settings}


SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
TP=${TP:-8}
PP=2
DATA=$(ls /data)
GBS=$((TP*PP*16))
MODEL_ARGS=(
    --num-layers 32 # layers
    --hidden-size 4096
    --data-path $DATA
)
MODEL_ARGS+=( --bf16 )
OTHER="--lr 1e-4 \
  --min-lr 1e-5 --tp-comm-overlap"
DISTRIBUTED_ARGS="--nproc_per_node 8 --nnodes $NNODES"
if [ "$FP8" = 1 ]; then
  OTHER="$OTHER --fp8-format hybrid"
  MBS=1
else
  MBS=2
fi
if [ $TP -gt 1 ]; then OTHER+=" --sequence-parallel"; fi
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    $OTHER \
    --tensor-model-parallel-size $TP --micro-batch-size $MBS \
    --global-batch-size ${GBS} \
    --hierarchical-context-parallel-sizes 2 4 \
    --log-interval=10 2>&1 | tee log.txt
"""


def test_a_whole_script():
    result = parsed(SCRIPT)
    assert {s.name: s.value for s in result.settings} == {
        "--num-layers": "32",
        "--hidden-size": "4096",
        "--data-path": UNKNOWN,
        "--bf16": True,
        "--lr": "1e-4",
        "--min-lr": "1e-5",
        "--tp-comm-overlap": True,
        "--fp8-format": "hybrid",
        "--sequence-parallel": True,
        "--tensor-model-parallel-size": "8",
        "--micro-batch-size": UNKNOWN,
        "--global-batch-size": "256",
        "--hierarchical-context-parallel-sizes": ["2", "4"],
        "--log-interval": "10",
    }
    assert len(result.settings) == 14  # each once
    assert result.programs == ("torchrun", "pretrain_gpt.py")
    facts = {name: value.value for name, value in result.launch.items()}
    assert facts == {
        "gpus_per_node": 8,
        "num_nodes": 4,
        "num_gpus": 32,
        "environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    }
    assert [f.key for f in result.findings] == ["$(ls /data)", "$NNODES", "$MBS of two branches"]


@pytest.mark.parametrize(
    ("name", "stands_as"),
    [
        ("--tensor-model-parallel-size", "8"),
        ("--global-batch-size", "$((TP*PP*16))"),
        ("--min-lr", "1e-5"),
        ("--num-layers", "32"),
        ("--hierarchical-context-parallel-sizes", "2 4"),
    ],
)
def test_a_value_is_where_it_is_stated(name, stands_as):
    (setting,) = [s for s in parsed(SCRIPT).settings if s.name == name]
    assert SCRIPT[setting.where.start : setting.where.end] == stands_as
    assert SCRIPT[setting.key.start : setting.key.end] == name


def test_cutting_the_whole_removes_the_setting_alone():
    for setting in parsed(SCRIPT).settings:
        cut = SCRIPT[: setting.whole.start] + SCRIPT[setting.whole.end :]
        left = values(cut)
        expected = values(SCRIPT)
        del expected[setting.name]
        assert left == expected, setting.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--a-b 16\n--sw\n# --bf16\n--lr=3e-4", {"--a-b": "16", "--sw": True, "--lr": "3e-4"}),
        ("--freq ([0]*7+[1]*7)\n--x 1", {"--freq": "([0]*7+[1]*7)", "--x": "1"}),
        ("--seed -1 --offset -.5 --bf16", {"--seed": "-1", "--offset": "-.5", "--bf16": True}),
        ("megatron sft\n  --tp 8\n  --sp true", {"--tp": "8", "--sp": "true"}),
        ("a.b=1\n+c.d=x\n~e.f\ng.h=null", {"a.b": "1", "c.d": "x", "e.f": None, "g.h": None}),
        ("python -m verl.main a.b=1 c=2 d.e='[1,2]'", {"a.b": "1", "c": "2", "d.e": "[1,2]"}),
        ("deepspeed --num_gpus 8 t.py --lr 1 pos", {"--lr": ["1", "pos"]}),
    ],
)  # fmt: skip
def test_lists_of_arguments(text, expected):
    assert values(text, "input") == expected
