"""torchtitan's TOML, recipes and command lines, by release."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.framework import framework
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.torchtitan.meaning import SCHEDULES, layers_by_stage
from meshwright.frameworks.torchtitan.models import PRESETS, recipe_model, registered
from meshwright.frameworks.torchtitan.recipes import recipes
from meshwright.model.catalogue import presets
from meshwright.plan.words import CHOICES

RECIPE = """
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.quantization import Float8LinearConverter
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.deepseek_v3 import model_registry
from torchtitan.trainer import Trainer


def ours() -> Trainer.Config:
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=model_registry(
            "16B",
            attn_backend="varlen",
            moe_comm_backend="hybridep",
            non_blocking_capacity_factor=1.25,
            converters=[Float8LinearConverter.Config(filter_fqns=["lm_head"])],
        ),
        training=TrainingConfig(local_batch_size=4, seq_len=4096, disable_cuda_graphs=True),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, expert_parallel_degree=8),
        compile=CompileConfig(enable=True, enable_async_tensor_parallel=True),
        activation_checkpoint=FullAC.Config(),
    )
"""


def toml(text, **options):
    return read_text(text, file="train.toml", **options)


def test_toml_is_of_the_last_release_that_had_it():
    reading = toml("[parallelism]\ntensor_parallel_degree = 2\n[checkpoint]\nenable = true\n")
    assert reading.config.framework.name == "torchtitan"
    assert reading.config.version == "0.2.2"


def test_old_keys_tell_an_old_release():
    text = "[training]\nbatch_size = 4\ntensor_parallel_degree = 2\n"
    reading = toml(text + "[experimental]\npipeline_parallel_degree = 2\n")
    assert reading.config.version == "0.0.2"
    assert (reading.value("tp"), reading.value("pp")) == (2, 2)
    assert reading.value("micro_batch_size") == 2
    assert not reading.config.unknown


def test_minus_one_fills_the_gpus():
    text = "# 16 GPUs\n[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n"
    reading = toml(text + "data_parallel_replicate_degree = 2\n")
    assert reading.value("dp_shard_auto") is True
    assert (reading.value("dp_shard"), reading.value("dp")) == (4, 8)


def test_minus_one_is_not_known_without_gpus():
    reading = toml("[parallelism]\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n")
    assert reading.value("dp_shard") is None
    assert reading.value("dp") is None
    assert reading.value("zero_stage") == 3


def test_context_parallel_ranks_share_parameters_but_read_the_same_data():
    text = "[parallelism]\ndata_parallel_shard_degree = 1\ncontext_parallel_degree = 8\n"
    reading = toml(text)
    assert (reading.value("dp"), reading.value("cp"), reading.value("zero_stage")) == (1, 8, 3)


def test_replicas_alone_shard_nothing():
    text = "[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n"
    assert toml(text).value("zero_stage") == 0


@pytest.mark.parametrize(
    ("policy", "pp", "expected"),
    [("default", 1, True), ("default", 2, False), ("never", 1, False), ("always", 2, True)],
)
def test_default_policy_keeps_parameters_under_a_pipeline(policy, pp, expected):
    text = f'[parallelism]\nfsdp_reshard_after_forward = "{policy}"\n'
    assert (
        toml(text + f"pipeline_parallel_degree = {pp}\n").value("reshard_after_forward") is expected
    )


def test_a_pipeline_cuts_the_local_batch():
    text = "[training]\nlocal_batch_size = 8\n[parallelism]\npipeline_parallel_degree = 4\n"
    reading = toml(text + "pipeline_parallel_microbatch_size = 2\ndata_parallel_shard_degree = 2\n")
    assert reading.value("micro_batch_size") == 2
    assert reading.value("num_microbatches") == 4
    assert reading.value("global_batch_size") == 16


def test_without_a_pipeline_the_local_batch_is_the_micro_batch():
    text = "[training]\nlocal_batch_size = 8\nglobal_batch_size = 64\n"
    reading = toml(text + "[parallelism]\ndata_parallel_shard_degree = 4\n")
    assert reading.value("micro_batch_size") == 8
    assert reading.value("global_batch_size") == 64
    assert reading.value("gradient_accumulation_steps") == 2


@pytest.mark.parametrize(
    ("name", "word", "stages"),
    [
        ("1F1B", "1f1b", 1),
        ("GPipe", "gpipe", 1),
        ("Interleaved1F1B", "interleaved", 2),
        ("ZBVZeroBubble", "zb-v", 2),
        ("DualPipeV", "dualpipe-v", 2),
    ],
)
def test_schedules_by_class(name, word, stages):
    text = f'[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "{name}"\n'
    reading = toml(text)
    assert reading.value("schedule") == word
    assert reading.value("vpp") == reading.value("stages_per_rank") == stages
    assert reading.value("num_stages") == 2 * stages
    assert reading.value("schedule_name_unknown") is False


def test_a_schedule_that_nobody_has_is_known_as_such():
    text = '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "1F2B"\n'
    assert toml(text).value("schedule_name_unknown") is True


def test_every_schedule_is_a_word_of_plans():
    assert {word for word, _ in SCHEDULES.values()} <= {*CHOICES["schedule"]}


def test_layers_per_stage_give_the_number_of_stages():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\npipeline_parallel_degree = 4\n'
    more = "pipeline_parallel_layers_per_stage = 3\n"
    reading = toml(text + 'pipeline_parallel_schedule = "Interleaved1F1B"\n' + more)
    assert reading.value("num_stages") == 12  # ceil((32 + 2) / 3)
    assert reading.value("vpp") == 3


@given(st.integers(1, 200), st.integers(2, 32), st.integers(0, 3), st.integers(0, 3))
def test_stages_hold_all_layers(layers, stages, first, last):
    split = layers_by_stage(layers, stages, first, last)
    if split:
        assert sum(split) == layers
        assert len(split) == stages
        slots = [split[0] + first, *split[1:-1], split[-1] + last]
        assert max(slots) - min(slots) <= 1


def test_heavy_ends_become_a_layout():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\npipeline_parallel_degree = 4\n'
    reading = toml(text + "pipeline_parallel_first_stage_less_layers = 3\n")
    assert reading.value("layout") == [6, 9, 9, 8]


def test_every_second_layer_is_recomputed():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[activation_checkpoint]\nmode = "selective"\n'
    reading = toml(text + 'selective_ac_option = "2"\n')
    assert (reading.value("recompute"), reading.value("recompute_layers")) == ("full", 16)


def test_operators_are_recomputed():
    text = '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n'
    reading = toml(text)
    assert reading.value("recompute") == "selective"
    assert reading.value("recompute_modules") == ["alternate-matmuls"]


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ('converters = ["float8"]', "fp8"),
        ('converters = ["quantize.linear.float8"]', "fp8"),
        ('converters = ["quantize.linear.mx"]', "mxfp8"),
        ('flavor = "8B"', "bf16"),
    ],
)
def test_converters_set_the_precision(text, precision):
    reading = toml(f'[model]\nname = "llama3"\n{text}\n[parallelism]\ntensor_parallel_degree = 1\n')
    assert reading.value("precision") == precision
    assert reading.value("param_bytes") == 4
    assert reading.value("master_weights") is False


def test_bf16_training_holds_everything_in_two_bytes():
    reading = toml('[training]\nlocal_batch_size = 1\ndtype = "bfloat16"\n')
    found = [reading.value(v) for v in ("param_bytes", "grad_bytes", "optimizer_state_bytes")]
    assert found == [2, 2, 2]
    assert reading.value("reduce_bytes") == 4


def test_checkpoints_count_where_they_are_on():
    on = toml('[checkpoint]\nenable_checkpoint = true\ninterval = 50\nasync_mode = "async"\n')
    off = toml("[checkpoint]\ninterval = 50\n[parallelism]\ntensor_parallel_degree = 1\n")
    assert (on.value("checkpoint_interval_steps"), on.value("checkpoint_async")) == (50, True)
    assert off.value("checkpoint_interval_steps") is None


def test_a_recipe_is_read_by_its_calls():
    reading = read_text(RECIPE, file="config_registry.py")
    assert reading.config.framework.name == "torchtitan"
    assert reading.config.version == "0.3.0"
    expected = {
        "model_name": "deepseek-v2-lite",
        "attention_backend": "varlen",
        "ep_backend": "hybridep",
        "non_blocking_capacity_factor": 1.25,
        "precision": "fp8",
        "tp": 2,
        "ep": 8,
        "micro_batch_size": 4,
        "cuda_graph": False,
        "async_tp": True,
        "recompute": "full",
        "loss_chunks": 8,
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_graphs_are_on_by_default_since_0_3_alone():
    line = "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b"
    new = read_text(line + " --parallelism.tensor_parallel_degree 4\n", file="run.sh")
    assert (new.config.framework.name, new.config.version) == ("torchtitan", "0.3.0")
    assert (new.value("cuda_graph"), new.value("tp")) == (True, 4)
    assert new.value("model_name") == "llama-3.1-8b"
    assert toml("[parallelism]\ntensor_parallel_degree = 4\n").value("cuda_graph") is None


def test_loss_parallelism_is_said_by_its_opposite():
    text = "[parallelism]\ntensor_parallel_degree = 2\ndisable_loss_parallel = true\n"
    assert toml(text).value("loss_parallel") is False
    assert toml("[parallelism]\ntensor_parallel_degree = 2\n").value("loss_parallel") is True


def test_a_slip_of_the_pen_is_kept_and_named():
    reading = toml("[parallelism]\ntensor_paralel_degree = 2\npipeline_parallel_degree = 2\n")
    assert [s.spelled for s in reading.config.unknown] == ["parallelism.tensor_paralel_degree"]
    assert any("tensor_parallel_degree" in f.hint for f in reading.config.findings)


def test_registered_models_are_presets():
    assert {*PRESETS.values()} <= {*presets()}
    for (family, size), preset in PRESETS.items():
        found = registered(preset)
        assert found is not None
        assert (found[0], found[1].lower()) == (family, size)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("llama3_8b_mxfp8", ("llama3", "8b")),
        ("deepseek_v3_671b", ("deepseek_v3", "671b")),
        ("qwen3_0_6b", ("qwen3", "0.6b")),
        ("qwen35_4b", ("qwen3_5", "")),
        ("train", ("", "")),
    ],
)
def test_a_recipe_is_called_after_its_model(recipe, expected):
    assert recipe_model(recipe) == expected


def test_defaults_change_with_the_release():
    table = framework("torchtitan").table
    assert table.find("checkpoint.keep_latest_k", "0.0.2").default == 0
    assert table.find("checkpoint.keep_latest_k", "0.2").default == 10
    assert not table.find("training.batch_size", "0.2").exists_in("0.2")
    assert table.find("parallelism.expert_tensor_parallel_degree", "0.2").exists_in("0.2")
    assert not table.find("parallelism.expert_tensor_parallel_degree", "0.3").exists_in("0.3")


def test_a_command_line_starts_from_its_recipe():
    line = "torchrun -m torchtitan.train --module llama3 --config llama3_405b"
    reading = read_text(f"{line} --training.local_batch_size 4\n", file="run.sh")
    expected = {
        "model_name": "llama-3.1-405b",
        "tp": 8,
        "precision": "fp8",
        "recompute": "full",
        "compile": True,
        "async_tp": True,
        "seq_len": 8192,
        "micro_batch_size": 4,
        "loss_chunks": 8,
    }
    assert {name: reading.value(name) for name in expected} == expected
    assert reading.settings_of("tp")[0].spelled == "--config"
    assert [s.spelled for s in reading.settings_of("local_batch_size")] == [
        "--training.local_batch_size"
    ]


def test_recipes_state_fields_of_the_table():
    table = framework("torchtitan").table
    for values in recipes().values():
        for name, text in values.items():
            field = table.find(name, "0.3")
            assert field is not None, name
            assert field.exists_in("0.3"), name
            assert field.read(text or None)[1] == "", name


def test_a_command_line_outweighs_the_file_it_names(tmp_path):
    text = '[model]\nname = "llama3"\nflavor = "70B"\n[training]\nseq_len = 4096\n'
    (tmp_path / "train.toml").write_text(text + "[parallelism]\ntensor_parallel_degree = 8\n")
    line = "torchrun --nproc_per_node 8 --nnodes 2 -m torchtitan.train --job.config_file train.toml"
    script = tmp_path / "run.sh"
    script.write_text(f"{line} --parallelism.tensor_parallel_degree 4\n")
    (reading,) = read_files([script])
    assert reading.config.version == "0.2.2"
    expected = {"tp": 4, "model_name": "llama-3.1-70b", "seq_len": 4096, "num_gpus": 16, "dp": 4}
    assert {name: reading.value(name) for name in expected} == expected
