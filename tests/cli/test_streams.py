"""Streams and files that break: full disks, closed pipes, interrupts, odd terminals."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.cli import output
from meshwright.cli.main import run
from meshwright.report.terminal import draw

PLAN = ["plan", "llama-3-8b", "--gpu", "H100:8", "--seq-len", "2048", "--global-batch", "64"]
PLAN += ["--pin", "cp=1", "--pin", "pp=1", "--top", "1"]
COMMAND = [sys.executable, "-m", "meshwright"]
TELLING = """
import sys
from meshwright.__main__ import main
loaded = "meshwright.cli.main"  # from here on interrupts are the command's
def tell(what, of):
    if what == "import" and of[0] == loaded:
        print("up", flush=True)
sys.addaudithook(tell)
main()
"""
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


def shell(text):
    line = f"{' '.join(COMMAND)} {text}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


@needs_full
@pytest.mark.parametrize("arguments", [" ".join(PLAN), f"{' '.join(PLAN)} --json", "--version"])
def test_a_full_disk(arguments):
    done = shell(f"{arguments} > /dev/full")
    assert done.returncode == 2
    assert "No space left" in done.stderr


@needs_full
def test_nowhere_to_report():
    assert shell("plan zzz --gpu H100:8 --seq-len 1 --global-batch 1 2> /dev/full").returncode == 2


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed):
    assert shell(f"{' '.join(PLAN)} {closed}").returncode == 0


def test_a_reader_that_goes_away():
    done = shell("show rules --json | head -1; exit ${PIPESTATUS[0]}")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("columns", ["0", "1", "20", "-5", "x"])
def test_terminals_of_any_width(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    stream = io.StringIO()
    draw(["parameters"], stream)
    assert "parameters" in stream.getvalue()


def test_ascii_only():
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*COMMAND, *PLAN], capture_output=True, env=environment, timeout=60)
    assert done.returncode == 0
    assert done.stdout.decode("ascii").startswith("llama-3-8b")


@pytest.mark.parametrize("path", ["/nonexistent/plan.toml", "", "/", "a\0b", "/dev/null/x"])
def test_places_that_cannot_be_written(path, capsys, monkeypatch):
    monkeypatch.setattr("meshwright.cli.plan._search", pytest.fail)  # refused before the search
    assert run([*PLAN, "--write", path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "cannot write" in err
    assert "hint: " in err


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "plan.toml"
    path.write_text("old")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write_file(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.toml"]
    monkeypatch.undo()
    output.write_file(str(path), "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["plan.toml"]


@pytest.mark.parametrize("delay", [0.0, 0.2, 0.6, 1.5])
def test_an_interrupt_ends_quietly(delay, tmp_path):
    """At any moment: 130, no traceback, and a file that is whole if it is there."""
    arguments = ["plan", "deepseek-v3", "--gpu", "H800:8", "--nodes", "256", "--seq-len", "4096"]
    arguments += ["--global-batch", "63Mtok", "--exhaustive", "--write", str(tmp_path / "p.toml")]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=delay + 0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode == 130
    assert [name for name in os.listdir(tmp_path) if name != "p.toml"] == []
