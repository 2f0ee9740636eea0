"""What comments and launchers say of the machine; commands outweigh comments."""

from __future__ import annotations

import pytest

from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source


def parsed(text, syntax="shell"):
    return parse_source(Source(file="f", text=text, syntax=syntax))


def facts(text, syntax="shell"):
    found = {name: value.value for name, value in parsed(text, syntax).launch.items()}
    names = ("num_nodes", "gpus_per_node", "num_gpus", "gpu_name", "model_remark")
    return tuple(found.get(name) for name in names)


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        ("8 GPUs", (None, None, 8, None, None)),
        ("64 nodes x 4 GPUs", (64, 4, 256, None, None)),
        ("4 nodes x 8 A100 40GB, 72B", (4, 8, 32, "A100 40GB", "72B")),
        ("2 nodes of 8 H100s", (2, 8, 16, "H100", None)),
        ("torchrun --nproc_per_node=4", (1, 4, 4, None, None)),
        ("cluster: nnodes 2, gpus_per_node 8", (2, 8, 16, None, None)),
        ("launched with 8 processes", (None, None, 8, None, None)),
        ("2 nodes, 16 GPUs", (2, 8, 16, None, None)),
        ("8 x A100 with NVLink", (None, None, 8, "A100", None)),
        ("node: 8 GPUs on PCIe", (None, 8, None, None, None)),
        ("16 GPUs, Qwen2.5-32B", (None, None, 16, None, "Qwen2.5-32B")),
        ("llama3 70b on one node", (1, None, None, None, "llama3 70b")),
        ("saved: world 32, dp 32", (None, None, None, None, None)),
        ("uses LlamaFactory and llama_config.py", (None, None, None, None, None)),
    ],
)
@pytest.mark.parametrize("syntax", ["shell", "yaml", "json"])
def test_remarks(remark, expected, syntax):
    body = "{}" if syntax == "json" else "a: 1" if syntax == "yaml" else "--a 1"
    assert facts(f"{body}\n# {remark}\n", syntax) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nproc_per_node 8 --nnodes 4 t.py", (4, 8, 32)),
        ("torchrun --nproc-per-node=8 t.py", (1, 8, 8)),
        ("python -m torch.distributed.run --nproc_per_node 2 t.py", (1, 2, 2)),
        ("deepspeed --num_gpus 8 t.py", (None, 8, None)),
        ("deepspeed --include localhost:0,1,2 t.py", (None, 3, None)),
        ("accelerate launch --num_processes 16 --num_machines 2 t.py", (2, 8, 16)),
        ("srun -N 4 --gpus-per-node=8 python t.py", (4, 8, 32)),
        ("srun -N4 --gres=gpu:a100:8 python t.py", (4, 8, 32)),
        ("mpirun -np 16 python t.py", (None, None, 16)),
        ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun python t.py", (2, 4, 8)),
        ("GPUS_PER_NODE=8\nNNODES=2\npython t.py", (2, 8, 16)),
        ("# 4 nodes x 4 GPUs\ntorchrun --nproc_per_node 8 --nnodes 2 t.py", (2, 8, 16)),
        ("# 4 nodes\ntorchrun --nproc_per_node 8 --nnodes $N t.py", (4, 8, 32)),
    ],
)
def test_launchers(command, expected):
    assert facts(command + " --x 1")[:3] == expected
    result = parsed(command + " --x 1")
    assert [(s.name, s.value) for s in result.settings] == [("--x", "1")]
    assert "t.py" in result.programs


def test_the_environment_of_the_processes():
    text = "export A=1\nB=2\nC=3 D=$B mpirun -x E=4 -np 2 python t.py"
    assert parsed(text).launch["environment"].value == {"A": "1", "C": "3", "D": "2", "E": "4"}


@pytest.mark.parametrize(
    ("remark", "expected"),
    [
        ("trainer: lr=5e-5 steps=8, 8 GPUs", {"trainer.lr": 5e-5, "trainer.steps": 8}),
        ("saved: world 32, dp 32", {"saved.world": 32, "saved.dp": 32}),
        ("checkpoint written with tp 2", {"saved.tp": 2}),
        ("saved with: --tp-size 4 --bf16", {"saved.tp-size": "4", "saved.bf16": True}),
        ("resume: world 128", {"resume.world": 128}),
        ("LlamaConfig(vocab_size=7)", {"LlamaConfig.vocab_size": 7}),
        ("Qwen3-4B, tie_word_embeddings true", {"tie_word_embeddings": True}),
        ("lr=5e-5", {}),  # code commented out
        ("--sequence-parallel is missing", {}),
        ("Example: --tp 8", {}),
    ],
)
def test_remarked_settings(remark, expected):
    text = f"--a 1\n# {remark}\n"
    result = parsed(text)
    assert {s.name: s.value for s in result.remarked} == expected
    for setting in result.remarked:
        assert text.index("#") < setting.where.start < setting.where.end <= len(text)
    assert [s.name for s in result.settings] == ["--a"]
