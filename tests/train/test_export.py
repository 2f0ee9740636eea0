import json
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import checkpointing as runs  # noqa: E402
from safetensors import safe_open  # noqa: E402
from small import full_disk  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from meshwright.base.errors import InvalidInput, MeshwrightError  # noqa: E402
from meshwright.cli.main import run as command  # noqa: E402
from meshwright.train.checkpoint import Every, Saver, state_of  # noqa: E402
from meshwright.train.export import export  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402

FAMILIES = ("llama", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma2", "phi3", "mixtral")


@pytest.fixture(name="made", scope="module")
def _made(tmp_path_factory):
    """A checkpoint of every family, of two ranks, and its loss."""
    folder = tmp_path_factory.mktemp("runs")

    def run():
        losses = {}
        for family in FAMILIES:
            model = runs.started("fsdp2", family=family)
            saver = Saver(folder / family, every=Every(steps=1))
            saver.save(state_of([model]), 5, {"config": model.config.to_dict()})
            saver.close()
            with torch.no_grad():
                losses[family] = _loss(model)
        return losses

    return folder, run_ranks(run, 2)[0]


def _loss(model):
    return float(model(input_ids=runs.rows(), labels=runs.rows(), use_cache=False).loss)


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_it_to_the_same_loss(made, tmp_path, family):
    folder, losses = made
    done = export(folder / family / "step-5", tmp_path / "hf", shard_bytes=50_000)
    assert len([name for name in done.files if name.endswith(".safetensors")]) > 1
    assert (done.step, done.dtype, done.model_type) == (5, "float32", family)
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert done.parameters == model.num_parameters()
    with torch.no_grad():
        assert _loss(model) == losses[family]
    model.save_pretrained(tmp_path / "theirs")
    assert _shapes(tmp_path / "hf") == _shapes(tmp_path / "theirs")  # an expert a tensor, ...


def _shapes(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            found |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
    return found


def test_a_narrower_type_is_that_of_the_files_and_of_config_json(made, tmp_path):
    export(made[0] / "deepseek_v3" / "step-5", tmp_path / "hf", dtype="bfloat16")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["dtype"] == "bfloat16"
    with safe_open(tmp_path / "hf" / "model.safetensors", framework="pt") as file:
        kinds = {key: file.get_slice(key).get_dtype() for key in file.keys()}  # noqa: SIM118
    wide = {key.rpartition(".mlp.")[2] for key, kind in kinds.items() if kind == "F32"}
    assert wide <= {"gate.weight", "gate.e_score_correction_bias"}  # as transformers keeps them
    assert "gate.e_score_correction_bias" in wide


def test_a_torn_or_unfinished_checkpoint_is_refused(made, tmp_path):
    source = made[0] / "llama" / "step-5"
    place = tmp_path / "run" / "step-7"
    place.mkdir(parents=True)
    for path in source.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    whole = place.with_name("step-6")
    whole.mkdir()
    for path in source.iterdir():
        (whole / path.name).write_bytes(path.read_bytes())
    (place / "rank-00001.safetensors").write_bytes(b"torn")
    with pytest.raises(InvalidInput, match="it is torn"):
        export(place, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    done = export(tmp_path / "run", tmp_path / "hf")  # the newest that is whole
    assert [found.file for found in done.damage] == [str(place / "rank-00001.safetensors")]
    (place / "manifest.json").unlink()
    with pytest.raises(InvalidInput, match="no finished checkpoint"):
        export(place, tmp_path / "other")


def test_a_folder_is_replaced_only_when_forced_and_only_by_a_whole_one(made, tmp_path):
    out = tmp_path / "hf"
    out.mkdir()
    (out / "model-old.safetensors").write_text("x")
    source = made[0] / "llama"
    with pytest.raises(MeshwrightError, match="is not empty"):
        export(source, out)
    with full_disk(after_bytes=1000), pytest.raises(MeshwrightError, match="No space left"):
        export(source, out, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]
    assert [path.name for path in out.iterdir()] == ["model-old.safetensors"]
    export(source, out, force=True)
    assert not (out / "model-old.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_a_checkpoint_of_another_size_than_it_says_is_refused(tmp_path):
    def run():
        model = runs.started("one")
        saver = Saver(tmp_path / "run", every=Every(steps=1))
        keys = {**model.config.to_dict(), "intermediate_size": 96}
        saver.save(state_of([model]), 5, {"config": keys})
        saver.close()

    run_ranks(run, 1)
    with pytest.raises(MeshwrightError, match=r"has no model\S+mlp\S+ of \[96, 32\]"):
        export(tmp_path / "run", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_nothing_but_an_earlier_export_is_replaced(made, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(made[0] / "llama", run)
    (tmp_path / "thesis.txt").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(run)
    for out in (run, run / "step-5", tmp_path, ".", "..", "/", ""):
        with pytest.raises(MeshwrightError, match=r"is or holds the|which no export writes"):
            export(run / "step-5", out, force=True)
    monkeypatch.chdir("/")
    for out in (run, run / "step-5", tmp_path):
        with pytest.raises(MeshwrightError, match="is or holds the checkpoint"):
            export(run / "step-5", out, force=True)
    with pytest.raises(MeshwrightError, match=r"'thesis\.txt', which no export writes|'link'"):
        export(made[0] / "llama", tmp_path, force=True)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "target").mkdir()
    export(run, tmp_path / "link", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target" / "config.json").is_file()


def test_the_command_says_what_it_wrote(made, tmp_path, capsys):
    (tmp_path / "tokenizer.json").write_text("{}")
    asked = ["export", str(made[0] / "gemma2"), "-o", str(tmp_path / "hf")]
    assert command([*asked, "--tokenizer", str(tmp_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["step"] == 5
    assert set(record["files"]) >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert command(asked) == 2
    assert "is not empty" in capsys.readouterr().err
    assert command([*asked, "--force", "--dtype", "int4"]) == 2
    assert "one of float32" in capsys.readouterr().err
    assert command(["export", str(tmp_path / "none"), "-o", str(tmp_path / "x")]) == 2
    assert "is no folder" in capsys.readouterr().err
