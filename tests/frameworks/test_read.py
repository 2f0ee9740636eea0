"""From files to readings: recognition, resolution against tables, parts, complaints."""

from __future__ import annotations

import pytest

from meshwright.base.errors import InvalidInput, UnknownName
from meshwright.base.finding import Severity
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.setting import UNKNOWN
from meshwright.frameworks.text.edit import apply

MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4"


def codes(reading):
    return {f.code: f for f in reading.config.findings}


@pytest.mark.parametrize(
    ("text", "file", "name"),
    [
        (MEGATRON, "train.sh", "megatron-lm"),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}', "x.json", "deepspeed"),
        ("[parallelism]\ntensor_parallel_degree = 2\n", "x.toml", "torchtitan"),
        ("distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {}\n", "x.yaml", "accelerate"),
        ("parallelism:\n  dp: 2\n  tp: 2\n  pp: 1\ntokens: {}\n", "x.yaml", "nanotron"),
        ("a: 1\nb: 2\n", "x.yaml", "generic"),
    ],
)
def test_a_text_is_recognized_by_its_words(text, file, name):
    assert read_text(text, file=file).config.framework.name == name


def test_a_named_framework_outweighs_recognition():
    assert (
        read_text("a: 1\n", file="x.yaml", framework="axolotl").config.framework.name == "axolotl"
    )
    with pytest.raises(UnknownName):
        read_text("a: 1\n", file="x.yaml", framework="axolotI")


def test_values_are_typed_and_keep_their_places():
    reading = read_text(MEGATRON, file="train.sh")
    value = reading.values["tp"]
    assert value.value == 4
    (setting,) = value.settings
    assert MEGATRON[setting.where.start : setting.where.end] == "4"
    assert reading.value("gpus_per_node") == 8


def test_defaults_are_the_frameworks_own_and_not_stated():
    reading = read_text(MEGATRON, file="train.sh")
    assert reading.value("pp") == 1
    assert not reading.is_stated("pp")
    assert reading.is_stated("tp")


def test_an_unknown_key_is_kept_and_reported_with_what_it_may_mean():
    reading = read_text(f"{MEGATRON} --use-distributed-optimiser", file="train.sh")
    (unknown,) = reading.config.unknown
    assert unknown.spelled == "--use-distributed-optimiser"
    finding = codes(reading)["CFG101"]
    assert finding.severity is Severity.ERROR
    assert "unrecognized arguments" in finding.consequence
    assert finding.labels[0].length == len(unknown.spelled)
    assert "--use-distributed-optimizer" in finding.hint


@pytest.mark.parametrize(
    ("file", "text", "wrong", "right", "severity"),
    [
        ("train.sh", f"{MEGATRON} --sequence-paralel", "paralel", "parallel", Severity.ERROR),
        ("train.sh", f"{MEGATRON} --lr_warmup_ietrs 5", "ietrs", "iters", Severity.ERROR),
        (
            "ds.json",
            '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_buket_size": 5}}',
            *("buket", "bucket", Severity.WARNING),
        ),
        (
            "ds.json",
            '{"train_batch_size": 8, "gradient_cliping": 1.0, "zero_optimization": {"stage": 2}}',
            *("cliping", "clipping", Severity.WARNING),
        ),
    ],
)
def test_a_misspelt_key_is_renamed_in_its_writers_manner(file, text, wrong, right, severity):
    finding = codes(read_text(text, file=file))["CFG101"]
    assert finding.severity is severity
    assert all(edit.safe for edit in finding.edits)
    mended = apply(text, finding.edits)
    assert mended == text.replace(wrong, right)
    assert "CFG101" not in codes(read_text(mended, file=file))


def test_a_misspelt_key_is_not_renamed_to_one_that_is_stated_as_well():
    text = f"{MEGATRON} --sequence-parallel --sequence-paralel"
    finding = codes(read_text(text, file="train.sh"))["CFG101"]
    assert finding.edits == ()
    assert "--sequence-parallel" in finding.hint


def test_a_value_of_the_wrong_type_is_an_error_at_its_place_and_no_value():
    reading = read_text(f"{MEGATRON} \\\n  --micro-batch-size two", file="train.sh")
    finding = codes(reading)["CFG102"]
    assert (finding.severity, finding.line) == (Severity.ERROR, 2)
    assert reading.config.settings["--micro-batch-size"].value is UNKNOWN


def test_a_field_stated_twice_counts_as_stated_last():
    reading = read_text(f"{MEGATRON} --tensor-model-parallel-size 2", file="train.sh")
    assert reading.value("tp") == 2
    assert len(codes(reading)["CFG104"].labels) == 2


def test_the_same_value_twice_is_no_finding():
    reading = read_text(f"{MEGATRON} --tensor-model-parallel-size 4", file="train.sh")
    assert "CFG104" not in codes(reading)


def test_a_field_of_other_versions_is_reported_as_such():
    text = "[experimental]\npipeline_parallel_degree = 2\n[training]\nseq_len = 8\n"
    reading = read_text(text, file="x.toml", framework="torchtitan", version="0.2")
    assert "CFG105" in codes(reading)


def test_a_file_that_is_referred_to_becomes_a_part(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    script = tmp_path / "run.sh"
    script.write_text("deepspeed --num_gpus 4 train.py --deepspeed ds.json --bf16 True\n")
    (reading,) = read_files([script])
    assert [p.config.framework.name for p in reading.config.parts] == ["deepspeed"]
    assert reading.value("zero_stage") == 3
    assert len(reading.frameworks) == 2


def test_a_missing_reference_is_told(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("deepspeed --num_gpus 4 train.py --deepspeed mine.json --bf16 True\n")
    (reading,) = read_files([script])
    assert "CFG108" in codes(reading)


def test_files_given_together_are_one_configuration_where_one_refers_to_the_other(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    script = tmp_path / "run.sh"
    script.write_text("deepspeed --num_gpus 4 train.py --deepspeed ds.json --bf16 True\n")
    assert len(read_files([script, tmp_path / "ds.json"])) == 1


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    broken = tmp_path / "x.json"
    broken.write_text('{"zero_optimization": ')
    with pytest.raises(InvalidInput) as refused:
        read_files([broken])
    assert refused.value.findings[0].line == 1
