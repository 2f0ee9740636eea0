import json
import os
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import checkpointing as runs  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from meshwright.base.errors import InvalidInput  # noqa: E402
from meshwright.plan.plan import Plan  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.model import files, weights  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402
from meshwright.train.model.twin import twin_of  # noqa: E402
from meshwright.train.verify.comparing import engine_of  # noqa: E402


def _saved(folder, family, **options):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(family, layers=4), dtype=torch.float32)
    model.save_pretrained(folder, max_shard_size="40KB", **options)
    return model


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_folder_is_read_as_transformers_wrote_it(tmp_path, family, fused):
    theirs = _saved(tmp_path, family, save_original_format=not fused)
    mine = twin_of(theirs.config)
    weights.load([mine], tmp_path, device="cpu")
    for name, value in theirs.state_dict().items():
        assert torch.equal(mine.state_dict()[name], value), name
    for name, buffer in theirs.named_buffers():
        assert torch.equal(dict(mine.named_buffers())[name], buffer), name


def test_every_rank_reads_its_share_of_one_tensor_an_expert(tmp_path):
    theirs = _saved(tmp_path, "qwen3_moe")
    plans = (Plan(dp=4, ep=2, etp=2, zero_stage=3), Plan(pp=2, tp=2, ep=2, vpp=2))

    def run():
        found = []
        for plan in plans:
            engine = engine_of(theirs.config, plan, seq_len=16, seed=0)
            weights.load(engine.stages, tmp_path, device="cpu")
            found.append({n: runs.whole(p).numpy() for n, p in engine.named_parameters()})
        return found

    wanted = dict(theirs.named_parameters())
    by_rank = run_ranks(run, 4)
    for index in range(len(plans)):
        seen = set()
        for found in by_rank:
            seen |= found[index].keys()
            for name, value in found[index].items():
                assert np.array_equal(value, wanted[name].detach().double().numpy()), name
        assert seen == wanted.keys()


def _one_file(folder, family="llama"):
    model = AutoModelForCausalLM.from_config(tiny_config(family, layers=2), dtype=torch.float32)
    model.save_pretrained(folder)
    return model.config, load_file(folder / "model.safetensors")


def _complaints(config, folder):
    with pytest.raises(InvalidInput) as caught:
        weights.sources_in(folder, config)
    return caught.value.findings


def test_all_that_does_not_fit_is_told_at_once(tmp_path):
    config, tensors = _one_file(tmp_path)
    tensors["model.norm.weight"] = torch.ones(7)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.9.extra"] = torch.ones(2, 3)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)
    save_file(tensors, tmp_path / "model.safetensors")
    found = _complaints(config, tmp_path)
    assert sorted(finding.message for finding in found) == [
        "lm_head.weight is stored as int8: quantized weights are not read",
        "model.layers.9.extra [2, 3] is not in the model",
        "model.norm.weight is [7] in the file, [32] in the model",
        "no file holds model.layers.1.mlp.up_proj.weight [48, 32]",
    ]
    assert all(finding.file and finding.hint and finding.key for finding in found)


def test_an_expert_that_is_missing_shows(tmp_path):
    config, tensors = _one_file(tmp_path, "mixtral")
    gone = next(n for n in tensors if ".experts.3." in n)
    del tensors[gone]
    save_file(tensors, tmp_path / "model.safetensors")
    assert any("in the file" in finding.message for finding in _complaints(config, tmp_path))


def test_frequencies_that_old_files_hold_are_passed_over(tmp_path):
    config, tensors = _one_file(tmp_path)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "model.safetensors")
    assert weights.sources_in(tmp_path, config)


def test_a_tied_head_in_the_file_is_no_surprise(tmp_path):
    config, tensors = _one_file(tmp_path, "gemma2")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert "lm_head.weight" not in weights.sources_in(tmp_path, config)


@pytest.mark.parametrize("name", ["model.safetensors", "model.safetensors.index.json"])
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InvalidInput, match="is no regular file"):
        files.tensors_in(tmp_path)


def test_pickles_are_refused_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "mark"),))

    config = tiny_config("llama", layers=2)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    (finding,) = _complaints(config, tmp_path)
    assert "a pickle, which can run code" in finding.message
    assert "save_pretrained" in finding.hint
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(Evil()))
    (finding,) = _complaints(config, tmp_path)
    assert "cannot be read" in finding.message
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("index", "told"),
    [
        ({"weight_map": {"a": "../x.safetensors"}}, "which is no safetensors file of its folder"),
        ({"weight_map": {"a": "x.bin"}}, "which is no safetensors file of its folder"),
        ({"weight_map": {"a": 3}}, "which is no safetensors file of its folder"),
        ({"weight_map": {"a": "x.safetensors"}}, "is missing, though the index names it"),
        ({"weight_map": 3}, "is no index"),
        ([], "is no index"),
    ],
)
def test_an_index_names_files_of_its_folder_alone(tmp_path, index, told):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert told in _complaints(tiny_config("llama"), tmp_path)[0].message


@pytest.mark.parametrize("header", [b"", b"\xff" * 8, (1 << 60).to_bytes(8, "little") + b"{}"])
def test_a_header_that_lies_is_refused(tmp_path, header):
    (tmp_path / "model.safetensors").write_bytes(header)
    assert "cannot be read" in _complaints(tiny_config("llama"), tmp_path)[0].message
