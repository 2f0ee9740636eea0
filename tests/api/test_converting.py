"""Conversion of recipes between frameworks: equal, or every difference told; nothing in silence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from meshwright import api
from meshwright.api.carried import stated_settings
from meshwright.api.converting import conversion, convert_files
from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.framework import framework

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from convert import CLOSE, RECIPES, judged, recipe, recipes, targets  # noqa: E402

ENTRIES = {entry["files"][0]: entry for entry in recipes()}
TARGETS = [target.name for target in targets()]


def source(name):
    return recipe(ENTRIES[name])


def converted(name, to):
    found = source(name)
    return found, conversion(found.reading, found.drafted, framework(to))


def files(name):
    return [RECIPES / file for file in ENTRIES[name]["files"]]


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_every_conversion_is_right(number):
    """Refused with reasons, or read back without error, equal or with every difference told.

    Each recipe meets a third of the targets here; `benchmarks/convert.py` runs all of them.
    """
    name = list(ENTRIES)[number]
    own = framework(ENTRIES[name]["framework"])
    cells = [judged(source(name), target) for target in (own, *targets()[number % 3 :: 3])]
    assert {cell.target: cell.faults for cell in cells if cell.kind == "wrong"} == {}
    assert all(cell.reasons for cell in cells if cell.kind == "refused")
    assert sum(cell.kind == "equal" for cell in cells) >= 1
    for cell in cells:
        if cell.kind == "explained":
            assert cell.changed


@pytest.mark.parametrize("name", sorted(ENTRIES))
@pytest.mark.parametrize("to", ["torchtitan", "hf-trainer"])
def test_every_setting_is_carried_or_listed_once(name, to):
    found, result = converted(name, to)
    if result.refused:
        return
    # Two settings may state one thing that changes, so places tell what is listed.
    settings = stated_settings(found.reading)
    listed = [note.split(": ", 1)[1].split(" ")[0] for f in result.lost for note in f.notes]
    alone = [f.key for f in result.lost if f.code == "CFG301" and f.labels]
    assert len(listed) == len(set(listed)) or len(found.reading.config.parts) > 0
    assert not {*alone} & {*listed}
    assert result.carried + result.dropped <= len(settings)
    changed = {label for f in result.differences for label in f.labels}
    assert result.carried + result.dropped + len(changed) + _of_program(result) >= len(settings)


def _of_program(result):
    """Settings that state what is left to the program; a value may be stated by several."""
    return sum(5 * len(f.key.split(",")) for f in result.lost if "leaves to" in f.message)


def test_a_change_says_what_why_and_what_it_costs():
    _, result = converted("megatron_llama3_70b.sh", "torchtitan")
    by_key = {f.key: f for f in result.differences}
    change = by_key["param_bytes,master_weights"]
    assert change.message == "param_bytes 2 becomes 4, master_weights true becomes false"
    assert "GiB" in change.consequence
    assert "fp32" in change.reason
    fused = by_key["fused_loss"]
    assert fused.line == 30
    assert "longer" in fused.consequence
    assert {f.code for f in result.differences} == {"CFG303"}


def test_equal_costs_where_the_plan_is_equal():
    _, result = converted("nemo_llama3_70b.yaml", "megatron-lm")
    assert result.differences == ()
    assert result.after.peak_bytes == pytest.approx(result.before.peak_bytes, rel=CLOSE)
    assert result.after.step_time_s == pytest.approx(result.before.step_time_s, rel=CLOSE)


def test_the_model_goes_by_the_name_that_the_source_gives_it():
    _, result = converted("swift_qwen3_moe.sh", "verl")
    assert "Qwen/Qwen3-30B-A3B-Base" in result.files["verl.overrides"]


def test_a_shape_that_is_a_known_model_gets_its_name():
    _, result = converted("megatron_llama3_70b.sh", "torchtitan")
    assert 'flavor = "70B"' in result.files["train.toml"]


def test_optimizer_settings_are_carried_under_other_names():
    _, result = converted("megatron_llama3_70b.sh", "nanotron")
    assert result.refused  # five chunks a rank
    _, result = converted("megatron_gpt3_175b.sh", "nanotron")
    text = result.files["nanotron.yaml"]
    for line in ("clip_grad: 1.0", "adam_beta2: 0.95", "min_decay_lr: 6.0e-06"):
        assert line in text


def test_trainers_get_deepspeed_as_a_file_of_its_own():
    _, result = converted("deepspeed_zero3.json", "llama-factory")
    assert list(result.files) == ["train.yaml", "ds_config.json"]
    assert "deepspeed: ds_config.json" in result.files["train.yaml"]
    assert '"stage": 3' in result.files["ds_config.json"]
    assert result.command == "FORCE_TORCHRUN=1 llamafactory-cli train train.yaml"


def test_a_mesh_of_the_trainer_stands_in_accelerates_file():
    _, result = converted("axolotl_fsdp_tp_cp.yaml", "hf-trainer")
    assert list(result.files) == ["training_args.yaml", "accelerate.yaml"]
    assert "parallelism_config_tp_size: 2" in result.files["accelerate.yaml"]
    assert result.command.startswith("accelerate launch --config_file accelerate.yaml")


@pytest.mark.parametrize(
    ("name", "to", "words"),
    [
        ("megatron_llama3_70b.sh", "torchtitan", ("--nproc_per_node 8", "--nnodes 8")),
        ("torchtitan_llama3_70b.toml", "axolotl", ("axolotl train", "--nnodes 32")),
        ("nemo_llama3_70b.yaml", "megatron-bridge", ("--nproc_per_node 8 --nnodes 4",)),
        ("swift_qwen3_moe.sh", "nanotron", ("--nnodes 2", "run_train.py --config-file")),
        ("hf_trainer_fsdp.yaml", "deepspeed", ("deepspeed --num_nodes 1 --num_gpus 8",)),
        ("megatron_llama3_70b.sh", "mindspeed", ("bash train.sh",)),
    ],
)
def test_the_command_tells_the_launcher_nodes_and_gpus(name, to, words):
    _, result = converted(name, to)
    assert all(word in result.command for word in words), result.command


def test_megatron_gets_the_queue_that_its_rules_ask_for():
    _, result = converted("plan_llama3_70b.toml", "megatron-lm")
    text = result.files["train.sh"]
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in text
    assert "GPUS_PER_NODE=8" in text
    assert "NNODES=8" in text
    assert "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES" in text


def test_the_environment_is_kept_but_for_what_the_target_suffers_from():
    _, result = converted("swift_qwen3_moe.sh", "megatron-lm")
    assert "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in result.files["train.sh"]
    assert "NPROC_PER_NODE" not in result.files["train.sh"]
    _, result = converted("megatron_llama3_70b.sh", "torchtitan")
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in result.command
    assert any(f.key == "CUDA_DEVICE_MAX_CONNECTIONS" for f in result.lost)


def test_ms_swift_is_launched_by_its_environment():
    _, result = converted("megatron_llama3_70b.sh", "ms-swift-megatron")
    text = result.files["train.sh"]
    for line in ("export NPROC_PER_NODE=8", "export NNODES=8", 'megatron pt "${ARGS[@]}"'):
        assert line in text
    assert "torchrun" not in text


def test_what_no_longer_fits_is_said():
    _, result = converted("torchtitan_llama3_70b.toml", "axolotl")
    (finding,) = [f for f in result.lost if f.code == "CFG304"]
    assert "do not fit" in finding.message
    assert result.after.peak_bytes > result.before.peak_bytes


def test_what_the_program_decides_is_told_to_it():
    _, result = converted("hf_trainer_sft.sh", "accelerate")
    (left,) = [f for f in result.lost if "leaves to the program" in f.message]
    assert "seq_len = 8192" in left.message
    assert "recompute = 'full'" in left.message
    assert result.after.peak_bytes == pytest.approx(result.before.peak_bytes, rel=CLOSE)


def test_a_refusal_writes_nothing_and_points_at_the_setting():
    _, result = converted("megatron_mixtral_8x7b.sh", "hf-trainer")
    assert result.files == {}
    (pipeline,) = [f for f in result.refused if f.key == "pp"]
    assert pipeline.labels
    assert "pipeline" in pipeline.message


def test_files_are_converted_by_name():
    result = convert_files(files("llama_factory_lora.yaml"), "axolotl", gpus="A100-80GB:4")
    assert "adapter: lora" in result.files["axolotl.yaml"]
    assert result.assumed == ()
    assert api.convert_files(files("llama_factory_lora.yaml"), "axolotl").files == result.files


def test_without_hardware_nothing_is_predicted(tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(files("llama_factory_lora.yaml")[0].read_text().replace("4 GPUs", "GPUs"))
    result = convert_files([path], "axolotl")
    assert (result.before, result.after) == (None, None)
    assert "gpu" in result.assumed
    assert result.files


def test_a_framework_that_is_only_read_is_an_error():
    with pytest.raises(MeshwrightError, match="is read, not written"):
        convert_files(files("plan_llama3_70b.toml"), "galvatron")


def test_what_stood_in_and_is_written_is_told(tmp_path):
    path = tmp_path / "accel.yaml"
    path.write_text(
        "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
        "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"
    )

    def assumed(**given):
        found = convert_files([path], "torchtitan", model="llama-3-8b", gpus="H100:8", **given)
        return found, {f.key: f.value for f in found.lost if f.message.startswith("assumed: ")}

    result, told = assumed()
    text = "".join(result.files.values())
    assert told.keys() == {"seq_len", "micro_batch_size", "global_batch_size"}
    assert f"seq_len = {told['seq_len']}\n" in text
    assert f"global_batch_size = {told['global_batch_size']}\n" in text
    assert result.before is None
    sets = {"seq_len": "8192", "micro_batch_size": "1", "global_batch_size": "32"}
    whole, nothing = assumed(sets=sets)
    assert nothing == {}
    assert whole.before is not None
