"""Blends: written, read, refused; and the command that makes them."""

import json
import re
import shutil

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.cli.main import run
from meshwright.data.mix import blend_text, make_blend, megatron_data_path, open_blend, read_blend


def test_a_blend_survives_its_file(two, tmp_path):
    blend = make_blend([str(path) for path in two], weights=(0.7, 0.3))
    file = tmp_path / "blend.toml"
    file.write_text(blend_text(blend))
    assert read_blend(file) == blend
    folders, parts = open_blend(file)
    assert parts == (7, 3)
    assert [folder.path for folder in folders] == list(two)


def test_relative_folders_move_with_the_blend(two, tmp_path, monkeypatch):
    monkeypatch.chdir(two[0].parent)
    inside = tmp_path / "runs"
    inside.mkdir()
    blend = make_blend(["a", "b"], beside=inside)
    (inside / "blend.toml").write_text(blend_text(blend))
    monkeypatch.chdir(tmp_path.parent)
    folders, _ = open_blend(inside / "blend.toml")
    assert [folder.path.resolve() for folder in folders] == [path.resolve() for path in two]


def test_without_weights_each_has_its_tokens(two):
    blend = make_blend([str(path) for path in two])
    tokens = [source.tokens for source in blend.sources]
    assert blend.shares == tuple(count / sum(tokens) for count in tokens)


def test_epochs_of_each_source(two):
    blend = make_blend([str(path) for path in two], weights=(3, 1))
    rows = [source.rows for source in blend.sources]
    tokens = 32 * 4 * rows[1]
    assert blend.epochs(tokens) == (3 * rows[1] / rows[0], 1.0)


@pytest.mark.parametrize(
    ("recipe", "said"),
    [({"tokenizer": "b"}, "tokenizer"), ({"seq_len": 64}, "seq_len"), ({"dtype": "<i4"}, "dtype")],
)
def test_folders_that_differ_are_refused(make_folder, recipe, said):
    paths = [str(make_folder("one")), str(make_folder("two", **recipe))]
    with pytest.raises(InvalidInput, match=said):
        make_blend(paths, weights=(1, 1))


@pytest.mark.parametrize("weights", [(1,), (1, 0), (1, -1), (1, float("nan")), (1, float("inf"))])
def test_weights_that_make_no_sense_are_refused(two, weights):
    with pytest.raises(InvalidInput, match="weight"):
        make_blend([str(path) for path in two], weights=weights)


def test_a_folder_that_was_built_again_is_refused(two, make_folder, tmp_path):
    file = tmp_path / "blend.toml"
    file.write_text(blend_text(make_blend([str(path) for path in two])))
    shutil.rmtree(two[1])
    make_folder("b", seed=99)
    with pytest.raises(InvalidInput, match="built again"):
        open_blend(file)


@pytest.mark.parametrize(
    "change",
    [
        ("weight = 0.7", "weight = -0.7"),
        ("weight = 0.7", 'weight = "0.7"'),
        ("format = 1", "format = 2"),
        ("[[sources]]", "[[source]]"),
        ("seq_len = 32", ""),
        ("[[sources]]", "[[sources"),
    ],
)
def test_a_wrong_blend_is_met_with_its_place(two, tmp_path, change):
    file = tmp_path / "blend.toml"
    blend = make_blend([str(path) for path in two], weights=(0.7, 0.3))
    file.write_text(blend_text(blend).replace(*change))
    with pytest.raises(InvalidInput) as caught:
        read_blend(file)
    assert all(finding.file == str(file) for finding in caught.value.findings)


def test_a_missing_blend(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        read_blend(tmp_path / "blend.toml")
    assert "data mix" in caught.value.findings[0].hint


def test_megatron_gets_a_weight_for_each_shard(two):
    paths = [str(path) for path in two]
    words = megatron_data_path(paths, make_blend(paths, weights=(0.7, 0.3)))
    weights, prefixes = [float(word) for word in words[::2]], words[1::2]
    assert sum(weights[:3]) == pytest.approx(0.7)
    assert weights[3] == pytest.approx(0.3)
    assert prefixes == [f"{two[0]}/train-0000{n}" for n in range(3)] + [f"{two[1]}/train-00000"]


def test_the_command(two, tmp_path, capsys):
    target = tmp_path / "blend.toml"
    paths = [str(path) for path in two]
    assert run(["data", "mix", *paths, "--weights", "0.7,0.3", "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert "--data-path 0.2" in printed.out
    assert "70.0%" in printed.out
    assert "30.0%" in printed.out
    assert "warning" not in printed.err
    assert "nothing repeats within" in printed.out
    assert "epochs" not in printed.out
    assert str(target) in printed.err
    assert read_blend(target).sources[0].weight == 0.7


def test_the_same_folder_twice_is_told(two, tmp_path, capsys):
    target, one = str(tmp_path / "blend.toml"), str(two[0])
    assert run(["data", "mix", one, str(two[1]), f"{one}/", "-o", target]) == 0
    printed = capsys.readouterr()
    assert "nothing repeats" not in printed.out
    told = printed.err
    assert told.count("warning: ") == 1
    assert f"{one}/ holds the same shards as {one}, named before it" in told


def test_small_shares_are_legible(two, tmp_path, capsys):
    paths = [str(path) for path in two]
    assert (
        run(["data", "mix", *paths, "--weights", "1,0.001559", "-o", str(tmp_path / "b.toml")]) == 0
    )
    assert "0.16%" in capsys.readouterr().out


def test_the_command_tells_repeats(two, tmp_path, capsys):
    paths = [str(path) for path in two]
    options = ["--tokens", "1M", "-o", str(tmp_path / "blend.toml")]
    assert run(["data", "mix", *paths, *options]) == 0
    assert "beyond 4 a repeat teaches little" in capsys.readouterr().out
    assert run(["data", "mix", *paths, *options, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["tokens"] == 1e6
    first = record["sources"][0]
    assert first["epochs"] == pytest.approx(1e6 * first["share"] / 32 / first["rows"])


@pytest.mark.parametrize(
    "options", [["--weights", "a,b"], ["--weights", "1"], ["--tokens", "many"], ["-o", "no/x.toml"]]
)
def test_wrong_usage_is_met_with_an_error(two, tmp_path, capsys, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [str(path) for path in two]
    assert run(["data", "mix", *paths, "-o", "blend.toml", *options]) == 2
    printed = capsys.readouterr().err
    assert "error" in printed
    assert "internal" not in printed
    assert not (tmp_path / "blend.toml").exists()


@pytest.fixture
def two(make_folder):
    return make_folder("a"), make_folder("b", documents=25, shards=1, seed=5)


@pytest.mark.parametrize("key", ["rows", "tokens", "seq_len"])
def test_counts_that_nothing_can_be_divided_by(two, tmp_path, key):
    path = tmp_path / "blend.toml"
    text = blend_text(make_blend([str(folder) for folder in two]))
    path.write_text(re.sub(rf"^{key} = .*", f"{key} = 0", text, flags=re.MULTILINE))
    with pytest.raises(InvalidInput, match=f"{key} = 0: is below 1"):
        read_blend(path)
