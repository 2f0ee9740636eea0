"""`check_files` and `check_text`: what is given beside the files, and what is not there."""

from __future__ import annotations

import pytest

from meshwright.api.checking import Given, check_files, check_text, cluster_of, stated
from meshwright.base.errors import MeshwrightError
from meshwright.frameworks.read import read_text

SCRIPT = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
    "--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
    "--tensor-model-parallel-size {tp} --bf16 --vocab-size 32000\n"
)


def test_a_text_is_checked_like_a_file(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT.format(tp=3))
    (file,) = check_files([path], compare=False).files
    text = check_text(SCRIPT.format(tp=3), file="train.sh", compare=False)
    assert [f.code for f in file.findings] == [f.code for f in text.findings]
    assert any(f.code == "MOD103" for f in file.findings)
    assert file.framework == "megatron-lm"


def test_what_cannot_be_read_is_one_file_of_the_report(tmp_path):
    broken = tmp_path / "ds_config.json"
    broken.write_text('{"train_batch_size": ')
    whole = tmp_path / "train.sh"
    whole.write_text(SCRIPT.format(tp=2))
    report = check_files([broken, whole], compare=False)
    assert [bool(f.error) for f in report.files] == [True, False]


def test_a_folders_other_files_are_skipped(tmp_path):
    other = tmp_path / "notes.json"
    other.write_text('{"title": "a", "author": "b"}')
    report = check_files([other], only_recognized=True, compare=False)
    assert report.files == ()
    assert report.skipped == (str(other),)


def test_gpus_are_counted_as_the_file_says():
    reading = read_text(SCRIPT.format(tp=2), file="train.sh")
    cluster = cluster_of(reading, Given(gpus="H100"))
    assert (cluster.num_gpus, cluster.gpus_per_node) == (16, 8)
    assert cluster_of(reading, Given(gpus="H100:4", nodes=3)).num_gpus == 12
    assert cluster_of(reading, Given()) is None


def test_a_variable_that_is_given_outweighs_the_file():
    reading, model = stated(
        read_text(SCRIPT.format(tp=2), file="train.sh"), Given(sets={"tp": "4"}, model="gpt2")
    )
    assert reading.value("tp") == 4
    assert model.name == "gpt2"
    with pytest.raises(MeshwrightError):
        stated(reading, Given(sets={"no_such_variable": "1"}))


def test_nodes_that_the_file_states_stand_beside_gpus_that_are_given():
    text = "trainer:\n  num_nodes: 2\nmodel:\n  tensor_model_parallel_size: 4\n"
    reading = read_text(text, file="x.yaml", framework="nemo")
    built = cluster_of(reading, Given(gpus="H100:8"))
    assert built is not None
    assert built.num_gpus == 16
    fewer = cluster_of(reading, Given(gpus="H100:8", nodes=1))
    assert fewer is not None
    assert fewer.num_gpus == 8


def test_memory_is_not_set_against_a_device_that_nobody_states():
    alone = check_text(SCRIPT.format(tp=2), file="train.sh", compare=False).summary
    assert "GiB a GPU" in alone
    assert " of " not in alone
    given = Given(gpus="H100:8", nodes=2)
    assert " of 79.1 GiB" in check_text(SCRIPT.format(tp=2), file="train.sh", given=given).summary
    short = SCRIPT.format(tp=2).replace("--seq-length 4096", "")
    assert "GiB" not in check_text(short, file="train.sh", given=given).summary


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    path, other = tmp_path / "train.sh", tmp_path / "other.sh"
    path.write_text(SCRIPT.format(tp=3))
    other.write_text(SCRIPT.format(tp=2))
    twice = [path, other, f"{tmp_path}/./train.sh", path]
    report = check_files(twice, compare=False)
    assert [f.file for f in report.files] == [str(path), str(other)]
    assert [f.file for f in check_files(twice, only_recognized=True, compare=False).files] == [
        str(path),
        str(other),
    ]


def test_what_an_option_outweighs_is_told():
    given = Given(model="llama-3-70b", gpus="H100:8", nodes=4)
    told = check_text(SCRIPT.format(tp=2), file="train.sh", given=given, compare=False).findings
    model, machine = (f for f in told if f.code == "CFG203")
    assert "32 layers" in model.message
    assert "--model llama-3-70b" in model.message
    assert "80 layers" in model.message
    assert "2 nodes, 16 GPUs" in machine.message
    assert "4 nodes, 32 GPUs" in machine.message
    assert model.line == machine.line == 1


@pytest.mark.parametrize("given", [Given(), Given(gpus="H100:8", nodes=2), Given(gpus="A100-80GB")])
def test_nothing_is_outweighed_where_both_say_the_same(given):
    told = check_text(SCRIPT.format(tp=2), file="train.sh", given=given, compare=False).findings
    assert "CFG203" not in {f.code for f in told}


@pytest.mark.parametrize(
    "more",
    [
        "--tensor-model-parallel-size 3",
        "--global-batch-size 63 --micro-batch-size 2",
        "--num-layers-per-virtual-pipeline-stage 3 --pipeline-model-parallel-size 4",
        "--context-parallel-size 2 --seq-length 4097",
        "--fp8-format hybrid --fp4-format e2m1",
        "--tensor-model-parallel-size 0",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 500",
    ],
)
def test_memory_over_the_device_is_never_in_the_summary_without_its_finding(more):
    text = SCRIPT.format(tp=1).strip() + f" --seq-length 131072 {more}\n"
    given = Given(gpus="A100-40GB:8", nodes=2)
    checked = check_text(text, file="train.sh", given=given, compare=False)
    codes = {f.code for f in checked.findings}
    peak, _, room = checked.summary.partition(" of ")
    if room and float(peak.rsplit(" ", 1)[1]) > float(room.split(" ")[0]):
        assert codes & {"CMP121", "MOD217"}
