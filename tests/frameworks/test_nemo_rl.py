"""NeMo-RL's and SkyRL's own defaults around Megatron."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_text

MEGATRON = "policy:\n  megatron_cfg:\n    enabled: true\n"


def errors(text, framework="nemo-rl"):
    found = check_text(text, given=Given(framework=framework), compare=False).findings
    return {f.code for f in found if f.severity == 2}


def test_full_recompute_goes_layer_by_layer():
    assert not errors(MEGATRON + "    activation_checkpointing: true\n")


def test_experts_are_not_split_by_tensor_unless_said_so():
    text = MEGATRON + "    tensor_model_parallel_size: 8\n    sequence_parallel: true\n"
    text += "    expert_model_parallel_size: 64\ncluster:\n  gpus_per_node: 8\n  num_nodes: 8\n"
    assert not errors(text)
    assert "MOD142" in errors(
        text.replace("    expert_m", "    expert_tensor_parallel_size: 8\n    expert_m")
    )


def test_megatrons_degrees_do_not_count_under_dtensor():
    text = "policy:\n  dtensor_cfg:\n    enabled: true\n  megatron_cfg:\n    enabled: false\n"
    text += "    pipeline_model_parallel_size: 2\ncluster:\n  gpus_per_node: 1\n  num_nodes: 1\n"
    assert not errors(text)


@pytest.mark.parametrize(("parent", "refused"), [("defaults: base.yaml\n", False), ("", True)])
def test_nodes_that_another_file_tells_are_not_one(parent, refused):
    text = parent + MEGATRON + "    pipeline_model_parallel_size: 8\ncluster:\n  gpus_per_node: 4\n"
    assert bool(errors(text)) == refused


def test_nodes_that_generate_do_not_train():
    text = MEGATRON + "  train_global_batch_size: 32\n  train_micro_batch_size: 1\n  generation:\n"
    text += "    colocated:\n      enabled: false\n      resources:\n        num_nodes: 1\n"
    text += "cluster:\n  gpus_per_node: 8\n  num_nodes: 3\n"
    figures = check_text(text, given=Given(framework="nemo-rl"), compare=False).figures
    assert figures["num_gpus"] == 16


def test_a_split_with_unknown_layers_is_not_refused():
    text = MEGATRON + "    pipeline_model_parallel_size: 2\n"
    text += (
        "    num_layers_in_first_pipeline_stage: 14\n    num_layers_in_last_pipeline_stage: 13\n"
    )
    assert not errors(text)


def test_skyrl_saves_nothing_at_a_negative_interval():
    assert not errors("trainer.strategy=megatron trainer.ckpt_interval=-1", "skyrl")
