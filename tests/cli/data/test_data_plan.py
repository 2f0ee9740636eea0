"""`meshwright data plan`: its figures, its exit codes, and what it says when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cli.main import run

PLAN = """
[model]
name = "llama-3-8b"
[cluster]
gpu = "H100:8"
nodes = 8
fabric = "ib-ndr-400"
[workload]
seq_len = 8192
global_batch = 512
train_tokens = "15T"
[plan]
tp = 2
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def test_sizes_without_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "plan", "--tokens", "15T", "--seq-len", "8192"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "assuming a vocabulary of 128,256 ids" in out
    assert "54.6 TiB" in out
    assert "6,000 of 9.31 GiB, shards of 2.50B tokens" in out
    assert out.splitlines()[-1].startswith("next: give --plan plan.toml")


def test_rates_and_checkpoints_with_one(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "plan", "--plan", plan_file, "--have", "5T"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert " 3.00 " in lines["epochs"]
    for what in ("throughput", "read, a node", "loader workers", "a checkpoint every"):
        assert what in lines
    assert "Young's optimum" in lines["a checkpoint every"]
    assert out.splitlines()[-1].startswith("next: meshwright data build")


def test_the_same_as_json(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "plan", "--plan", plan_file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["train_tokens"] == 15e12
    assert found["corpus"]["token_bytes"] == 4
    assert found["corpus"]["bin_bytes"] == 60e12
    assert found["reading"]["workers"] == 1
    assert found["checkpoints"]["interval_s"] > 0
    assert found["build"]["source"].startswith("benchmarks/data.py")
    assert found["findings"] == []


def test_findings_go_to_stderr_and_decide_the_exit_code(
    plan_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "plan", "--plan", plan_file, "--have", "1T"]) == 0
    told = capsys.readouterr().err
    assert "info[DAT149]" in told
    assert "train_tokens = 4000000000000\n" in told
    Path(plan_file).write_text(PLAN.replace("tp = 2", "tp = 3\ndp = 5"))
    assert run(["data", "plan", "--plan", plan_file]) == 1
    out, err = capsys.readouterr()
    assert "error[DAT101]" in err
    assert "token files" in out
    assert "throughput" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seq-len", "8192"], "--tokens 15T"),
        (["--tokens", "1T"], "--seq-len 8192"),
        (["--tokens", "1T", "--seq-len", "x"], "no number of tokens"),
        (["--tokens", "0", "--seq-len", "8"], "not possible"),
        (["--tokens", "much", "--seq-len", "8"], "1.5T"),
        (["--tokens", "1e29", "--seq-len", "8"], "not possible"),
        (["--tokens", "1T", "--seq-len", "8", "--bytes-per-token", "-1"], "negative"),
        (["--tokens", "1T", "--plan", "nowhere.toml"], "nowhere.toml"),
        (["--data", "nowhere"], "nowhere"),
        (["--data", "x", "--seq-len", "8"], "seq_len"),
    ],
)
def test_wrong_words_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "plan", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert "internal error" not in err


def test_a_blend_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blend = tmp_path / "blend.toml"
    blend.write_text("format = 1\n")
    assert run(["data", "plan", "--data", str(blend)]) == 2
    err = capsys.readouterr().err
    assert f"{str(blend)!r} is a file, not a folder of shards" in err
    assert "of a blend, each by itself" in err


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Shards with rows of 256 tokens, of a vocabulary of bytes."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|endoftext|>": 0} | {c: n for n, c in enumerate(alphabet, 1)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    model.add_special_tokens(["<|endoftext|>"])
    model.save(str(tmp_path / "tokenizer.json"))
    texts = [f"text number {number} " * 20 for number in range(40)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    words = ["--tokenizer", str(tmp_path / "tokenizer.json"), "--seq-len", "256"]
    out = str(tmp_path / "shards")
    assert run(["data", "build", str(tmp_path / "in.jsonl"), *words, "--quiet", "-o", out]) == 0
    capsys.readouterr()
    return out


@pytest.mark.parametrize("command", ["stats", "verify"])
def test_a_folder_under_a_plan_that_does_not_fit(
    command: str, folder: str, plan_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", command, folder]) == 0
    capsys.readouterr()
    assert run(["data", command, folder, "--plan", plan_file]) == 1
    out, err = capsys.readouterr()
    assert out
    assert "rows of 256 tokens, but the plan trains on 8,192" in err
    assert run(["data", command, folder, "--plan", plan_file, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["plan_findings"]
    assert any("rows of 256 tokens" in finding["message"] for finding in told)


def test_a_plan_for_a_folder(
    folder: str, plan_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(plan_file).write_text(PLAN.replace("8192", "256").replace("15T", "1e4"))
    assert run(["data", "plan", "--data", folder, "--plan", plan_file]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"in {folder}; 257 ids, 2 bytes each" in out
    assert "build from text" not in out
    assert out.splitlines()[-1] == f"next: meshwright data verify {folder}"


def test_a_build_says_what_the_plan_makes_of_it(
    folder: str, plan_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(Path(folder).parent / "in.jsonl")
    words = ["--tokenizer", str(Path(folder).parent / "tokenizer.json"), "--seq-len", "256"]
    arguments = ["data", "build", source, *words, "-o", f"{folder}2", "--quiet", "--plan"]
    assert run([*arguments, "nowhere.toml"]) == 2
    assert not Path(f"{folder}2").exists()
    capsys.readouterr()
    for more in ([], ["--dry-run"]):
        assert run([*arguments, plan_file, *more]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "rows of 256 tokens, but the plan trains on 8,192" in err
        assert "--seq-len 8192" in err
        assert not Path(f"{folder}2").exists()  # told before anything is built
    Path(plan_file).write_text(PLAN.replace("8192", "256"))
    run([*arguments, plan_file])
    assert Path(f"{folder}2", "manifest.json").is_file()
    assert "but the plan trains on" not in capsys.readouterr().err
