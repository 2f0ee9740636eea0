"""`meshwright diagnose`: what it prints and writes, what it refuses, and how it exits."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from making import Spec, write_run
from meshwright.cli.main import run
from meshwright.report.diagnosis.schema import schema

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "traces" / "public"
SMALL = Spec(layers=1, micro_batches=1, steps=3, hidden=1024, ffn=2048, tp=2, dp=2, slow_rank=3)


@pytest.fixture(name="traces", scope="module")
def _traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_run(SMALL, folder)
    return str(folder)


def test_the_page(traces, capsys):
    assert run(["diagnose", traces]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert re.match(r"A step takes [\d.]+ ms; ", lines[0])
    assert "rank 3" in " ".join(lines[:3])
    start = next(n for n, line in enumerate(lines) if line.startswith("where a step goes"))
    stop = next(n for n, line in enumerate(lines) if line.startswith("sum "))
    shares = [float(line.split()[-1].rstrip("%")) for line in lines[start + 1 : stop]]
    assert sum(shares) == pytest.approx(100.0, abs=1e-6)
    assert any(line.startswith("1. ") for line in lines)


def test_json_is_valid_by_the_schema(traces, capsys):
    assert run(["diagnose", traces, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    jsonschema.validate(record, schema(), cls=jsonschema.Draft202012Validator)
    assert [rank["rank"] for rank in record["ranks"]] == [0, 1, 2, 3]
    assert record["job"]["straggler_rank"] == 3
    assert record["principal"].startswith("straggler")
    parts = record["ranks"][0]["attribution"]["parts_us"]
    assert sum(parts.values()) == pytest.approx(record["ranks"][0]["attribution"]["window_us"])


def test_files_are_written(traces, tmp_path, capsys):
    report, small = tmp_path / "report.html", tmp_path / "small.json"
    assert run(["diagnose", traces, "--html", str(report), "--perfetto", str(small)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told == [f"wrote {report}", f"wrote {small}"]
    assert report.read_text().startswith("<!DOCTYPE html>")
    events = json.loads(small.read_text())["traceEvents"]
    assert {e["pid"] for e in events if e["ph"] == "X"} == {0, 1, 2, 3}


def test_inputs_are_not_overwritten(traces, capsys):
    own = f"{traces}/rank0.json"
    before = Path(own).read_bytes()
    assert run(["diagnose", own, "--perfetto", own]) == 2
    assert run(["diagnose", traces, "--perfetto", own]) == 2
    told = capsys.readouterr().err
    assert "is one of the files to be read" in told
    assert "lies in a folder that is read" in told
    assert Path(own).read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to diagnose"),
        (["nowhere"], "no such trace"),
        (["--nccl-log", "nowhere.log"], "nowhere.log"),
        (["--memory-snapshot", "nowhere.json"], "nowhere.json"),
        (["x", "--calibrate"], "go together"),
        (["x", "-o", "y.toml"], "go together"),
        (["x", "--html", "no/such/folder/r.html"], "folder does not exist"),
        (["x", "--html", "a.json", "--perfetto", "a.json"], "one file"),
        (["x", "--workers", "0"], "workers"),
        (["x", "--plan", "nowhere.toml"], "nowhere.toml"),
        ([""], "an empty name"),
        (["x", "--nccl-log", ""], "an empty name"),
        (["x", "--memory-snapshot", ""], "an empty name"),
        (["x", "--html", ""], "names no file"),
        (["x", "--perfetto", ""], "names no file"),
        (["x", "--calibrate", "-o", ""], "names no file"),
    ],
)
def test_wrong_usage(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["diagnose", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_wrong_input_with_json_is_a_record(tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert run(["diagnose", str(bad), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (finding,) = json.loads(captured.err)["error"]["findings"]
    assert finding["file"] == str(bad)


def test_names_in_traces_steer_neither_terminal_nor_page(tmp_path, capsys):
    evil = "<script>alert(1)</script>\u001b[31m\u202e</script>"
    folder = tmp_path / "evil <b>"
    (path, *_) = write_run(Spec(layers=1, micro_batches=1, hidden=1024, ffn=2048), folder)
    record = json.loads(path.read_text())
    for event in record["traceEvents"]:
        if event.get("cat") in ("kernel", "cpu_op", "user_annotation"):
            event["name"] = event["name"].replace("gemm", f"gemm{evil}")
    path.write_text(json.dumps(record))
    report = tmp_path / "report.html"
    assert run(["diagnose", str(folder), "--html", str(report)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    text = report.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_names_of_files_need_not_be_text(tmp_path, capsys):
    spec = Spec(layers=1, micro_batches=1, hidden=1024, ffn=2048)
    (path,) = write_run(spec, tmp_path / "in")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe<b>.json"))
    path.rename(odd)
    torn = odd.with_name(odd.name.replace("<b>", "torn"))
    torn.write_text("{")
    report, small = tmp_path / "r.html", tmp_path / "s.json"
    asked = ["diagnose", str(odd), str(torn), "--html", str(report), "--perfetto", str(small)]
    assert run(asked) == 0
    capsys.readouterr()
    assert run([*asked, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["left"][0]["what"].endswith("\\udcff\\udcfetorn.json")
    assert json.loads(small.read_text())


def test_devices_and_pipes_are_no_traces(tmp_path, capsys):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero", "/dev/null"):
        assert run(["diagnose", str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_gzipped_traces(tmp_path, capsys):
    spec = Spec(layers=1, micro_batches=1, hidden=1024, ffn=2048, gz=True)
    (path,) = write_run(spec, tmp_path)
    assert gzip.decompress(path.read_bytes())
    assert run(["diagnose", str(path)]) == 0
    assert capsys.readouterr().out.startswith("A step takes")


def test_a_torn_trace_is_answered_in_part(traces, tmp_path, capsys):
    whole = Path(traces, "rank0.json").read_bytes()
    torn = tmp_path / "torn.json"
    torn.write_bytes(whole[: 2 * len(whole) // 3])
    assert run(["diagnose", str(torn)]) == 0
    out = capsys.readouterr().out
    assert "left out" in out


def test_starting_costs_little():
    code = "import sys, meshwright.cli.diagnose; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"numpy", "msgspec", "rich"}.isdisjoint(done.stdout.split())


def folders():
    return sorted(path.name for path in REAL.iterdir() if path.is_dir()) if REAL.exists() else []


@pytest.mark.skipif(not REAL.exists(), reason=f"no real traces at {REAL}")
@pytest.mark.parametrize("name", folders())
def test_real_traces_give_whole_answers(name, tmp_path, capsys):
    assert run(["diagnose", str(REAL / name), "--html", str(tmp_path / "r.html"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    jsonschema.validate(record, schema(), cls=jsonschema.Draft202012Validator)
    assert len(record["summary"]) == 3
    if record["split"]:
        parts = sum(part["us"] for part in record["split"]["parts"])
        assert parts == pytest.approx(record["step_us"], rel=1e-9)


def test_what_was_measured_becomes_a_cluster_file(tmp_path, capsys):
    folder = tmp_path / "run"
    write_run(Spec(layers=2, micro_batches=2, steps=3, tp=2), folder)
    target = tmp_path / "cluster.toml"
    assert run(["diagnose", str(folder), "--calibrate", "-o", str(target)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("A step takes")
    assert f"wrote {target}" in captured.err
    assert "matmul bf16" in captured.err
    text = target.read_text()
    assert "[measured.matmul.bf16]" in text
    command = ["plan", "llama-3-8b", "--cluster", str(target), "--seq-len", "2048", "--top", "1"]
    assert run([*command, "--global-batch", "64"]) == 0


def test_a_device_that_is_in_no_catalogue_is_not_calibrated(tmp_path, capsys):
    (path,) = write_run(Spec(layers=1, micro_batches=1, hidden=1024, ffn=2048), tmp_path)
    path.write_text(path.read_text().replace("NVIDIA H100 80GB HBM3", "Abacus 3000"))
    target, report = tmp_path / "cluster.toml", tmp_path / "report.html"
    wanted = ["--calibrate", "-o", str(target), "--html", str(report)]
    assert run(["diagnose", str(path), *wanted]) == 2
    captured = capsys.readouterr()
    assert "Abacus 3000" in captured.err
    assert not target.exists()
    assert report.exists()  # it is diagnosed all the same
    assert captured.out.startswith("A step takes")


PLAN = """
[model]
model_type = "llama"
hidden_size = 1024
intermediate_size = 2048
num_hidden_layers = 1
num_attention_heads = 8
num_key_value_heads = 8
vocab_size = 32000
max_position_embeddings = 4096

[cluster]
gpu = "H100:8"
nodes = 1

[workload]
seq_len = 4096
global_batch = 2

[plan]
tp = 2
dp = 2
micro_batch_size = 1
"""


def test_a_plan_is_held_against_the_traces_term_by_term(traces, tmp_path, capsys):
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    assert run(["diagnose", traces, "--plan", str(plan)]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("term of the plan"))
    (tp,) = [line for line in lines[start:] if line.startswith("time.communication.tp")]
    assert re.search(r"\d ms|\d us", tp)
    assert run(["diagnose", traces, "--plan", str(plan), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    told = {one["term"]: one for one in record["promises"]}
    assert told["time.communication.tp"]["predicted_s"] > 0
    assert told["time"]["measured_s"] == pytest.approx(record["step_us"] / 1e6, rel=0.05)


def test_ctrl_c_ends_the_command_and_its_workers(tmp_path):
    folder = tmp_path / "many"
    (first, *_) = write_run(Spec(layers=2, micro_batches=4, steps=4), folder)
    for number in range(1, 60):
        (folder / f"rank{number}.json").write_bytes(first.read_bytes())
    code = (
        "import sys\nfrom meshwright.api.diagnosing import pool\nown = pool._started\n"
        "def start():\n    worker = own()\n    print(worker.process.pid, flush=True)\n"
        "    return worker\n"
        "pool._started = start\nfrom meshwright.cli.main import main\nmain(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "diagnose", str(folder), "--workers", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    numbers = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert told == "interrupted\n"
    until = time.monotonic() + 30
    while (alive := [n for n in numbers if is_alive(n)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert alive == []


def is_alive(number):
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
