"""`meshwright check` with the reading and judging of files stood in for."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from pathlib import Path

import pytest

from meshwright.base.finding import Edit, Finding, Label, Severity
from meshwright.base.locate import read_text
from meshwright.cli.main import run
from meshwright.report.check.report import Checked, Report

SCRIPT = "#!/bin/bash\ntorchrun train.py --tp 8 --redundant\n"


def judged(text, file):
    """An error at "--tp 8" with an unsafe fix, a warning at "--redundant" with a safe one."""
    findings = []
    for word, code, severity, new in (
        ("8", "MOD101", Severity.ERROR, "4"),
        (" --redundant", "COM203", Severity.WARNING, ""),
    ):
        at = text.find(word)
        if at >= 0:
            line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            place = {"file": file, "line": line, "column": column}
            edit = Edit(file=file, start=at, end=at + len(word), text=new, safe=not new)
            label = Label(text="here", length=len(word), **place)
            findings.append(
                Finding(
                    code=code,
                    severity=severity,
                    message=code,
                    labels=(label,),
                    edits=(edit,),
                    **place,
                )
            )
    findings.append(Finding(code="CFG202", severity=Severity.INFO, message="note"))  # of no place
    return Checked(
        file=file, framework="f", findings=tuple(findings), sources={file: text}, summary="f: tp"
    )


@pytest.fixture
def calls(monkeypatch):
    """Options of every call; files that hold "train.py" are configurations."""
    seen = []

    def check_files(paths, *, texts, only_recognized=False, progress=None, **given):
        seen.append(given | {"paths": list(paths)})
        files, skipped = [], []
        for path in paths:
            if path in texts:
                files.append(judged(texts[path], path))
            elif not os.path.exists(path):
                files.append(Checked(file=path, error=f"cannot read {path!r}: No such file"))
            elif "train.py" in read_text(path) or not only_recognized:
                files.append(judged(read_text(path), str(path)))
            else:
                skipped.append(path)
        return Report(files=tuple(files), skipped=tuple(skipped))

    monkeypatch.setattr("meshwright.api.checking.check_files", check_files)
    return seen


@pytest.fixture
def folder(tmp_path, monkeypatch, calls):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.sh").write_text(SCRIPT)
    (tmp_path / "train.sh").chmod(0o755)
    return tmp_path


def test_findings_of_a_file(folder, capsys):
    assert run(["check", "train.sh"]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("error[MOD101]: MOD101\n --> train.sh:2:24\n")
    assert "2 | torchrun train.py --tp 8 --redundant\n  |                        ^ here\n" in out
    assert "\ntrain.sh: f: tp\n" in out
    assert "Found 1 error, 1 warning, 1 note in 1 file (1 fixable with --fix, 1 more with" in out


def test_options_reach_the_check(folder, calls):
    options = ["--model", "llama-3-8b", "--gpus", "H100:8", "--nodes", "4", "--no-compare"]
    options += ["--framework", "f", "--framework-version", "1.2", "--set", "micro-batch-size=2"]
    run(["check", "train.sh", *options])
    assert calls == [
        {
            "paths": ["train.sh"],
            "model": "llama-3-8b",
            "gpus": "H100:8",
            "nodes": 4,
            "framework": "f",
            "version": "1.2",
            "sets": {"micro_batch_size": "2"},
            "compare": False,
            "edits": True,
        }
    ]


@pytest.mark.parametrize(
    ("options", "compare", "edits"),
    [
        (["train.sh"], True, True),
        (["train.sh", "--no-compare"], False, True),
        (["."], False, False),
        ([".", "--compare"], True, False),
        ([".", "--fix"], False, True),
        ([".", "--output-format", "sarif"], False, True),
    ],
)
def test_folders_are_checked_without_what_takes_long(folder, calls, options, compare, edits):
    run(["check", *options])
    assert (calls[0]["compare"], calls[0]["edits"]) == (compare, edits)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--select", "COM"], 1),
        (["--select", "CFG"], 0),
        (["--ignore", "MOD,COM"], 0),
        (["--exit-zero"], 0),
        (["missing.sh"], 2),
        (["missing.sh", "--exit-zero"], 2),
        (["--select", "NOPE"], 2),
        (["--set", "tp"], 2),
        (["--output-format", "sarif", "--statistics"], 2),
        (["--fix", "--unsafe-fixes"], 0),
    ],
)
def test_exit_codes(folder, options, code, capsys):
    assert run(["check", "train.sh", *options]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_fix_applies_safe_edits_and_says_what_is_left(folder, capsys):
    assert run(["check", "train.sh", "--fix"]) == 1
    assert Path("train.sh").read_text() == SCRIPT.replace(" --redundant", "")
    assert stat.S_IMODE(os.stat("train.sh").st_mode) == 0o755
    out = capsys.readouterr().out
    assert "COM203" not in out
    assert "Fixed 1 finding in 1 file; 1 error, 1 note left (1 fixable with --fix --unsafe-" in out


def test_unsafe_fixes_must_be_asked_for(folder, capsys):
    assert run(["check", "train.sh", "--unsafe-fixes"]) == 1
    assert Path("train.sh").read_text() == SCRIPT
    told = capsys.readouterr()
    assert "(2 fixable with --fix --unsafe-fixes)" in told.out
    assert told.err == "--unsafe-fixes does nothing without --fix or --diff\n"
    assert run(["check", "train.sh", "--fix", "--unsafe-fixes"]) == 0
    assert "does nothing" not in capsys.readouterr().err
    assert Path("train.sh").read_text() == "#!/bin/bash\ntorchrun train.py --tp 4\n"


def test_diff_writes_nothing(folder, capsys):
    assert run(["check", "train.sh", "--diff"]) == 1
    out, err = capsys.readouterr()
    assert Path("train.sh").read_text() == SCRIPT
    assert out.splitlines() == [
        "--- a/train.sh",
        "+++ b/train.sh",
        "@@ -1,2 +1,2 @@",
        " #!/bin/bash",
        "-torchrun train.py --tp 8 --redundant",
        "+torchrun train.py --tp 8",
    ]
    assert err == "Would fix 1 finding; nothing was written\n"


def test_a_diff_of_nothing_is_clean(folder, capsys):
    Path("train.sh").write_text("torchrun train.py --tp 4\n")
    assert run(["check", "train.sh", "--diff"]) == 0
    assert capsys.readouterr().out == ""


def test_a_file_keeps_its_byte_order_mark(folder):
    mark = b"\xef\xbb\xbf"
    Path("train.sh").write_bytes(mark + b"torchrun train.py --redundant\r\n")
    run(["check", "train.sh", "--fix"])
    assert Path("train.sh").read_bytes() == mark + b"torchrun train.py\r\n"


def test_an_interrupted_fix_leaves_the_file(folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    assert run(["check", "train.sh", "--fix"]) == 130
    assert Path("train.sh").read_text() == SCRIPT
    assert os.listdir(folder) == ["train.sh"]


def test_comments_silence(folder, capsys):
    Path("train.sh").write_text(f"# meshwright: ignore[COM]\n{SCRIPT}")
    run(["check", "train.sh", "--output-format", "concise"])
    assert capsys.readouterr().out.splitlines() == [
        "train.sh:3:24: error MOD101 MOD101",
        "train.sh: info CFG202 note",
    ]


def test_folders_are_walked(folder, calls, capsys):
    for name in (".git", "node_modules", "jobs"):
        (folder / name).mkdir()
        (folder / name / "a.sh").write_text(SCRIPT)
    (folder / "jobs" / "package.json").write_text("{}")
    (folder / "jobs" / "model.bin").write_text("x")
    (folder / "jobs" / "huge.json").write_text(" " * 2**20)
    run(["check", "."])
    assert calls[0]["paths"] == ["train.sh", "jobs/a.sh", "jobs/package.json"]
    out = capsys.readouterr().out
    assert "in 2 files" in out
    assert "1 other file of no known framework" in out


def test_named_files_of_no_framework_can_be_passed_by(folder, capsys):
    Path("package.json").write_text("{}")
    run(["check", "package.json", "train.sh", "--only-recognized"])
    assert "in 1 file " in capsys.readouterr().out
    run(["check", "package.json", "train.sh"])
    assert "in 2 files " in capsys.readouterr().out


def test_a_file_in_a_folder_is_checked_once(folder, calls):
    run(["check", "train.sh", "."])
    assert [call["paths"] for call in calls] == [["train.sh"]]


def stdin(monkeypatch, raw):
    stream = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", stream)


def test_standard_input(folder, monkeypatch, capsys):
    stdin(monkeypatch, SCRIPT.encode())
    code = run(["check", "-", "--stdin-filename", "x.sh", "--output-format", "concise"])
    assert code == 1
    assert capsys.readouterr().out.startswith("x.sh:2:24: error MOD101")


def test_standard_input_that_is_mended_goes_to_standard_output(folder, monkeypatch, capsys):
    stdin(monkeypatch, SCRIPT.encode())
    assert run(["check", "-", "--fix"]) == 1
    out, err = capsys.readouterr()
    assert out == SCRIPT.replace(" --redundant", "")
    assert "error[MOD101]" in err
    assert os.listdir(folder) == ["train.sh"]


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"x" * (2**21 + 1)])
def test_standard_input_that_is_no_text(folder, raw, monkeypatch, capsys):
    stdin(monkeypatch, raw)
    assert run(["check", "-"]) == 2
    assert "error: standard input is" in capsys.readouterr().err


def test_output_file(folder, capsys):
    assert run(["check", "train.sh", "--output-format", "sarif", "-o", "out.sarif"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "written to out.sarif" in err
    assert json.loads(Path("out.sarif").read_text())["version"] == "2.1.0"
    assert run(["check", "train.sh", "-o", "nowhere/out.txt"]) == 2


def test_statistics(folder, capsys):
    run(["check", "train.sh", "train.sh", "--statistics"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["count", "code", "severity", "title"]
    assert lines[1].split()[:3] == ["2", "CFG202", "info"]
    assert lines[2].split()[:4] == ["2", "COM203", "warning", "[*]"]
    run(["check", "train.sh", "--statistics", "--output-format", "json"])
    assert [r["count"] for r in json.loads(capsys.readouterr().out)["statistics"]] == [1, 1, 1]


def test_quiet(folder, capsys):
    run(["check", "train.sh", "-q", "--output-format", "concise"])
    assert "info" not in capsys.readouterr().out
    run(["check", "train.sh", "-q"])
    out = capsys.readouterr().out
    assert out.endswith(("^ here\n", "^^^ here\n"))


def test_colors_only_where_they_are_shown(folder, capsys, monkeypatch):
    run(["check", "train.sh"])
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(["check", "train.sh"])
    colored = capsys.readouterr().out
    assert "\x1b[1;31merror[MOD101]:\x1b[0m" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    run(["check", "train.sh"])
    assert capsys.readouterr().out == plain


def test_a_folder_without_configurations_says_so(folder, capsys):
    Path("train.sh").unlink()
    assert run(["check", "."]) == 0
    assert capsys.readouterr().out == "No configuration found\n"
