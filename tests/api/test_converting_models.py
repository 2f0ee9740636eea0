"""Conversion of a plan by a preset's name: the written arguments train that model."""

from __future__ import annotations

import pytest

from meshwright import api

PLAN = """[model]
name = "{model}"
[cluster]
gpu = "H100:8"
nodes = 2
[workload]
seq_len = 4096
global_batch_size = 128
[plan]
tp = 2
micro_batch_size = 1
zero_stage = {stage}
"""


def arguments(text):
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("--")]
    return dict(line.partition(" ")[::2] for line in lines)


@pytest.fixture
def planned(tmp_path):
    def convert(model, stage=1, **asked):
        path = tmp_path / "plan.toml"
        path.write_text(PLAN.format(model=model, stage=stage))
        found = api.convert_files([path], "megatron-lm", **asked)
        return found, arguments(found.files["train.sh"])

    return convert


@pytest.mark.parametrize(
    ("model", "base", "epsilon"),
    [("llama-3-8b", "500000", 1e-5), ("qwen3-8b", "1000000", 1e-6), ("llama-7b", "10000", 1e-6)],
)
def test_positions_norms_and_dropout_are_those_of_the_preset(planned, model, base, epsilon):
    found, said = planned(model)
    assert said["--rotary-base"] == base
    assert float(said["--norm-epsilon"]) == epsilon
    assert float(said["--attention-dropout"]) == float(said["--hidden-dropout"]) == 0
    assert not any("rotary" in words for words in found.to_state)


def test_scaled_positions(planned):
    said = planned("llama-3.2-1b")[1]
    assert "--use-rope-scaling" in said
    assert float(said["--rope-scaling-factor"]) == 32


def test_learned_positions_have_no_base_and_keep_dropout(planned):
    said = planned("gpt2-xl")[1]
    assert not {"--rotary-base", "--attention-dropout"} & {*said}


def test_what_is_not_known_and_what_is_missing_is_told(planned):
    told = planned("internlm2-7b")[0].to_state
    assert [words.split(" (")[0] for words in told] == [
        "tokenizer",
        "data",
        "learning rate",
        "length of the run",
        "rotary base",
        "epsilon of norms",
    ]


@pytest.mark.parametrize("version", ["", "0.19.2", "0.16.1", "0.14.0"])
@pytest.mark.parametrize(("stage", "word"), [(2, "optim_grads"), (3, "optim_grads_params")])
def test_what_is_sharded_is_written(planned, version, stage, word):
    said = planned("llama-3-8b", stage, to_version=version)[1]
    assert said["--data-parallel-sharding-strategy"] == word


def test_defaults_of_megatron_stay_where_a_script_leaves_them(planned, tmp_path):
    found, said = planned("llama-3-8b")
    bare = found.files["train.sh"]
    for name in ("--rotary-base", "--norm-epsilon", "--attention-dropout", "--hidden-dropout"):
        bare = bare.replace(f"    {name} {said[name]}\n", "")
    path = tmp_path / "bare.sh"
    path.write_text(bare)
    again = api.convert_files([path], "megatron-lm", gpus="H100:8", model="llama-3-8b")
    assert "--rotary-base" not in arguments(again.files["train.sh"])


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 512
seq_len = 8192
steps = 10000
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
"""


def test_check_of_the_written_file_predicts_what_the_conversion_says(tmp_path):
    from meshwright.report.conversion import conversion_lines

    source, target = tmp_path / "titan.toml", tmp_path / "train.sh"
    source.write_text(TITAN)
    found = api.convert_files([source], "megatron-lm", gpus="H100:8", nodes=2)
    target.write_text(found.files["train.sh"])
    (checked,) = api.check_files([target], gpus="H100:8", framework="megatron-lm").files
    assert checked.figures["peak_gib"] == pytest.approx(found.there.peak_bytes / 2**30)
    assert checked.figures["step_time_s"] == pytest.approx(found.there.step_time_s)
    assert found.there.peak_bytes != found.after.peak_bytes
    peak = f"{found.there.peak_bytes / 2**30:.1f} GiB after"
    assert any(line.startswith("peak memory") and peak in line for line in conversion_lines(found))


def test_the_same_framework_keeps_what_is_stated(planned, tmp_path):
    text = planned("llama-3-8b")[0].files["train.sh"]
    more = (
        "    --train-samples 1280000",
        "    --lr-warmup-samples 12800",
        "    --make-vocab-size-divisible-by 64",
        "    --attention-backend flash",
        "    --no-masked-softmax-fusion",
        "    --lr 3e-4",
        "    --mock-data",
        "    --tokenizer-type NullTokenizer",
    )
    path = tmp_path / "own.sh"
    stated = text.replace("ARGS=(\n", "ARGS=(\n" + "\n".join(more) + "\n")
    path.write_text(stated.replace("#!/bin/bash\n", "#!/bin/bash\n#SBATCH --exclusive\n"))
    found = api.convert_files([path], "megatron-lm", gpus="H100:8")
    said = arguments(found.files["train.sh"])
    wanted = arguments("\n".join(more))
    assert float(said.pop("--lr")) == float(wanted.pop("--lr"))
    assert {name: said.get(name) for name in wanted} == wanted
    assert "--train-iters" not in said
    assert found.to_state == ()
    assert found.dropped == 0
    assert [f.key for f in found.lost] == ["batch"]


def test_a_field_is_written_only_in_versions_that_have_it(planned, tmp_path):
    path = tmp_path / "own.sh"
    text = planned("llama-3-8b")[0].files["train.sh"]
    path.write_text(text.replace("ARGS=(\n", "ARGS=(\n    --num-workers 4\n"))
    found = api.convert_files([path], "torchtitan", gpus="H100:8")
    written = tmp_path / "train.toml"
    written.write_text(found.files["train.toml"])
    report = api.check_files([written], gpus="H100:8", framework="torchtitan")
    assert not [f.message for f in report.findings if f.code == "CFG105"]


def test_a_refused_schedule_says_what_to_type(planned, tmp_path):
    planned("llama-3-8b")
    path = tmp_path / "plan.toml"
    plan = path.read_text().replace("tp = 2", 'tp = 2\npp = 2\nschedule = "zb-h1"')
    path.write_text(plan)
    found = api.convert_files([path], "megatron-lm")
    assert "--set schedule=1f1b" in found.refused[0].hint
    again = api.convert_files([path], "megatron-lm", sets={"schedule": "1f1b", "vpp": 1})
    assert again.files
    assert not again.refused


def trained(planned, tmp_path):
    more = "--lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-samples 12800"
    more += " --train-samples 1280000 --adam-beta1 0.9 --adam-beta2 0.95 --load /ckpt/a"
    text = planned("llama-3-8b")[0].files["train.sh"]
    path = tmp_path / "own.sh"
    path.write_text(text.replace("ARGS=(\n", f"ARGS=(\n    {more}\n"))
    return path


def test_learning_rates_in_torchtitans_units(planned, tmp_path):
    import tomllib

    found = api.convert_files([trained(planned, tmp_path)], "torchtitan", gpus="H100:8")
    said = tomllib.loads(found.files["train.toml"])
    assert said["lr_scheduler"] == {
        "decay_type": "cosine",
        "min_lr_factor": 0.1,
        "warmup_steps": 100,
    }
    assert "initial_load_path" not in said.get("checkpoint", {})
    (lost,) = [f for f in found.lost if f.key == "--load"]
    assert "another format" in lost.message


def test_stated_betas_reach_deepspeed(planned, tmp_path):
    import json

    path = trained(planned, tmp_path)
    found = api.convert_files([path], "deepspeed", gpus="H100:8")
    said = json.loads(next(iter(found.files.values())))
    assert said["optimizer"]["params"]["betas"] == [0.9, 0.95]
    assert not any("--adam-beta2" in f.message for f in found.lost)
