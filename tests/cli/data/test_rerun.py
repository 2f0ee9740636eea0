"""`data build` given again, from what it wrote, beside what is there, and where nothing is kept."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from meshwright.cli.main import run
from meshwright.data import building


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: bytes) -> Path:
    """A working directory with 40 documents, two of them equal, and a vocabulary."""
    monkeypatch.chdir(tmp_path)
    texts = [f"Document {number % 39} says that it is one of the many." for number in range(40)]
    Path("raw.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    Path("t.json").write_bytes(tokenizer)
    return tmp_path


@pytest.fixture(scope="module")
def tokenizer() -> bytes:
    """The vocabulary of the examples."""
    root = Path(__file__).parents[3]
    return (root / "examples" / "data" / "tokenizer.json").read_bytes()


def built(*arguments: str) -> int:
    return run(["data", "build", *arguments, "--workers", "1"])


def contents(folder: str) -> dict[str, bytes]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    named = {str(path.relative_to(folder)): path for path in paths}
    return {name: path.read_bytes() for name, path in named.items() if name[0] != "."}


TOKENS = ("--tokenizer", "t.json", "--seq-len", "64")


def test_config_of_the_output_builds_the_same_again(raw: Path, capsys) -> None:
    assert built("./raw.jsonl", "-o", "out", *TOKENS, "--seed", "3", "--save-text", "-q") == 0
    assert 'files = ["../raw.jsonl"]' in Path("out/config.toml").read_text()
    assert built("out/config.toml", "-o", "again", "-q") == 0
    assert contents("again") == contents("out")
    assert built("out/config.toml") == 0
    assert "nothing to do" in capsys.readouterr().err


def test_config_of_the_output_builds_from_any_folder(raw: Path, capsys, monkeypatch) -> None:
    assert built("raw.jsonl", "-o", "deep/out", *TOKENS, "-q") == 0
    monkeypatch.chdir("deep/out")
    assert built("config.toml", "-o", "../../again", "-q") == 0
    shards = [name for name in contents(".") if name.startswith("train-")]
    assert len(shards) == 4
    assert all(contents("../../again")[name] == contents(".")[name] for name in shards)


def test_a_rerun_says_that_nothing_was_done(raw: Path, capsys) -> None:
    assert built("raw.jsonl", "-o", "out") == 0
    assert "CPU, all workers" in capsys.readouterr().out
    assert built("raw.jsonl", "-o", "out") == 0
    said = capsys.readouterr()
    assert "nothing to do" in said.err
    assert "CPU" not in said.out
    assert "39 of 40 documents kept" in said.out
    assert built("raw.jsonl", "-o", "out", "--json") == 0
    assert json.loads(capsys.readouterr().out)["built"] is False


def test_nothing_kept_is_an_error_that_says_why(raw: Path, capsys) -> None:
    Path("empty.jsonl").write_text('{"text": ""}\n' * 3)
    for more in (["--dry-run"], [], []):
        assert built("empty.jsonl", "-o", "out", *more) == 1
        said = capsys.readouterr()
        assert "no document is kept of 3 that were read: empty 3" in said.err
        assert "explain empty" in said.err
        assert "dropped because" in said.out
    assert built("empty.jsonl", "-o", "out", "--quiet") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no document is kept" in said.err
    assert "nothing to do" not in said.err
    Path("nothing.jsonl").write_text("")
    for more in (["--dry-run"], []):
        assert built("nothing.jsonl", "-o", "none", *more) == 1
        assert "no document was read" in capsys.readouterr().err


def test_validation_that_holds_out_nothing_is_a_warning(raw: Path, capsys) -> None:
    assert built("raw.jsonl", "-o", "out", *TOKENS, "--validation", "0.0001") == 0
    assert "validation = 0.0001 holds out none of 39 documents" in capsys.readouterr().err
    assert built("raw.jsonl", "-o", "held", *TOKENS, "--validation", "0.3") == 0
    assert "holds out none" not in capsys.readouterr().err


def test_files_beside_several_sources_are_refused(raw: Path, capsys) -> None:
    Path("two.toml").write_text('[[source]]\nname = "a"\nfiles = "raw.jsonl"\n')
    assert built("two.toml", "raw.jsonl", "-o", "out") == 2
    said = capsys.readouterr().err
    assert "two.toml:1" in said
    assert "[[source]]" in said
    assert not Path("out").exists()


def test_write_config_replaces_no_other_file(raw: Path, capsys) -> None:
    asked = ["raw.jsonl", "-o", "out", "--write-config", "c.toml"]
    for _ in range(2):
        assert built(*asked) == 0
        assert "written: c.toml" in capsys.readouterr().err
    before = Path("c.toml").read_text()
    assert built(*asked, "--seed", "4") == 2
    assert "is there already" in capsys.readouterr().err
    assert Path("c.toml").read_text() == before


def test_interrupted_says_how_to_go_on(raw: Path, capsys, monkeypatch) -> None:
    def interrupted(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building, "finish", interrupted)
        assert built("raw.jsonl", "-o", "out") == 130
    first, last = capsys.readouterr().err.splitlines()
    assert "run the same command again to go on" in first
    assert last == "interrupted"
    for command, code in (("stats", 2), ("show", 2), ("verify", 1)):
        assert run(["data", command, "out"]) == code
        assert "the build is not finished" in "".join(capsys.readouterr())
    assert built("raw.jsonl", "-o", "out", "-q") == 0


def test_all_that_is_not_installed_is_named_at_once(raw: Path, capsys, monkeypatch) -> None:
    for library in ("orjson", "pyarrow"):
        monkeypatch.setitem(sys.modules, library, None)
    for more in ([], ["--dry-run"]):
        assert built("raw.jsonl", "-o", "out", *more) == 2
        said = capsys.readouterr().err
        assert "making shards of text needs orjson, pyarrow, which are not installed" in said
        assert "pip install 'meshwright[data]'" in said
    assert not os.path.exists("out")
