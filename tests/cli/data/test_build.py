"""`data build` as it is typed: settings from flags and files, progress, summary, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright.cli.data import progress
from meshwright.cli.data.progress import line_of
from meshwright.cli.main import run
from meshwright.data.work.progress import Meter, Progress


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with 40 documents, two of them equal, in raw/a.jsonl."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()
    texts = [f"Document {number % 39} says that it is one of the many." for number in range(40)]
    lines = "".join(json.dumps({"text": text, "name": "x"}) + "\n" for text in texts)
    (tmp_path / "raw" / "a.jsonl").write_text(lines)
    return tmp_path


def test_from_flags_to_cleaned_text(raw: Path, capsys) -> None:
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "39 of 40 documents kept (97.5%)" in out
    assert "exact_duplicate" in out
    assert {"manifest.json", "documents.parquet", ".build.json"} <= set(os.listdir("out"))
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--workers", "1", "--resume"]) == 0
    again = capsys.readouterr()
    assert "39 of 40 documents kept" in again.out
    assert "nothing to do" in again.err


def test_going_on_and_starting_anew_exclude_each_other(raw: Path, capsys) -> None:
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--resume", "--fresh"]) == 2
    assert "--fresh leaves nothing to --resume" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("made", [False, True])
def test_a_refused_build_leaves_no_folder_of_its_own(raw: Path, capsys, made: bool) -> None:
    if made:
        Path("new").mkdir()
    assert run(["data", "build", "raw/none.jsonl", "-o", "new/out", "--workers", "1"]) == 2
    assert "none.jsonl" in capsys.readouterr().err
    assert Path("new").exists() == made
    assert not Path("new/out").exists()


def test_a_refused_build_leaves_the_folder_that_was_there(raw: Path, capsys) -> None:
    Path("out").mkdir()
    assert run(["data", "build", "raw/none.jsonl", "-o", "out", "--workers", "1"]) == 2
    assert os.listdir("out") == []


def test_json_on_stdout_alone(raw: Path, capsys) -> None:
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--json", "--workers", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"": 39, "exact_duplicate": 1}
    assert found["run"]["steps"]["read"]["documents_in"] == 40
    assert found["run"]["stages"]["scan"]["units"] == 1


def test_quiet_says_nothing(raw: Path, capfd) -> None:
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--quiet", "--workers", "1"]) == 0
    assert capfd.readouterr() == ("", "")


def test_written_settings_build_the_same(raw: Path, capsys) -> None:
    flags = ["raw/a.jsonl", "-o", "out", "--filters", "fineweb", "--pii", "--seed", "5"]
    assert run(["data", "build", *flags, "--write-config", "config.toml"]) == 0
    assert Path("config.toml").read_text() == (
        'seed = 5\n\n[input]\nfiles = ["raw/a.jsonl"]\n\n[output]\nfolder = "out"\n\n'
        "[fineweb]\n\n[pii]\n"
    )
    assert not Path("out").exists()
    assert run(["data", "build", "config.toml", "-q", "--workers", "1"]) == 0
    first = Path("out/manifest.json").read_bytes()
    assert run(["data", "build", *flags[:1], "-o", "again", *flags[3:], "-q"]) == 0
    assert Path("again/manifest.json").read_bytes() == first
    capsys.readouterr()


def test_flags_win_over_the_file(raw: Path, capsys) -> None:
    Path("config.toml").write_text('[input]\nfiles = "raw/*"\n[output]\nfolder = "out"\n')
    assert run(["data", "build", "config.toml", "-o", "there", "-q", "--no-exact-dedup"]) == 0
    assert not Path("out").exists()
    assert json.loads(Path("there/manifest.json").read_text())["counts"] == {"": 40}


def test_dry_run_writes_nothing(raw: Path, capsys) -> None:
    assert run(["data", "build", "raw/a.jsonl", "-o", "out", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("tried on all of the input: 40 documents")
    assert "exact_duplicate" in out
    assert not Path("out").exists()


WRONG = [
    (["-o", "out"], "input is missing", "name files on the command line"),
    (["raw/a.jsonl"], "output is missing", "give -o shards/"),
    (["raw/a.jsonl", "-o", "out", "--filters", "gophr"], "no filter 'gophr'", "gopher?"),
    (["raw/a.jsonl", "-o", "out", "--pack", "bestfit"], "--pack 'bestfit'", "best-fit?"),
    (["raw/a.jsonl", "-o", "out", "--validation", "1.5"], "--validation 1.5", "0.001"),
    (["raw/b.jsonl", "-o", "out"], "there is no such file", "raw/a.jsonl?"),
    (
        ["raw/a.jsonl", "-o", "out", "--tokenizer", "t.json"],
        "no such file",
        "give a tokenizer.json",
    ),
    (["raw/a.jsonl", "-o", "out", "--part", "9/8"], "is no part", "0/8"),
    (["raw/a.jsonl", "-o", "out", "--engine", "rey"], "no engine is called", "ray?"),
    (["raw/a.jsonl", "-o", "out", "--engine", "array"], "no task of a Slurm array", "--part"),
    (["raw/a.jsonl", "-o", "out", "--part", "0/2", "--fresh"], "cannot start anew", "remove"),
    (["raw/a.jsonl", "-o", "out", "--text-field", "body"], "cannot be read", "--text-field NAME"),
    (["raw/a.jsonl", "-o", "raw/a.jsonl"], "raw/a.jsonl", "another folder"),
    (["a.toml", "b.toml"], "more than one configuration", "one"),
]


@pytest.mark.parametrize(("arguments", "said", "hint"), WRONG)
def test_mistakes_are_said_in_words(raw: Path, capsys, arguments, said: str, hint: str) -> None:
    assert run(["data", "build", *arguments, "--workers", "1"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert hint in err
    assert "Traceback" not in err
    assert "internal error" not in err


def test_interrupted_is_130_and_the_same_command_goes_on(raw: Path) -> None:
    text = Path("raw/a.jsonl").read_text()
    Path("raw/a.jsonl").write_text(text * 20_000)
    command = [sys.executable, "-m", "meshwright", "data", "build", "raw/a.jsonl", "-o", "out"]
    process = subprocess.Popen([*command, "--workers", "2"], stderr=subprocess.PIPE, text=True)
    while not list(Path("out/.work/scan").glob("?????/unit.json")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "interrupted"
    assert "run the same command again to go on" in err
    done = len(list(Path("out/.work/scan").glob("?????/unit.json")))
    assert done
    found = subprocess.run([*command, "--json"], capture_output=True, check=True)
    assert json.loads(found.stdout)["run"]["stages"]["scan"]["found"] >= done


def test_a_line_says_share_rates_and_time_to_go() -> None:
    state = Progress(
        stage="scan",
        place=1,
        stages=7,
        units=20,
        units_done=5,
        bytes=400_000_000,
        bytes_done=100_000_000,
        documents=50_000,
        seconds=10.0,
        bytes_here=50_000_000,
    )
    expected = "[1/7] scan  25%, unit 5 of 20, 5.00 MB/s, 5k docs/s, 1.00 min left"
    assert line_of(state).replace("5.00k", "5k") == expected


def test_units_found_done_do_not_count_for_the_rate() -> None:
    told: list[Progress] = []
    meter = Meter("scan", told.append, place=(1, 1))
    meter.begin({0: 100, 1: 100, 2: 200}, [0])
    assert told[-1].bytes_done == 100
    assert told[-1].left_s is None
    meter.done(1, {"inputs": {"0": {"read": 7, "rejected": 1}}}, cpu_s=0.5)
    assert told[-1].units_done == 2
    assert told[-1].bytes_here == 100
    assert told[-1].documents == 7
    assert told[-1].left_s == pytest.approx(2 * told[-1].seconds)
    assert meter.facts()["cpu_seconds"] == 0.5


def test_lines_come_now_and_then_where_nobody_watches(capsys, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    with progress.watching(quiet=False) as tell:
        assert tell is not None
        meter = Meter("scan", tell, place=(1, 1))
        meter.begin({0: 100, 1: 100}, [])
        meter.done(0, {}, cpu_s=0.0)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "[1/1] scan   0%",
        "[1/1] scan  50%",
    ]
