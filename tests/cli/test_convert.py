"""`meshwright convert` with the conversion stood in for: streams, files, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshwright.api.converting import Conversion
from meshwright.base.finding import Finding, Label, Severity
from meshwright.cli.main import run

LOST = Finding(
    code="CFG301",
    severity=Severity.WARNING,
    message="b cannot say x = 1",
    file="a.toml",
    line=1,
    column=5,
    labels=(Label(text="here", file="a.toml", line=1, column=5),),
)
COST = SimpleNamespace(step_time_s=2.5, peak_bytes=3 * 2**30, required_bytes=4 * 2**30)


def conversion(**changes):
    values = {
        "source": "a",
        "target": "b",
        "files": {"train.sh": "run\n"},
        "carried": 3,
        "dropped": 1,
        "lost": (LOST,),
        "before": COST,
        "after": COST,
    }
    return Conversion(**(values | changes))


@pytest.fixture
def convert(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("a.toml").write_text("x = 1\n")
    calls, result = [], {}

    def convert_files(paths, to, **given):
        calls.append((paths, to, given))
        return result.get("is") or conversion()

    monkeypatch.setattr("meshwright.api.converting.convert_files", convert_files)
    return SimpleNamespace(calls=calls, result=result)


def test_the_file_goes_to_stdout_and_remarks_to_stderr(convert, capsys):
    assert run(["convert", "a.toml", "--to", "b"]) == 0
    out, err = capsys.readouterr()
    assert out == "run\n"
    assert err.splitlines() == [
        "warning[CFG301]: b cannot say x = 1",
        " --> a.toml:1:5",
        "  |",
        "1 | x = 1",
        "  |     ^ here",
        "",
        "a to b: 3 settings carried over, 1 not; the same plan",
        "peak memory: 3.0 GiB before, 3.0 GiB after",
        "step time: 2.50 s before, 2.50 s after",
    ]


def test_options_reach_the_conversion(convert):
    options = ["--to-version", "1", "--model", "m", "--gpus", "H100:8", "--nodes", "2"]
    run(["convert", "a.toml", "b.json", "--to", "b", *options, "--set", "tp=2"])
    ((paths, to, given),) = convert.calls
    assert (paths, to) == (["a.toml", "b.json"], "b")
    assert given == {
        "to_version": "1",
        "model": "m",
        "gpus": "H100:8",
        "nodes": 2,
        "framework": "",
        "version": "",
        "sets": {"tp": "2"},
    }


def test_a_refusal_writes_nothing_and_exits_with_1(convert, capsys):
    refused = LOST.replace(code="CFG302", severity=Severity.ERROR)
    convert.result["is"] = conversion(files={}, refused=(refused,), lost=())
    assert run(["convert", "a.toml", "--to", "b", "-o", "out"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[CFG302]" in err
    assert "b cannot run this plan, nothing is written" in err
    assert os.listdir() == ["a.toml"]


def test_output_into_a_folder_or_a_file(convert, capsys):
    assert run(["convert", "a.toml", "--to", "b", "-o", "out/"]) == 0
    assert Path("out/train.sh").read_text() == "run\n"
    assert "written: out/train.sh" in capsys.readouterr().err
    assert run(["convert", "a.toml", "--to", "b", "-o", "mine.sh"]) == 0
    assert Path("mine.sh").read_text() == "run\n"
    assert run(["convert", "a.toml", "--to", "b", "-o", "a.toml/"]) == 2


def test_several_files_are_told_apart(convert, capsys):
    convert.result["is"] = conversion(files={"a.sh": "one\n", "b.json": "{}\n"})
    run(["convert", "a.toml", "--to", "b"])
    assert capsys.readouterr().out == "==> a.sh <==\none\n==> b.json <==\n{}\n"
    run(["convert", "a.toml", "--to", "b", "-o", "both"])
    assert sorted(os.listdir("both")) == ["a.sh", "b.json"]


def test_json(convert, capsys):
    assert run(["convert", "a.toml", "--to", "b", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["files"] == {"train.sh": "run\n"}
    assert record["lost"][0]["line"] == 1
    assert record["before"] == {"step_time_s": 2.5, "peak_gib": 3.0, "required_gib": 4.0}


def test_what_is_missing_for_a_prediction_is_named(convert, capsys):
    convert.result["is"] = conversion(before=None, after=None, assumed=("model", "gpu"))
    run(["convert", "a.toml", "--to", "b"])
    assert "not predicted: model, gpu not stated; give --model" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["own.sh", "bare", "with space.sh"])
def test_the_start_names_the_file_that_was_written(convert, capsys, target):
    convert.result["is"] = conversion(command="A=train.sh.x bash train.sh")
    assert run(["convert", "a.toml", "--to", "b", "-o", target]) == 0
    shown = f"'{target}'" if " " in target else target
    assert f"start with: A=train.sh.x bash {shown}\n" in capsys.readouterr().err
    assert Path(target).read_text() == "run\n"


def test_the_start_names_the_folder(convert, capsys):
    convert.result["is"] = conversion(command="bash train.sh")
    assert run(["convert", "a.toml", "--to", "b", "-o", "out/", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "bash out/train.sh"


def test_files_that_name_each_other_are_started_in_their_folder(convert, capsys):
    several = {"train.sh": "run\n", "ds.json": "{}\n"}
    convert.result["is"] = conversion(files=several, command="bash train.sh")
    assert run(["convert", "a.toml", "--to", "b", "-o", "out"]) == 0
    assert "start with: cd out && bash train.sh\n" in capsys.readouterr().err
