"""Meshes of MaxText, OLMo-core, FlagScale and InternLM in files that belong to no table."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_text

MAXTEXT = "model_name: llama2-7b\nici_fsdp_parallelism: {fsdp}\nici_tensor_parallelism: 4\n"
OLMO = "sequence_length: 4096\ndata_loader:\n  global_batch_size: {batch}\ntrain_module:\n"
INTERNLM = "parallel = dict(zero1=dict(size={zero1}), tensor=dict(size=4), pipeline=dict(size=1))\n"


def errors(text, **sets):
    given = Given(sets=sets)
    return {
        f.code for f in check_text(text, given=given, compare=False).findings if f.severity == 2
    }


@pytest.mark.parametrize(("fsdp", "refused"), [(8, True), (4, False), (-1, False)])
def test_maxtext_degrees_multiply_to_the_devices(fsdp, refused):
    assert ("DAT102" in errors(MAXTEXT.format(fsdp=fsdp), num_gpus=16)) == refused


def test_maxtext_counts_samples_a_device():
    text = MAXTEXT.format(fsdp=4) + "per_device_batch_size: 2\nmax_target_length: 2048\n"
    figures = check_text(text, given=Given(sets={"num_gpus": 16}), compare=False).figures
    assert (figures["micro_batch_size"], figures["seq_len"]) == (8, 2048)


def test_a_device_batch_without_maxtexts_mesh_is_a_micro_batch():
    figures = check_text("per_device_batch_size: 2\nnum_gpus: 8\n", compare=False).figures
    assert figures["micro_batch_size"] == 2


@pytest.mark.parametrize(
    ("tokens", "batch", "codes"),
    [
        (8192, 1048576, set()),
        (6000, 1048576, {"DAT168"}),
        (8192, 100 * 8192, {"DAT106"}),
    ],
)
def test_olmo_counts_tokens(tokens, batch, codes):
    text = OLMO.format(batch=batch) + f"  rank_microbatch_size: {tokens}\n"
    assert errors(text, num_gpus=16) == codes


@pytest.mark.parametrize(("zero1", "refused"), [(8, True), (2, False), (-1, False)])
def test_internlm_shards_inside_the_replicas(zero1, refused):
    assert ("DAT276" in errors(INTERNLM.format(zero1=zero1) + "# 8 GPUs\n")) == refused


@pytest.mark.parametrize(("second", "refused"), [(4, True), (2, False)])
def test_meshes_of_several_devices_are_none_of_one(second, refused):
    text = (
        "system:\n  tensor_model_parallel_size: 2\n  pipeline_model_parallel_size: 3\n"
        f"  hetero_process_meshes: [2, 1, 1, 2, 2, {second}, 1, 1, 2, 1]\n"
        "  ckpt_format: torch_dist\n"
    )
    found = errors(text, num_gpus=16)
    assert ("DAT366" in found) == refused
    assert not found - {"DAT366"}
