"""Help in the words that the framework takes: its own fields and values, or nothing."""

from __future__ import annotations

from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load
from meshwright.rules.pointing import _spelled, _told

MEGATRON = (
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
    "--num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 1 --global-batch-size 64 "
    "--recompute-granularity full --seq-length 4096 --bf16"
)
TRAINER = "torchrun run_clm.py --per_device_train_batch_size 8 --bf16 --output_dir out"


def _drafted(text, framework):
    reading = read_text(text, file="train.sh", framework=framework)
    given = {"model": load("llama-3-8b"), "cluster": cluster("H100-80GB:8", nodes=2)}
    return reading, draft(reading, **given)


def test_a_word_that_the_framework_lacks_is_the_removal_of_what_says_otherwise():
    reading, drafted = _drafted(MEGATRON, "megatron-lm")
    assert _told(reading, drafted, "recompute", 0) == "remove --recompute-granularity"


def test_what_is_stated_by_another_field_is_not_stated_twice():
    reading, drafted = _drafted(MEGATRON, "megatron-lm")
    words = _told(reading, drafted, "vpp", 4)
    assert "--num-virtual-stages-per-pipeline-rank" not in words or (
        "remove --num-layers-per-virtual-pipeline-stage" in words
    )


def test_a_change_without_a_field_of_its_own_is_what_writing_the_job_would_change():
    reading, drafted = _drafted(TRAINER, "transformers")
    assert _told(reading, drafted, "loss_chunks", 4) == ""
    assert "use_liger_kernel" in _told(reading, drafted, "fused_loss", True)


def test_a_variable_without_a_field_is_not_spelled():
    reading, _ = _drafted(TRAINER, "transformers")
    assert _spelled(reading, "loss_chunks", 4) == ""


def test_a_variable_of_the_environment_is_the_line_that_sets_it():
    reading, _ = _drafted(MEGATRON, "megatron-lm")
    line = _spelled(reading, "cuda_device_max_connections", 1)
    assert line == "export CUDA_DEVICE_MAX_CONNECTIONS=1"
    assert _spelled(reading, "cuda_device_max_connections", None).startswith("unset CUDA_")
